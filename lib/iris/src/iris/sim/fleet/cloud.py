"""A simulated cloud behind the autoscaler's port, which outlives controllers and holds them to their promises."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from iris.autoscale.closures import Closure
from iris.autoscale.model import Answer, Outcome, SliceRecord, SliceState
from iris.autoscale.port import Listing, Phase, SliceFound, SliceOrder, SliceProvider
from iris.domain.errors import StorageUnavailable
from iris.domain.scale_groups import ScaleGroup


class MemoryRows:
    """Rows of slices that survive their controller. `fails` makes the next commits fail."""

    def __init__(self) -> None:
        self.slices: dict[str, SliceRecord] = {}
        self.closures: dict[str, Closure] = {}
        self.commits = 0
        self.fails: Callable[[], bool] = lambda: False

    def save_slices(
        self,
        slices: Sequence[SliceRecord],
        closures: Sequence[Closure],
        forgotten: Sequence[str],
        opened: Sequence[str],
    ) -> None:
        if self.fails():
            raise StorageUnavailable("the disk is full")
        self.commits += 1
        self.slices.update((record.name, record) for record in slices)
        self.closures.update((closure.key, closure) for closure in closures)
        for name in forgotten:
            del self.slices[name]
        for key in opened:
            del self.closures[key]

    def load_slices(self) -> tuple[list[SliceRecord], list[Closure]]:
        return list(self.slices.values()), list(self.closures.values())


@dataclass(slots=True)
class Machine:
    """A slice that the cloud has.

    Args:
        group: Its scale group.
        ready_s: When it is ready.
        gone_s: When it is deleted; 0 while nobody has asked for that.
        is_broken: Whether the cloud has taken it away.
    """

    group: str
    ready_s: float
    gone_s: float = 0
    is_broken: bool = False
    outcome: Outcome = Outcome.UNKNOWN
    hosts_lost: tuple[int, ...] = ()


@dataclass(slots=True)
class Weather:
    """How often the cloud misbehaves, as probabilities of each call, with which refusals, and its delays in seconds."""

    refuses: float = 0.0
    late_refusal: float = 0.0
    raises: float = 0.0
    loses_answer: float = 0.0
    does_nothing: float = 0.0
    lags: float = 0.0
    hides_a_group: float = 0.0
    refusals: tuple[Outcome, ...] = (Outcome.STOCK_OUT, Outcome.QUOTA, Outcome.RATE)
    delay_s: tuple[float, float] = (0.0, 0.0)
    boot_s: tuple[float, float] = (1.0, 1.0)
    delete_s: tuple[float, float] = (1.0, 1.0)


@dataclass
class Cloud:
    """The truth about slices. Implements `SliceProvider`.

    Attributes:
        machines: What exists, by name.
        made: How often each name was created. calls: All calls, with the slice's name.
        violations: Broken promises of the autoscaler. troubles: What is wrong with places, by group.
    """

    rows: MemoryRows
    source: random.Random
    now_s: Callable[[], float]
    weather: Weather = field(default_factory=Weather)
    machines: dict[str, Machine] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    made: dict[str, int] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def provider(self) -> SliceProvider:
        """Return what the next controller calls."""
        return self

    async def create(self, order: SliceOrder) -> Answer:
        name = order.name
        self._note("create", name, SliceState.REQUESTED)
        refusal = await self._strike()
        if refusal is not None and name not in self.machines:
            return refusal
        if name not in self.machines:
            self.made[name] = self.made.get(name, 0) + 1
            if self.made[name] > 1:
                self.violations.append(f"{name} is created again after it was deleted")
            machine = Machine(order.group.name, self.now_s() + self.source.uniform(*self.weather.boot_s))
            if self.source.random() < self.weather.late_refusal:
                machine.is_broken, machine.outcome = True, self.source.choice(self.weather.refusals)
            self.machines[name] = machine
        return await self._answer()

    async def delete(self, name: str, group: ScaleGroup) -> Answer:
        del group
        self._note("delete", name, SliceState.LEAVING)
        refusal = await self._strike()
        if refusal is not None:
            return refusal
        machine = self.machines.get(name)
        if machine is not None and not machine.gone_s:
            machine.gone_s = self.now_s() + self.source.uniform(*self.weather.delete_s)
        return await self._answer()

    async def list(self) -> Listing:
        self.calls.append(("list", ""))
        hidden = {
            name: Answer(Outcome.UNKNOWN, "zone is away")
            for name in self.groups
            if self.source.random() < self.weather.hides_a_group
        }
        found = {
            name: SliceFound(name, item.group, self._phase(item), "", (), item.hosts_lost, item.outcome)
            for name, item in self.present().items()
            if item.group not in hidden and self.source.random() >= self.weather.lags
        }
        if await self._strike() is not None:
            raise ConnectionError("the list broke off")
        return Listing(found, hidden, self.troubles)

    async def close(self) -> None:
        self.calls.append(("close", ""))

    def lose(self, name: str) -> None:
        """Take a slice away, or the second host of one of the group "two"."""
        machine = self.machines[name]
        if machine.group == "two":
            machine.hosts_lost = (1,)
        else:
            machine.is_broken = True

    def present(self) -> dict[str, Machine]:
        """Return what exists now."""
        now_s = self.now_s()
        self.machines = {name: item for name, item in self.machines.items() if not 0 < item.gone_s <= now_s}
        return self.machines

    def _phase(self, machine: Machine) -> Phase:
        if machine.gone_s:
            return Phase.DELETING
        if machine.is_broken:
            return Phase.BROKEN
        return Phase.READY if machine.ready_s <= self.now_s() else Phase.CREATING

    def _note(self, call: str, name: str, state: SliceState) -> None:
        self.calls.append((call, name))
        record = self.rows.slices.get(name)
        if record is None or record.state is not state:
            stored = "no row" if record is None else record.state.name
            self.violations.append(f"{call} of {name} with {stored}")

    async def _strike(self) -> Answer | None:
        """Delay a call, and return why nothing happens; None if it happens."""
        weather = self.weather
        await asyncio.sleep(self.source.uniform(*weather.delay_s))
        self.present()
        if self.source.random() < weather.refuses:
            return Answer(self.source.choice(self.weather.refusals), "so says the cloud")
        if self.source.random() < weather.does_nothing:
            await asyncio.sleep(1e9)
        if self.source.random() < weather.raises:
            raise ConnectionError("reset")
        return None

    async def _answer(self) -> Answer:
        if self.source.random() < self.weather.loses_answer:
            await asyncio.sleep(1e9)
        await asyncio.sleep(self.source.uniform(*self.weather.delay_s))
        return Answer(Outcome.DONE)
