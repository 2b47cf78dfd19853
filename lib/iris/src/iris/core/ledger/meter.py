"""Measures the time of one worker's capacity."""

from collections.abc import Callable, Mapping
from typing import Final

from iris.domain.ids import JobId
from iris.domain.usage import Use

Payer = tuple[str, str]
"""A user, and the root job or its direct child; both empty for nobody."""

NOBODY: Final[Payer] = ("", "")

Add = Callable[[Payer, str, Use, float, float], None]
"""Takes a payer, a group of workers, a use, millicore-ms and chip-ms."""


def payer_of(job_id: JobId) -> Payer:
    """Return who pays for a job: "/user/root/child/grandchild" counts for "/user/root/child"."""
    parts = job_id.split("/", 4)
    return parts[1], "/".join(parts[:4])


class _Dimension:
    """The cores (in thousandths) or the chips of one worker.

    Attributes:
        served: Ms during which each booked unit was available. Grows more slowly than time while the booked amount
            exceeds the capacity.
        spare: The same for lent units, which others may use.
        idle: Unit-ms without any use.
    """

    __slots__ = ("booked", "capacity", "idle", "lent", "served", "spare")

    def __init__(self) -> None:
        self.capacity = self.booked = self.lent = 0
        self.served = self.spare = self.idle = 0.0

    def advance(self, ms: int, is_open: bool) -> None:
        capacity, booked = self.capacity, self.booked
        if booked > capacity:
            self.served += ms * capacity / booked
            return
        self.served += ms
        if is_open:
            free = capacity - booked
            if self.lent:
                waiting = min(free, self.lent)
                self.spare += ms * waiting / self.lent
                free -= waiting
            self.idle += ms * free


class _Lane:
    """The resources that one payer holds on one worker for one use, and the clocks at its last settlement."""

    __slots__ = ("chips", "chips_served", "cpu", "cpu_served", "cpu_spare", "lent")

    def __init__(self) -> None:
        self.cpu = self.lent = self.chips = 0
        self.cpu_served = self.cpu_spare = self.chips_served = 0.0


class WorkerMeter:
    """The capacity of one worker over time: each moment belongs to attempts, to a reservation, or to nobody.

    A worker that is late or disconnected has only the capacity that its attempts hold.

    Args:
        group: The group of the worker.
        at_ms: Unix ms.
        add: Takes the measured amounts.

    Attributes:
        reserved: Chips that reservations hold and nobody uses, by tree.
    """

    __slots__ = ("_add", "_at_ms", "_chips", "_cpu", "_is_open", "_kept_for", "_lanes", "group", "reserved")

    def __init__(self, group: str, at_ms: int, add: Add) -> None:
        self.group = group
        self.reserved: dict[str, int] = {}
        self._add = add
        self._at_ms = at_ms
        self._cpu, self._chips = _Dimension(), _Dimension()
        self._is_open = False
        self._kept_for: Payer | None = None
        self._lanes: dict[tuple[Payer, Use], _Lane] = {}

    def set_capacity(self, cpu_millis: int, chips: int, is_open: bool, now_ms: int) -> None:
        """Change the worker's capacity, and whether its unused part counts."""
        self._advance(now_ms)
        self._cpu.capacity, self._chips.capacity, self._is_open = cpu_millis, chips, is_open

    def keep_for(self, payer: Payer | None, now_ms: int) -> None:
        """Count unused capacity as reserved for `payer`; None counts it as idle."""
        if payer != self._kept_for:
            self._advance(now_ms)
            self._settle_idle()
            self._kept_for = payer

    def reserve(self, chips: Mapping[str, int], now_ms: int) -> None:
        """Set the chips that reservations hold and nobody uses, by tree."""
        for tree in {*chips, *self.reserved}:
            more = chips.get(tree, 0) - self.reserved.get(tree, 0)
            if more:
                self.shift(payer_of(JobId(tree)), Use.RESERVED, now_ms, chips=more)
        self.reserved = {tree: count for tree, count in chips.items() if count}

    def shift(self, payer: Payer, use: Use, now_ms: int, cpu: int = 0, lent: int = 0, chips: int = 0) -> None:
        """Change what a payer holds.

        Args:
            payer: The payer.
            use: The use.
            now_ms: Unix ms.
            cpu: Thousandths of a core to add; may be negative.
            lent: Lent thousandths of a core to add.
            chips: Chips to add.
        """
        self._advance(now_ms)
        key = (payer, use)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
        self._settle(key, lane)
        lane.cpu += cpu
        lane.lent += lent
        lane.chips += chips
        self._cpu.booked += cpu
        self._cpu.lent += lent
        self._chips.booked += chips
        if not (lane.cpu or lane.lent or lane.chips):
            del self._lanes[key]

    def settle(self, now_ms: int) -> None:
        """Hand over everything measured until now."""
        self._advance(now_ms)
        for key, lane in self._lanes.items():
            self._settle(key, lane)
        self._settle_idle()

    def _advance(self, now_ms: int) -> None:
        passed = now_ms - self._at_ms
        if passed > 0:
            self._at_ms = now_ms
            self._cpu.advance(passed, self._is_open)
            self._chips.advance(passed, self._is_open)

    def _settle(self, key: tuple[Payer, Use], lane: _Lane) -> None:
        cpu, chips = self._cpu, self._chips
        cores = lane.cpu * (cpu.served - lane.cpu_served) + lane.lent * (cpu.spare - lane.cpu_spare)
        held = lane.chips * (chips.served - lane.chips_served)
        lane.cpu_served, lane.cpu_spare, lane.chips_served = cpu.served, cpu.spare, chips.served
        if cores or held:
            self._add(key[0], self.group, key[1], cores, held)

    def _settle_idle(self) -> None:
        cores, chips = self._cpu.idle, self._chips.idle
        if cores or chips:
            kept = self._kept_for
            self._add(kept or NOBODY, self.group, Use.IDLE if kept is None else Use.RESERVED, cores, chips)
            self._cpu.idle = self._chips.idle = 0.0
