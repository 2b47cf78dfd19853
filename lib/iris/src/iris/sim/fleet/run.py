"""One seed of the autoscaler's fault simulation: demand, a failing cloud, killed controllers, and promises at the end.

Promises: each call has its stored intent; no name is made twice. When the weather is calm, all demand gets hosts, the
cloud has what the rows say and nothing else, and unused slices go.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from iris.autoscale.fleet import Fleet
from iris.autoscale.missing import Missing
from iris.autoscale.model import SliceState, worker_id_of
from iris.autoscale.planning.demand import Demand
from iris.autoscale.rules import AutoscaleRules
from iris.autoscale.runtime import Autoscaler
from iris.core.state.changes import Changes
from iris.core.state.view import ClusterView
from iris.domain.entities import Worker
from iris.domain.events import Recorded
from iris.domain.ids import JobId, WorkerId
from iris.domain.resources import Resources
from iris.domain.scale_groups import ScaleGroup
from iris.sim.fleet.cloud import Cloud, MemoryRows, Weather
from iris.sim.trace import Trace
from iris.sim.world import Node, World

EPOCH_MS: Final = 1_700_000_000_000
HOST: Final = Resources(1000, 1 << 30, 1 << 30)
_STORM_S: Final = 600.0
_CALM_S: Final = 3000.0
RULES: Final = AutoscaleRules(
    look_s=10, idle_s=120, boot_deadline_s=300, call_deadline_s=20, creates_per_minute=1000, creates_per_hour=100_000
)
GROUPS: Final = (
    ScaleGroup("one", HOST, min_slices=1, max_slices=6),
    ScaleGroup("two", HOST, hosts_per_slice=2, max_slices=4),
)


class Controller:
    """The autoscaler's view of its controller: workers that join and are lost, and tasks that wait or run.

    Args:
        world: The clock.
        cloud: The truth: ready machines' hosts join.
    """

    def __init__(self, world: World, cloud: Cloud, groups: tuple[ScaleGroup, ...]) -> None:
        self.view = ClusterView()
        self.wanted = 0
        self.records: list[Recorded] = []
        self.drained: list[WorkerId] = []
        self.missing: list[Missing] = []
        self._world = world
        self._cloud = cloud
        self._sizes = {group.name: group.hosts_per_slice for group in groups}

    @property
    def kept(self) -> Mapping[WorkerId, JobId]:
        """The workers with a task: the first ones, as many as are wanted."""
        ready = [name for name, worker in self.view.workers.items() if worker.connected and not worker.cordon_reason]
        return dict.fromkeys(ready[: self.wanted], JobId("/u/job"))

    def demands(self, view: ClusterView, now_ms: int) -> tuple[Demand, ...]:
        del view, now_ms
        missing = self.wanted - len(self.kept)
        return (Demand(HOST, (), missing, jobs=(JobId("/u/job"),)),) if missing > 0 else ()

    def turn(self) -> bool:
        """Let hosts of ready machines join, and those of others go. Return whether any did."""
        hosts = {
            worker_id_of(name, number): (name, item)
            for name, item in self._cloud.present().items()
            for number in range(self._sizes.get(item.group, 1))
            if item.ready_s <= self._world.now and not item.is_broken and not item.gone_s
            if number not in item.hosts_lost
        }
        changed = [
            Worker(worker_id, "i", HOST, {"slice": hosts[worker_id][0]}, connected=True)
            for worker_id in hosts
            if worker_id not in self.view.workers or not self.view.workers[worker_id].connected
        ]
        lost = [
            replace(worker, connected=False)
            for worker_id, worker in self.view.workers.items()
            if worker.connected and worker_id not in hosts
        ]
        self.view.apply(Changes.of(workers=[*changed, *lost]))
        return bool(changed or lost)

    def is_present(self, worker_id: WorkerId) -> bool:
        worker = self.view.workers.get(worker_id)
        return worker is not None and worker.connected

    def record(self, what: Recorded) -> None:
        self.records.append(what)

    async def confirm(self) -> None:
        pass

    async def drain(self, worker_id: WorkerId, reason: str) -> None:
        self.drained.append(worker_id)
        worker = self.view.workers[worker_id]
        self.view.apply(Changes.of(workers=[replace(worker, cordon_reason=reason)]))

    def tell_missing(self, missing: Sequence[Missing]) -> None:
        self.missing += missing

    async def remove(self, worker_id: WorkerId, reason: str) -> None:
        del reason
        self.view.forget_worker(worker_id)


@dataclass
class FleetReport:
    """The result of a seed; `violations` is empty if every promise held."""

    seed: int
    violations: list[str] = field(default_factory=list)
    lives: int = 0
    made: int = 0
    calls: int = 0


class FleetSimulation:
    """A cloud and the lives of its controller.

    Args:
        seed: Determines everything.
        weather: How the cloud misbehaves.
        groups, rules: What may be created.
        show: Called with each line of the trace.
        cloud: The cloud.
    """

    def __init__(
        self,
        seed: int = 0,
        weather: Weather | None = None,
        groups: tuple[ScaleGroup, ...] = GROUPS,
        rules: AutoscaleRules = RULES,
        show: Callable[[str], None] | None = None,
        cloud: type[Cloud] = Cloud,
    ) -> None:
        self.world = World(Trace(show))
        self.source = random.Random(f"fleet {seed}")
        self.rows = MemoryRows()
        names = tuple(group.name for group in groups)
        cloud_source = random.Random(f"cloud {seed}")
        self.cloud = cloud(self.rows, cloud_source, lambda: self.world.now, weather or Weather(), groups=names)
        self.controller = Controller(self.world, self.cloud, groups)
        self.lives = 0
        self.strike_at = 0
        self._fleet = Fleet(groups, rules, seed=seed, find_demands=self.controller.demands)
        self.node = self._begin()
        self.world.call_in(1, self._turn)

    def clock_ms(self) -> int:
        return EPOCH_MS + int(self.world.now * 1000)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.world.run_until(self.world.now + seconds)

    def restart(self, why: str = "killed") -> None:
        """Kill the controller, and start another one."""
        self.node.kill(why)
        self.node = self._begin()

    def want(self, hosts: int) -> None:
        """Set the number of hosts that tasks need."""
        self.controller.wanted = hosts
        self.autoscaler.on_effects(())

    def _begin(self) -> Node:
        self.lives += 1
        node = Node(self.world, f"controller#{self.lives}")
        self.autoscaler = Autoscaler(self.cloud.provider(), self.rows, self._fleet, self.clock_ms)
        node.run(self.autoscaler.begin, self.controller)
        self.world.after_step = self._after_step
        return node

    def _after_step(self, node: Node | None) -> None:
        if node is self.node and self.strike_at and node.steps >= self.strike_at:
            self.strike_at = 0
            self.restart(f"struck at step {node.steps}")

    def _turn(self) -> None:
        if self.controller.turn():
            self.node.run(self.autoscaler.on_effects, ())
        self.world.call_in(1, self._turn)


def run_fleet_seed(
    seed: int,
    show: Callable[[str], None] | None = None,
    groups: tuple[ScaleGroup, ...] = GROUPS,
    cloud: type[Cloud] = Cloud,
) -> FleetReport:
    """Run one seed, and return the promises that were broken.

    Args:
        seed: The seed.
        show: Called with each line of the trace.
        groups: What may be created. Their first one has single hosts and a minimum.
        cloud: The cloud.
    """
    source = random.Random(f"weather {seed}")

    def sometimes(most: float) -> float:
        return source.choice((0.0, 0.0, most / 4, most))

    weather = Weather(
        refuses=sometimes(0.5), late_refusal=sometimes(0.3), raises=sometimes(0.2), loses_answer=sometimes(0.3),
        does_nothing=sometimes(0.2), lags=sometimes(0.3), hides_a_group=sometimes(0.3),
        delay_s=(0.0, source.choice((0.0, 1.0, 30.0))), boot_s=(1.0, source.choice((5.0, 400.0))),
        delete_s=(0.0, source.choice((0.0, 100.0))),
    )  # fmt: skip
    simulation = FleetSimulation(seed, weather, groups, show=show, cloud=cloud)
    world = simulation.world
    bad_disk = sometimes(0.3)
    simulation.rows.fails = lambda: simulation.source.random() < bad_disk
    for _ in range(source.randint(2, 8)):
        world.call_at(source.uniform(0, _STORM_S), simulation.want, source.randint(0, 12))
    for _ in range(source.randint(0, 4)):
        world.call_at(source.uniform(0, _STORM_S), _break_one, simulation, source.random())
    for _ in range(source.randint(0, 3)):
        world.call_at(source.uniform(0, _STORM_S), _strike, simulation, source.randint(1, 60))
    simulation.run(_STORM_S)
    simulation.cloud.weather, simulation.rows.fails = Weather(), lambda: False
    wanted = source.randint(0, 8)
    simulation.want(wanted)
    simulation.run(_CALM_S)
    return _report(simulation, seed, wanted)


def run_struck_at(step: int) -> FleetReport | None:
    """Run a story of demand, a loss and idle slices, whose controller is killed before one of its callbacks.

    Args:
        step: The number of the callback, from 1.

    Return None if the first controller of the story has fewer callbacks.
    """
    weather = Weather(delay_s=(0.5, 0.5), boot_s=(3, 3), delete_s=(3, 3))
    simulation = FleetSimulation(weather=weather)
    simulation.strike_at = step
    world = simulation.world
    world.call_at(12, simulation.want, 3)
    world.call_at(40, _break_one, simulation, 0.5)
    world.call_at(70, simulation.want, 1)
    simulation.run(250)
    if simulation.strike_at:
        return None
    simulation.want(2)
    simulation.run(500)
    return _report(simulation, step, 2)


def _report(simulation: FleetSimulation, seed: int, wanted: int) -> FleetReport:
    cloud, problems = simulation.cloud, simulation.world.problems
    report = FleetReport(seed, cloud.violations + problems, simulation.lives, len(cloud.made), len(cloud.calls))
    report.violations += _broken_promises(simulation, wanted)
    return report


def _strike(simulation: FleetSimulation, steps: int) -> None:
    simulation.strike_at = simulation.node.steps + steps


def _break_one(simulation: FleetSimulation, choice: float) -> None:
    names = list(simulation.cloud.present())
    if names:
        simulation.cloud.lose(names[int(choice * len(names))])


def _broken_promises(simulation: FleetSimulation, wanted: int) -> list[str]:
    found = []
    live = {name: item for name, item in simulation.autoscaler.slices.items() if not item.state.is_over}
    stored = {name: item for name, item in simulation.rows.slices.items() if not item.state.is_over}
    if list(map(str, live)) != list(map(str, stored)):
        found.append(f"in memory {sorted(live)}, stored {sorted(stored)}")
    present = set(simulation.cloud.present())
    if present != set(live):
        found.append(f"the cloud has {sorted(present)}, the autoscaler knows {sorted(live)}")
    found += [f"{item.name} is {item.state.name}" for item in live.values() if item.state is not SliceState.JOINED]
    ready = sum(worker.connected for worker in simulation.controller.view.workers.values())
    if ready < wanted:
        found.append(f"{ready} hosts for {wanted} tasks")
    used = {str(worker_id).rpartition("-")[0] for worker_id in simulation.controller.kept}
    spare = sorted(set(live) - used)
    if len(spare) > 1 or (spare and any(item.group == "one" and name in used for name, item in live.items())):
        found.append(f"{spare} are unused and stay")
    away = [name for name, worker in simulation.controller.view.workers.items() if not worker.connected]
    if away:
        found.append(f"workers {away} of gone slices are left")
    return found
