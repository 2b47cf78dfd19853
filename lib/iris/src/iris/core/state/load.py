"""Allocated resources of one worker, updated with every booking."""

from iris.core.state.booking import Booking, Kind
from iris.domain.ids import AttemptId, JobId, tree_of
from iris.domain.resources import Device, Resources


class WorkerLoad:
    """Sums over the bookings of one worker.

    While there are prefilled attempts, lent CPUs count as taken, because a prefilled attempt may start when the lender
    ends. For the same reason nothing is prefilled where an attempt has lent CPUs.

    Attributes:
        prefilled: Bookings that have not started, in order. running: The number of started, wanted attempts of each
        kind.
        lenders: The number of bookings that have lent CPUs.
        order: Grows with the order in which workers were discovered.
        reserved: Accelerators of each tree that has a reservation here. gang_attempts: Attempts of gangs, except
        reservations, which use nothing.
    """

    __slots__ = (
        "bookings", "cpu_millis", "device_count", "disk_bytes", "gang_attempts", "lenders", "lent_millis",
        "memory_bytes", "order", "prefilled", "reserved", "running", "stopping",
    )  # fmt: skip

    def __init__(self, order: int = 0) -> None:
        self.order = order
        self.prefilled: dict[AttemptId, Booking] = {}
        self.running: dict[Kind, int] = {}
        self.lenders = 0
        self.lent_millis = 0
        self.gang_attempts: dict[JobId, int] = {}  # of each gang that has any here
        self.stopping = 0  # how many of the bookings are on their way out
        self.bookings: dict[AttemptId, Booking] = {}
        self.cpu_millis = 0
        self.memory_bytes = 0
        self.disk_bytes = 0
        self.device_count = 0
        self.reserved: dict[str, TreeDevices] = {}

    def add(self, booking: Booking) -> None:
        """Add a booking."""
        self.bookings[booking.attempt_id] = booking
        if booking.is_gang and not booking.reserves:
            self.gang_attempts[booking.job_id] = self.gang_attempts.get(booking.job_id, 0) + 1
        self.stopping += booking.stopping
        self.lenders += booking.has_lent
        if booking.prefilled:
            self.prefilled[booking.attempt_id] = booking
        else:
            if not booking.stopping:
                self._count_kind(booking.kind, 1)
            self._shift(booking, 1)

    def remove(self, booking: Booking) -> None:
        """Remove a booking."""
        del self.bookings[booking.attempt_id]
        if booking.is_gang and not booking.reserves:
            left = self.gang_attempts[booking.job_id] - 1
            if left:
                self.gang_attempts[booking.job_id] = left
            else:
                del self.gang_attempts[booking.job_id]
        self.stopping -= booking.stopping
        self.lenders -= booking.has_lent
        if booking.prefilled:
            del self.prefilled[booking.attempt_id]
        else:
            if not booking.stopping:
                self._count_kind(booking.kind, -1)
            self._shift(booking, -1)

    def begin(self, booking: Booking) -> None:
        """Record that a prefilled attempt has started."""
        del self.prefilled[booking.attempt_id]
        booking.prefilled = False
        if not booking.stopping:
            self._count_kind(booking.kind, 1)
        self._shift(booking, 1)

    def mark_stopping(self, booking: Booking, found: bool) -> None:
        """Record that the booking's attempt is stopping."""
        if not booking.stopping:
            self.stopping += 1
            if not booking.prefilled:
                self._count_kind(booking.kind, -1)
                self._stop_lending(booking)
        booking.stopping = True
        booking.found = found

    def set_waits(self, booking: Booking, waits: int) -> None:
        """Lend the booking's CPUs while `waits` is above 0."""
        before = booking.cpu_millis
        booking.waits = waits
        if waits and not booking.has_lent:
            self.note_lent(booking)
        self.cpu_millis += booking.cpu_millis - before
        self.lent_millis -= booking.cpu_millis - before

    def note_lent(self, booking: Booking) -> None:
        """Record that others use, or may use, the booking's CPUs."""
        self.lenders += not booking.has_lent
        booking.has_lent = True

    @property
    def taken_cpu_millis(self) -> int:
        """Return the CPUs that are not available for new attempts."""
        return self.cpu_millis + self.lent_millis if self.prefilled else self.cpu_millis

    def _count_kind(self, kind: Kind | None, step: int) -> None:
        if kind is not None:
            count = self.running.get(kind, 0) + step
            if count:
                self.running[kind] = count
            else:
                del self.running[kind]

    def _shift(self, booking: Booking, sign: int) -> None:
        need = booking.resources
        self.cpu_millis += sign * booking.cpu_millis
        if booking.waits:
            self.lent_millis += sign * need.cpu_millis
        self.memory_bytes += sign * need.memory_bytes
        self.disk_bytes += sign * need.disk_bytes
        if (device := need.accelerator) is not None:
            self._shift_devices(booking, sign * device.count)

    def _shift_devices(self, booking: Booking, count: int) -> None:
        if not booking.reserves and not self.reserved:
            self.device_count += count
            return
        tree = tree_of(booking.job_id)
        known = self.reserved.get(tree)
        if known is None and not booking.reserves:
            self.device_count += count
            return
        if known is None:
            known = self.reserved[tree] = TreeDevices(self._devices_used_by(tree))
        before = known.taken
        known.shift(booking, count)
        self.device_count += known.taken - before
        if not known.held:
            del self.reserved[tree]

    def _devices_used_by(self, tree: str) -> int:
        used = 0
        for booking in self.bookings.values():
            device = booking.resources.accelerator
            # None of a prefilled one: such a task has no accelerator.
            if device is not None and not booking.reserves and tree_of(booking.job_id) == tree:
                used += device.count
        return used

    def _stop_lending(self, booking: Booking) -> None:
        device = booking.resources.accelerator
        if booking.reserves and device is not None:
            self.reserved[tree_of(booking.job_id)].stopping += device.count

    def lent_devices(self, job_id: JobId) -> int:
        """Return the unused accelerators that reservations hold for a job's tree."""
        known = self.reserved.get(tree_of(job_id)) if self.reserved else None
        return known.lent if known is not None else 0

    def has_room(self, need: Resources, capacity: Resources, lent_devices: int = 0) -> bool:
        """Return whether a request fits beside the bookings, like `need.fits(free)` but faster.

        Args:
            need: The request of one task.
            capacity: The worker's capacity.
            lent_devices: Accelerators that count as free for the request (see `lent_devices`).
        """
        if need.cpu_millis and need.cpu_millis > capacity.cpu_millis - self.taken_cpu_millis:
            return False
        if need.memory_bytes and need.memory_bytes > capacity.memory_bytes - self.memory_bytes:
            return False
        if need.disk_bytes and need.disk_bytes > capacity.disk_bytes - self.disk_bytes:
            return False
        wanted, have = need.accelerator, capacity.accelerator
        if wanted is None:
            return True
        return (
            have is not None and wanted.accepts(have) and wanted.count <= have.count - self.device_count + lent_devices
        )

    def committed(self, capacity: Resources) -> Resources:
        """Return the sums as an amount, with the accelerators of the worker's capacity."""
        have = capacity.accelerator
        device = Device(have.kind, have.variant, self.device_count) if have is not None else None
        return Resources(self.cpu_millis, self.memory_bytes, self.disk_bytes, device)


class TreeDevices:
    """Accelerators of one tree of jobs on one worker. The tree's jobs use the accelerators of its reservation.

    Attributes:
        held: The number that reservations hold. stopping: How many of these end soon. used: The number that the tree's
        other jobs use.
    """

    __slots__ = ("held", "stopping", "used")

    def __init__(self, used: int) -> None:
        self.held = 0
        self.stopping = 0
        self.used = used

    @property
    def taken(self) -> int:
        """Return the accelerators that are not available to other trees."""
        return max(self.held, self.used)

    @property
    def lent(self) -> int:
        """Return the held accelerators that are available to further jobs of the tree."""
        return max(0, self.held - self.stopping - self.used)

    def shift(self, booking: Booking, count: int) -> None:
        """Add a booking's accelerators to the counts; negative numbers release them."""
        if booking.reserves:
            self.held += count
            self.stopping += count if booking.stopping else 0
        else:
            self.used += count
