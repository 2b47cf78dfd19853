"""One seed from start to end, with all invariants checked during the run and at the end."""

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from iris.controller.config.controller_config import ControllerConfig
from iris.core.state.changes import Changes
from iris.domain.entities import Job
from iris.domain.events import WorkerCordoned, WorkerUncordoned
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId
from iris.domain.job_spec import JobSpec, is_gang
from iris.domain.states import JobState, TaskState
from iris.rpc.auth import load_or_create_secret
from iris.sim.client import Book, Users, run_children
from iris.sim.controller import NO_FAULTS, CheckedView, ControllerLife
from iris.sim.host import Process, SimContext, SimHost
from iris.sim.ledger import Ledger
from iris.sim.network import Network
from iris.sim.physics import Physics
from iris.sim.programs import PlannedJob, Program
from iris.sim.replay import differences
from iris.sim.scenario import ENDINGS, Fault, FaultKind, Scenario, make_scenario
from iris.sim.trace import SeedReport, Trace
from iris.sim.world import Node, World
from iris.store.event_rows import record_of

_PATIENCE_S: Final = 3600.0
# Grace of its attempts, its last words, and their way.
_LEAVING_S: Final = 8.0
_TMPFS: Final = Path("/dev/shm")


def run_seed(
    seed: int, show: Callable[[str], None] | None = None, make: Callable[[int], Scenario] = make_scenario
) -> SeedReport:
    """Run one seed.

    Args:
        seed: Determines the scenario and all randomness.
        show: Called with every line of the trace.
        make: Returns the scenario.
    """
    parent = str(_TMPFS) if _TMPFS.is_dir() else None
    root = Path(tempfile.mkdtemp(prefix="iris-sim-", dir=parent))
    try:
        return Simulation(make(seed), root, Trace(show)).run()
    finally:
        shutil.rmtree(root, ignore_errors=True)


class Simulation:
    """Assembles the parts of a scenario and runs them."""

    def __init__(self, scenario: Scenario, root: Path, trace: Trace) -> None:
        self.scenario = scenario
        self.world = World(trace)
        self._source = random.Random(f"run {scenario.seed}")
        self.network = Network(self.world, random.Random(f"network {scenario.seed}"), scenario.weather)
        self.physics = Physics(lambda: self.world.now)
        self.ledger = Ledger(
            begun=self.physics.seen, running=self.physics.running, exits=self.physics.exits, told=self.physics.told
        )
        self.book = Book()
        self._config = ControllerConfig(
            state_dir=root / "controller",
            worker_timeout_s=scenario.worker_timeout_s,
            partition_patience_s=scenario.partition_patience_s,
            stop_grace_s=2,
            fence_margin_s=2,
            log_wait_s=10,
        )
        self._config.state_dir.mkdir(parents=True)
        self._secret = load_or_create_secret(self._config.state_dir / "secret")
        self._lives = 0
        self._checks = 0
        self.life: ControllerLife | None = None
        self._is_calm = False
        self._bad_disks: dict[str, float] = {}
        context = SimContext(
            self.world,
            self.network,
            self.physics,
            self._source,
            root,
            self._secret,
            self._program_of,
            self._spec_of,
            self._run_children,
            lambda: self._source.random() < 0.5 and max(self._bad_disks.values(), default=0) > self.world.now,
        )
        self.hosts = {
            plan.name: SimHost(context, plan.name, plan.capacity, plan.attributes, plan.skew_s)
            for plan in scenario.hosts
        }
        self._slices = {plan.name: plan.slice for plan in scenario.hosts}
        self._plans = {plan.spec.job_id: plan for plan in _all_plans(scenario.plans)}

    # ---- the story ----

    def run(self) -> SeedReport:
        """Run to the end and check the result."""
        world, scenario = self.world, self.scenario
        violations: list[str] = []
        try:
            self._start_controller()
            for host in self.hosts.values():
                world.call_in(self._source.uniform(0, 2), host.start)
            users = Users(self.network, Node(world, "users"), self._secret, self._source, self.book)
            users.begin(scenario.plans)
            for fault in scenario.faults:
                world.call_at(fault.at_s, self._strike, fault)
            world.after_step = self._after_step
            world.run_until(scenario.calm_s, lambda: bool(self._broken()))
            if not self._broken():
                self._calm_down()
                world.run_until(scenario.calm_s + _PATIENCE_S, lambda: bool(self._broken()) or self._is_over())
            violations += self._broken()
            if not violations:
                violations += list(self._judge())
        finally:
            self._tear_down()
        return SeedReport(
            scenario.seed,
            violations,
            len(self.ledger.jobs),
            self.physics.starts,
            self.physics.overlaps,
            self._lives,
            self.ledger.commits,
            self._checks,
            world.steps,
            world.now,
            world.trace.digest,
            world.trace.tail(60),
            Counter(str(reason) for name, reason in self.physics.notices.items() if "/0:" in name),
            scenario.is_announced,
        )

    def _broken(self) -> list[str]:
        return [*self.world.problems, *self.ledger.violations, *self.physics.violations, *self.book.violations]

    def _is_over(self) -> bool:
        if self.book.open_stories or self.physics.running or self.life is None or not self.life.is_up:
            return False
        view = self.life.view
        if view.live_jobs or view.bookings or view.lost:
            return False
        return not any(host.inventory() for host in self.hosts.values())

    def _after_step(self, node: Node | None) -> None:
        life = self.life
        if life is None or node is not life.node or self._is_calm:
            return
        if life.faults.dies_at_step and node.steps == life.faults.dies_at_step and life.is_up:
            life.kill(f"killed after {node.steps} callbacks")

    # ---- the controller's lives ----

    def _start_controller(self) -> None:
        if self.life is not None and self.life.is_up:
            return
        self._lives += 1
        lives = self.scenario.lives
        faults = lives[self._lives - 1] if self._lives <= len(lives) and not self._is_calm else NO_FAULTS
        life = self.life = ControllerLife(
            self.world, self.network, self._config, self._secret, self.ledger, self.physics, faults, self._lives
        )
        life.node.on_death.append(self._plan_next_life)
        view = life.view
        assert isinstance(view, CheckedView)
        view.note = self._note

    def _plan_next_life(self) -> None:
        self.world.call_in(self._source.choice([0.05, 0.5, 3.0, 10.0]), self._start_controller)

    def _note(self, changes: Changes) -> None:
        self._checks += 1
        trace, now = self.world.trace, self.world.now
        for task in changes.tasks.values():
            if task.state is not TaskState.PENDING or task.causes:
                why = f" ({task.causes[-1]})" if task.causes else ""
                trace.note(now, "controller", f"{task.attempt_id} {task.state.word} {task.worker_id or ''}{why}")
        for job in changes.jobs.values():
            trace.note(now, "controller", f"{job.job_id} {job.state.word} {job.error}")
        for worker in changes.workers.values():
            state = f"connected={worker.connected} late={worker.is_late} {worker.cordon_reason}"
            trace.note(now, "controller", f"{worker.worker_id} {state}")

    # ---- faults ----

    def _strike(self, fault: Fault) -> None:
        world, host = self.world, self.hosts[fault.target]
        world.trace.note(world.now, "fault", f"{fault.kind} {fault.target} for {fault.for_s:.1f} s")
        match fault.kind:
            case FaultKind.CONTROLLER_KILL:
                if self.life is not None:
                    self.life.kill("killed")
            case FaultKind.CONTROLLER_STOP:
                if self.life is not None:
                    self.life.stop_in_order()
            case FaultKind.AGENT_CRASH:
                host.crash()
                world.call_in(fault.for_s, host.start)
            case FaultKind.CRASH_AT_START:
                host.crash_at_start_s = self._source.uniform(0, 0.05)
            case FaultKind.HOST_LOSS:
                host.vanish()
                world.call_in(fault.for_s, host.start)
            case FaultKind.SLICE_LOSS:
                for name, slice_ in self._slices.items():
                    if slice_ == self._slices[fault.target]:
                        self.hosts[name].vanish()
                        world.call_in(fault.for_s + self._source.uniform(0, 1), self.hosts[name].start)
            case FaultKind.HOST_LEAVE:
                if host.is_up:
                    host.leave()
                    world.call_in(_LEAVING_S, self._check_has_left, host, host.node)
                world.call_in(fault.for_s + _LEAVING_S, host.start)
            case FaultKind.SPOT | FaultKind.MAINTENANCE:
                reason, until_s = ENDINGS[fault.kind]
                host.leave(reason)
                world.call_in(until_s, host.vanish)
                world.call_in(until_s + fault.for_s, host.start)
            case FaultKind.UNCORDON:
                self._uncordon_now(fault.target)
            case FaultKind.PARTITION:
                self.network.partition(fault.target, world.now + fault.for_s, fault.up, fault.down)
            case FaultKind.RESET:
                self.network.reset(fault.target)
            case FaultKind.CLIENT_PARTITION:
                self.network.partition("client", world.now + fault.for_s, fault.up, fault.down)
            case FaultKind.DRAIN:
                if self.life is not None and self.life.is_up:
                    worker_id = fault.target
                    if worker_id in self.life.view.workers:
                        self.life.node.run(self.life.engine.post, WorkerCordoned(worker_id, "drill", True))
            case FaultKind.FREEZE:
                host.freeze(fault.for_s)
            case FaultKind.CONTROLLER_FREEZE:
                if self.life is not None:
                    self.life.node.freeze(world.now + fault.for_s)
            case FaultKind.BAD_DISK:
                self._bad_disks[fault.target] = world.now + fault.for_s

    def _check_has_left(self, host: SimHost, node: Node) -> None:
        was_frozen = node.busy_until > self.world.now - _LEAVING_S
        if not node.is_dying and not was_frozen:
            self.book.violations.append(f"{host.name} was told to leave {_LEAVING_S:g} s ago and is still there")

    def _calm_down(self) -> None:
        """Repair everything, so that all remaining work must end."""
        self._is_calm = True
        self.world.trace.note(self.world.now, "fault", "no more faults")
        self.network.still()
        self._bad_disks.clear()
        for host in self.hosts.values():
            host.crash_at_start_s = None
            if host.node is not None:
                host.node.thaw()
        if self.life is not None:
            self.life.faults = NO_FAULTS
            self.life.node.thaw()
        self._start_controller()
        self._uncordon()

    def _uncordon(self) -> None:
        """Periodically uncordon and restart hosts, like an operator."""
        for host in self.hosts.values():
            host.start()
        for worker_id in self.hosts:
            self._uncordon_now(worker_id)
        self.world.call_in(30, self._uncordon)

    def _uncordon_now(self, worker_id: WorkerId) -> None:
        if self.life is not None and self.life.is_up:
            worker = self.life.view.workers.get(worker_id)
            if worker is not None and worker.cordon_reason:
                self.life.node.run(self.life.engine.post, WorkerUncordoned(worker_id))

    # ---- what jobs are ----

    def _plan_of(self, job_id: JobId, number: int) -> PlannedJob:
        plan, job = self._plans[job_id], self.ledger.jobs[job_id]
        if plan.again is not None and self._use_of(job) == 2 and not 0 <= number < job.first_attempt:
            return plan.again
        return plan

    def _use_of(self, job: Job) -> int:
        return int(job.idempotency_key.rpartition(" ")[2]) if job.idempotency_key.startswith("key of") else 1

    def _program_of(self, job_id: JobId, number: int) -> Program:
        return self._plan_of(job_id, number).program

    def _spec_of(self, job_id: JobId, number: int) -> JobSpec:
        return self._plan_of(job_id, number).spec

    def _run_children(self, process: Process, node: Node, token: str) -> None:
        run_children(self.network, self._source, self.book, process, node, token)

    # ---- the judgement ----

    def _judge(self) -> Iterator[str]:
        if not self._is_over():
            yield from self._what_is_left()
            return
        for job in self.ledger.jobs.values():
            yield from self._judge_job(job)
        for name in self.book.acknowledged:
            if name not in self.ledger.jobs:
                yield f"{name} was acknowledged and is gone"
        assert self.life is not None
        view = self.life.view
        yield from self._judge_history()
        yield from self.life.judge_ledger()
        if self.scenario.is_announced:
            yield from self.physics.judge_notices()
        for worker_id, load in view.loads.items():
            if load.bookings or load.cpu_millis or load.memory_bytes or load.disk_bytes or load.device_count:
                yield f"{worker_id}: resources are still taken when nothing is left: {load.bookings}"
        if view.pending or view.stopping_counts or view.held_counts or view.lost:
            rest = f"stopping {view.stopping_counts}, held {view.held_counts}, given up {view.lost}"
            yield f"left over: pending {view.pending}, {rest}"

    def _judge_history(self) -> Iterator[str]:
        """Repeat all decisions of the scheduler from the stored events."""
        assert self.life is not None
        specs = {job_id: iter(found) for job_id, found in self.ledger.specs.items()}
        rows = self.life.event_rows()
        yield from differences(record_of(row, lambda job_id: next(specs[job_id])) for row in rows)

    def _judge_job(self, job: Job) -> Iterator[str]:
        plan, name = self._plan_of(job.job_id, -1), job.job_id
        root = self._plans[JobId("/".join(name.split("/")[:3]))]
        allowed = set(plan.allowed)
        if root.spec.job_id != name:
            parent = self.ledger.jobs.get(root.spec.job_id)
            if parent is not None and parent.state.word != "succeeded":
                allowed.add(JobState.KILLED)  # it ends with its parent
        if job.state not in allowed:
            yield f"{name} ended {job.state.word} ({job.error}); it must end {' or '.join(s.word for s in allowed)}"
        tasks = [self.ledger.tasks[TaskId(f"{name}/{index}")] for index in range(job.spec.replicas)]
        if is_gang(job.spec) and job.state is JobState.SUCCEEDED and len({task.attempt for task in tasks}) > 1:
            yield f"{name}: its members succeeded in different rounds: {[task.attempt_id for task in tasks]}"
        for task in tasks:
            exits = self.physics.exits
            if task.state is TaskState.SUCCEEDED and exits.get(task.attempt_id) != 0:
                yield f"{task.attempt_id} counts as succeeded; its process ended with {exits.get(task.attempt_id)}"
            if task.state is TaskState.FAILED and exits.get(task.attempt_id) == 0:
                yield f"{task.attempt_id} counts as failed; its process succeeded"
            bad = sum(
                1
                for number in range(job.first_attempt, task.attempt + 1)
                if exits.get(AttemptId(f"{task.task_id}:{number}"), 0)
            )
            is_never_run = plan.program.cannot_start or plan.program.prepare_fails
            if task.failures > bad and not is_never_run:
                yield f"{task.task_id}: charged with {task.failures} failures, {bad} of its runs failed: {task.causes}"

    def _what_is_left(self) -> Iterator[str]:
        yield f"not over {_PATIENCE_S:g} s after the last fault"
        life = self.life
        if life is None or not life.is_up:
            yield "the controller is down"
            return
        for job_id in life.view.live_jobs:
            job = life.view.jobs[job_id]
            yield f"{job_id} is {job.state.word}: {life.engine.reasons.get(job_id, '')} {job.counts}"
        for booking in life.view.bookings.values():
            yield f"booked: {booking.attempt_id} on {booking.worker_id}, stopping={booking.stopping}"
        for host in self.hosts.values():
            for observation in host.inventory():
                yield f"{host.name} still has {observation.attempt_id} {observation.state.word}"
        yield f"running: {sorted(self.physics.running)}; stories open: {self.book.open_stories}"

    def _tear_down(self) -> None:
        self.world.after_step = None
        if self.life is not None:
            self.life.kill("the simulation is over")
        for host in self.hosts.values():
            host.vanish()


def _all_plans(plans: tuple[PlannedJob, ...]) -> Iterator[PlannedJob]:
    for plan in plans:
        yield plan
        yield from _all_plans(plan.program.children)
