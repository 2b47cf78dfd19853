"""The ledger's rows in memory: those that may still change."""

from typing import Final

from iris.core.ledger.meter import Payer
from iris.domain.usage import HOUR_MS, LedgerRow, Owner, Price, Use

SMALL_CORE_MS: Final = 60_000
"""A job that uses less in an hour, and no chips, has no row of its own: one core for a minute."""

_UNKNOWN: Final = Price()


class _Row:
    __slots__ = ("chips", "cores")

    def __init__(self) -> None:
        self.cores = [0.0] * len(Use)  # millicore-ms
        self.chips = [0.0] * len(Use)

    @property
    def is_small(self) -> bool:
        return not any(self.chips) and sum(self.cores) < SMALL_CORE_MS * 1000

    @property
    def is_open(self) -> bool:
        return bool(self.cores[Use.RUNNING] or self.chips[Use.RUNNING])

    def add(self, other: "_Row") -> None:
        for number in Use:
            self.cores[number] += other.cores[number]
            self.chips[number] += other.chips[number]

    def move(self, use: Use, cores: float, chips: float) -> tuple[float, float]:
        """Move up to these amounts from RUNNING to another use. Return the moved amounts."""
        cores, chips = min(cores, self.cores[Use.RUNNING]), min(chips, self.chips[Use.RUNNING])
        self.cores[Use.RUNNING] -= cores
        self.cores[use] += cores
        self.chips[Use.RUNNING] -= chips
        self.chips[use] += chips
        return cores, chips


class LedgerBook:
    """Amounts by hour and owner. Time never changes its hour; RUNNING time moves to another use within its hour.

    Attributes:
        prices: The price of each group that has one.
    """

    def __init__(self) -> None:
        self._rows: dict[int, dict[Owner, _Row]] = {}
        self._changed: set[tuple[int, Owner]] = set()
        self._groups: dict[str, None] = {}
        self._pools: dict[int, list[Owner]] = {}
        self._ended: set[int] = set()  # the hour of the last write, which may be over
        self.hour_ms = 0
        self.prices: dict[str, Price] = {}

    def add(self, payer: Payer, group: str, use: Use, cores: float, chips: float) -> None:
        """Add amounts to the current hour.

        Args:
            payer: The payer.
            group: The group of workers.
            use: The use.
            cores: Millicore-ms.
            chips: Chip-ms.
        """
        owner = Owner(*payer, group)
        row = self._rows.setdefault(self.hour_ms, {}).get(owner)
        if row is None:
            row = self._rows[self.hour_ms][owner] = _Row()
            self._groups[group] = None
        row.cores[use] += cores
        row.chips[use] += chips
        self._changed.add((self.hour_ms, owner))

    def decide(self, owner: Owner, use: Use, cores: float, chips: float, since_ms: int, until_ms: int) -> None:
        """Move an attempt's RUNNING time to its final use, spread over its hours. Without enough of it, move less.

        Args:
            owner: The attempt's payer and group.
            use: The final use.
            cores: Millicore-ms.
            chips: Chip-ms.
            since_ms: Start of the time.
            until_ms: End of the time.
        """
        span = max(until_ms - since_ms, 1)
        left = (cores, chips)
        for hour in range(since_ms - since_ms % HOUR_MS, until_ms + 1, HOUR_MS):
            part = (min(until_ms, hour + HOUR_MS) - max(since_ms, hour)) / span
            left = self._move(hour, owner, use, left, (cores * part, chips * part))
        # Amounts are settled once a minute, so a part may be in the next hour. Small jobs share a row after a restart.
        pool = owner._replace(job="")
        for hour in sorted(self._rows, reverse=True):
            if left[0] < 1 and left[1] < 1:
                return
            left = self._move(hour, owner, use, left, left)
            left = self._move(hour, pool, use, left, left)

    def decide_rest(self, payer: Payer, use: Use) -> None:
        """Move all RUNNING time of a payer: the time of its attempts before a restart of the controller."""
        for hour in self._rows:
            for group in self._groups:
                owner = Owner(*payer, group)
                row = self._rows[hour].get(owner)
                if row is not None and row.is_open:
                    row.move(use, row.cores[Use.RUNNING], row.chips[Use.RUNNING])
                    self._changed.add((hour, owner))

    def changed(self, counted_ms: int) -> list[LedgerRow]:
        """Return the rows to write, and forget those that will not change. Small jobs share their user's row.

        Args:
            counted_ms: The end of the counted time (Unix ms).
        """
        changed, self._changed = self._changed, set()
        hours = {hour for hour, _ in changed} | self._ended
        self._ended = {self.hour_ms}
        written = []
        for hour in sorted(hours & self._rows.keys()):
            written += self._write(hour, changed, counted_ms)
            if hour < self.hour_ms:
                self._trim(hour)
        return written

    def _write(self, hour: int, changed: set[tuple[int, Owner]], counted_ms: int) -> list[LedgerRow]:
        rows = self._rows[hour]
        # What was in a shared row before may have become large since.
        shared: dict[Owner, list[_Row]] = {pool: [] for pool in self._pools.get(hour, ())}
        written = []
        for owner, row in rows.items():
            if not owner.job or row.is_small:
                shared.setdefault(owner._replace(job=""), []).append(row)
            elif (hour, owner) in changed:
                written.append(self._written(hour, owner, [row], counted_ms))
        self._pools[hour] = list(shared)
        return [*written, *(self._written(hour, pool, members, counted_ms) for pool, members in shared.items())]

    def _trim(self, hour: int) -> None:
        """Forget the written rows of a past hour that have no RUNNING time."""
        rows = self._rows[hour]
        for owner, row in list(rows.items()):
            if owner.job and not row.is_open:
                del rows[owner]
                if row.is_small:
                    rows.setdefault(owner._replace(job=""), _Row()).add(row)
        if not any(row.is_open for row in rows.values()):
            del self._rows[hour]
            del self._pools[hour]

    def load(self, row: LedgerRow) -> None:
        """Take over a stored row."""
        there = self._rows.setdefault(row.start_ms, {})[row.owner] = _Row()
        there.cores = [1000.0 * amount for amount in row.core_ms]
        there.chips = [float(amount) for amount in row.chip_ms]
        self._groups[row.owner.group] = None

    def forget(self, before_ms: int) -> None:
        """Drop older hours: their time is final."""
        for hour in [hour for hour in self._rows if hour < before_ms]:
            del self._rows[hour]
            self._pools.pop(hour, None)
        self._changed = {(hour, owner) for hour, owner in self._changed if hour >= before_ms}

    def _move(
        self, hour: int, owner: Owner, use: Use, left: tuple[float, float], wanted: tuple[float, float]
    ) -> tuple[float, float]:
        row = self._rows.get(hour, {}).get(owner)
        if row is None or not row.is_open:
            return left
        cores, chips = row.move(use, min(left[0], wanted[0]), min(left[1], wanted[1]))
        self._changed.add((hour, owner))
        return left[0] - cores, left[1] - chips

    def _written(self, hour_ms: int, owner: Owner, rows: list[_Row], counted_ms: int) -> LedgerRow:
        total = _Row()
        for row in rows:
            total.add(row)
        cores = tuple(round(amount / 1000) for amount in total.cores)
        price = self.prices.get(owner.group, _UNKNOWN)
        return LedgerRow(hour_ms, owner, cores, tuple(map(round, total.chips)), counted_ms, price)
