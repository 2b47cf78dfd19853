"""What is taken of one worker, kept up to date with every booking."""

from iris.domain.ids import AttemptId, JobId, WorkerId, user_of
from iris.domain.resources import Device, Resources


class Booking:
    """The resources that one attempt holds on its worker, while it lives and while it is on its way out."""

    __slots__ = (
        "attempt_id", "found", "has_lent", "is_gang", "job_id", "resources", "stopping", "user", "waits", "weight",
        "worker_id",
    )  # fmt: skip

    def __init__(
        self,
        attempt_id: AttemptId,
        job_id: JobId,
        worker_id: WorkerId,
        resources: Resources,
        is_gang: bool = False,
        weight: float = 0.0,
    ) -> None:
        self.is_gang = is_gang
        self.weight = weight
        self.user = user_of(job_id)
        self.attempt_id = attempt_id
        self.job_id = job_id
        self.worker_id = worker_id
        self.resources = resources
        self.stopping = False
        self.found = False  # see Stopping.found
        self.waits = 0  # open waits for children; above 0 the cpu is lent
        self.has_lent = False

    @property
    def cpu_millis(self) -> int:
        """Cpu that the attempt holds now: nothing while it lends."""
        return 0 if self.waits else self.resources.cpu_millis


class WorkerLoad:
    """Sums over the bookings of one worker."""

    __slots__ = ("bookings", "cpu_millis", "device_count", "disk_bytes", "gang_attempts", "memory_bytes", "stopping")

    def __init__(self) -> None:
        self.gang_attempts: dict[JobId, int] = {}  # of each gang that has any here
        self.stopping = 0  # how many of the bookings are on their way out
        self.bookings: dict[AttemptId, Booking] = {}
        self.cpu_millis = 0
        self.memory_bytes = 0
        self.disk_bytes = 0
        self.device_count = 0

    def add(self, booking: Booking) -> None:
        """Take the booking's resources."""
        self.bookings[booking.attempt_id] = booking
        if booking.is_gang:
            self.gang_attempts[booking.job_id] = self.gang_attempts.get(booking.job_id, 0) + 1
        self.stopping += booking.stopping
        self._shift(booking, 1)

    def remove(self, booking: Booking) -> None:
        """Give the booking's resources back."""
        del self.bookings[booking.attempt_id]
        if booking.is_gang:
            left = self.gang_attempts[booking.job_id] - 1
            if left:
                self.gang_attempts[booking.job_id] = left
            else:
                del self.gang_attempts[booking.job_id]
        self.stopping -= booking.stopping
        self._shift(booking, -1)

    def mark_stopping(self, booking: Booking, found: bool) -> None:
        """The booking's attempt is on its way out."""
        self.stopping += not booking.stopping
        booking.stopping = True
        booking.found = found

    def set_waits(self, booking: Booking, waits: int) -> None:
        """Lend the booking's cpu while `waits` is above 0."""
        before = booking.cpu_millis
        booking.waits = waits
        booking.has_lent = booking.has_lent or waits > 0
        self.cpu_millis += booking.cpu_millis - before

    def _shift(self, booking: Booking, sign: int) -> None:
        need = booking.resources
        self.cpu_millis += sign * booking.cpu_millis
        self.memory_bytes += sign * need.memory_bytes
        self.disk_bytes += sign * need.disk_bytes
        device = need.accelerator
        if device is not None:
            self.device_count += sign * device.count

    def has_room(self, need: Resources, capacity: Resources) -> bool:
        """Whether a request fits beside what is taken; `need.fits(free)` without building the amounts."""
        if need.cpu_millis and need.cpu_millis > capacity.cpu_millis - self.cpu_millis:
            return False
        if need.memory_bytes and need.memory_bytes > capacity.memory_bytes - self.memory_bytes:
            return False
        if need.disk_bytes and need.disk_bytes > capacity.disk_bytes - self.disk_bytes:
            return False
        wanted, have = need.accelerator, capacity.accelerator
        if wanted is None:
            return True
        return have is not None and wanted.accepts(have) and wanted.count <= have.count - self.device_count

    def committed(self, capacity: Resources) -> Resources:
        """The sums as an amount; accelerators are those of the worker's capacity."""
        have = capacity.accelerator
        device = Device(have.kind, have.variant, self.device_count) if have is not None else None
        return Resources(self.cpu_millis, self.memory_bytes, self.disk_bytes, device)
