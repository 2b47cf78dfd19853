"""All bookings and their sums: loads of workers, stopping attempts, usage of users."""

from collections.abc import Iterable
from typing import TypeVar

from iris.core.state.booking import Booking
from iris.core.state.load import WorkerLoad
from iris.core.state.usage import UsageLedger
from iris.domain.ids import AttemptId, JobId, WorkerId, tree_of
from iris.domain.states import PriorityBand

Key = TypeVar("Key")


class Touched(dict[WorkerId, int]):
    """For each worker the number of its last change, in order of these numbers.

    Attributes:
        stamp: The number of the last change of any worker.
    """

    __slots__ = ("stamp",)

    def __init__(self) -> None:
        super().__init__()
        self.stamp = 0

    def note(self, worker_id: WorkerId) -> None:
        """Record that a worker, or what it holds, has changed."""
        self.pop(worker_id, None)
        self.stamp += 1
        self[worker_id] = self.stamp

    def since(self, stamp: int) -> list[WorkerId]:
        """Return the workers that changed after `stamp`, the last one first."""
        found = []
        for worker_id in reversed(self):
            if self[worker_id] <= stamp:
                break
            found.append(worker_id)
        return found


class BookingTable(dict[AttemptId, Booking]):
    """The resources held by each live or stopping attempt.

    Attributes:
        loads: The sums by worker. prefilled_on: Workers with prefilled attempts.
        stopping_counts, held_counts, touched: See ClusterView.
        bands: The number of bookings of each band.
        reserving: For each tree with reservations, the attempts that hold them, by worker.
    """

    __slots__ = (
        "_usage", "bands", "held_counts", "loads", "prefilled_on", "reserving", "stopping_counts", "touched",
    )  # fmt: skip

    def __init__(self, usage: UsageLedger) -> None:
        super().__init__()
        self._usage = usage
        self.loads: dict[WorkerId, WorkerLoad] = {}
        self.touched = Touched()
        self.bands: dict[PriorityBand, int] = {}
        self.prefilled_on: dict[WorkerId, None] = {}
        self.stopping_counts: dict[JobId, int] = {}
        self.held_counts: dict[JobId, int] = {}
        self.reserving: dict[str, dict[WorkerId, int]] = {}

    def hold(self, booking: Booking, at_ms: int) -> Booking:
        """Book an attempt."""
        self[booking.attempt_id] = booking
        self.loads[booking.worker_id].add(booking)
        self.touched.note(booking.worker_id)
        count(self.bands, booking.band, 1)
        if booking.reserves:
            self._count_reserving(booking, 1)
        if booking.prefilled:
            self.prefilled_on[booking.worker_id] = None
        else:
            self._usage.shift(booking.user, booking.weight, at_ms)
        return booking

    def begin(self, booking: Booking, at_ms: int) -> None:
        """Record that the attempt has started. Idempotent."""
        if booking.prefilled:
            load = self.loads[booking.worker_id]
            load.begin(booking)
            self.touched.note(booking.worker_id)
            self._trim_prefilled_on(booking.worker_id, load)
            self._usage.shift(booking.user, booking.weight, at_ms)

    def release(self, name: AttemptId, at_ms: int) -> None:
        """Release an attempt's resources."""
        booking = self.pop(name)
        load = self.loads[booking.worker_id]
        load.remove(booking)
        self.touched.note(booking.worker_id)
        count(self.bands, booking.band, -1)
        if booking.reserves:
            self._count_reserving(booking, -1)
        if booking.prefilled:
            self._trim_prefilled_on(booking.worker_id, load)
        else:
            self._usage.shift(booking.user, -booking.weight, at_ms)
        if booking.stopping:
            self._count_stopping(booking, -1)

    def mark_stopping(self, booking: Booking, found: bool) -> None:
        """Record that the attempt is stopping. Idempotent."""
        if not booking.stopping:
            self.loads[booking.worker_id].mark_stopping(booking, found)
            self.touched.note(booking.worker_id)
            self._count_stopping(booking, 1)

    def move_band(self, names: Iterable[AttemptId], band: PriorityBand) -> None:
        """Move those of these attempts that are booked to another band."""
        for booking in filter(None, map(self.get, names)):
            count(self.bands, booking.band, -1)
            count(self.bands, band, 1)
            booking.band = band
            self.touched.note(booking.worker_id)

    def _trim_prefilled_on(self, worker_id: WorkerId, load: WorkerLoad) -> None:
        if not load.prefilled:
            del self.prefilled_on[worker_id]

    def _count_reserving(self, booking: Booking, step: int) -> None:
        tree = tree_of(booking.job_id)
        workers = self.reserving.setdefault(tree, {})
        count(workers, booking.worker_id, step)
        if not workers:
            del self.reserving[tree]

    def _count_stopping(self, booking: Booking, step: int) -> None:
        count(self.stopping_counts, booking.job_id, step)
        if not booking.found:
            count(self.held_counts, booking.job_id, step)


def count(counts: dict[Key, int], key: Key, step: int) -> None:
    """Change a count; an absent count is 0.

    Args:
        counts: The counts, which are modified.
        key: The count to change.
        step: The amount to add.
    """
    number = counts.get(key, 0) + step
    if number:
        counts[key] = number
    else:
        del counts[key]
