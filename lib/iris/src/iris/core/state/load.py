"""Resources taken of one worker, kept up to date with every booking."""

from iris.core.state.demand import Demand
from iris.domain.ids import AttemptId, JobId, WorkerId, user_of
from iris.domain.resources import NOTHING, Device, Resources

Kind = tuple[str, Demand]
"""A user, and what each task asks for."""


class Booking:
    """The resources that one attempt holds on its worker, while it lives and while it is on its way out.

    Attributes:
        ahead: It was assigned ahead and is not known to have begun: it holds nothing. was_ahead: It was so once; its
            worker may have told of it before telling of the end in whose place it began.
        kind: User and demand: attempts of one kind may take each other's place.
    """

    __slots__ = (
        "ahead", "attempt_id", "found", "has_lent", "is_gang", "job_id", "kind", "resources", "stopping", "user",
        "waits", "was_ahead", "weight", "worker_id",
    )  # fmt: skip

    def __init__(
        self,
        attempt_id: AttemptId,
        job_id: JobId,
        worker_id: WorkerId,
        resources: Resources,
        is_gang: bool = False,
        weight: float = 0.0,
        kind: Kind | None = None,
        ahead: bool = False,
    ) -> None:
        self.ahead = self.was_ahead = ahead
        self.kind = kind
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
        """Cpu that the attempt holds now: nothing while it lends or has not begun."""
        return 0 if self.waits or self.ahead else self.resources.cpu_millis

    @property
    def held(self) -> Resources:
        """Resources that come free when the attempt ends."""
        return NOTHING if self.ahead else self.resources


class WorkerLoad:
    """Sums over the bookings of one worker.

    While attempts are there that were assigned ahead, lent cpu counts as taken: one of them may begin in the place of
    an attempt that lends and ends. For the same reason nothing is assigned ahead where an attempt has lent.

    Attributes:
        ahead: Bookings that have not begun, the first first. running: How many of each kind have, and are wanted.
        lenders: How many of the bookings have lent cpu.
    """

    __slots__ = (
        "ahead", "bookings", "cpu_millis", "device_count", "disk_bytes", "gang_attempts", "lenders", "lent_millis",
        "memory_bytes", "running", "stopping",
    )  # fmt: skip

    def __init__(self) -> None:
        self.ahead: dict[AttemptId, Booking] = {}
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

    def add(self, booking: Booking) -> None:
        """Take the booking's resources."""
        self.bookings[booking.attempt_id] = booking
        if booking.is_gang:
            self.gang_attempts[booking.job_id] = self.gang_attempts.get(booking.job_id, 0) + 1
        self.stopping += booking.stopping
        self.lenders += booking.has_lent
        if booking.ahead:
            self.ahead[booking.attempt_id] = booking
        else:
            if not booking.stopping:
                self._count_kind(booking.kind, 1)
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
        self.lenders -= booking.has_lent
        if booking.ahead:
            del self.ahead[booking.attempt_id]
        else:
            if not booking.stopping:
                self._count_kind(booking.kind, -1)
            self._shift(booking, -1)

    def begin(self, booking: Booking) -> None:
        """An attempt that was assigned ahead has begun."""
        del self.ahead[booking.attempt_id]
        booking.ahead = False
        if not booking.stopping:
            self._count_kind(booking.kind, 1)
        self._shift(booking, 1)

    def mark_stopping(self, booking: Booking, found: bool) -> None:
        """The booking's attempt is on its way out."""
        if not booking.stopping:
            self.stopping += 1
            if not booking.ahead:
                self._count_kind(booking.kind, -1)
        booking.stopping = True
        booking.found = found

    def set_waits(self, booking: Booking, waits: int) -> None:
        """Lend the booking's cpu while `waits` is above 0."""
        before = booking.cpu_millis
        booking.waits = waits
        if waits and not booking.has_lent:
            self.note_lent(booking)
        self.cpu_millis += booking.cpu_millis - before
        self.lent_millis -= booking.cpu_millis - before

    def note_lent(self, booking: Booking) -> None:
        """Its cpu is, or may be, in other hands."""
        self.lenders += not booking.has_lent
        booking.has_lent = True

    @property
    def taken_cpu_millis(self) -> int:
        """Cpu that is not to be given to anything new."""
        return self.cpu_millis + self.lent_millis if self.ahead else self.cpu_millis

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
        device = need.accelerator
        if device is not None:
            self.device_count += sign * device.count

    def has_room(self, need: Resources, capacity: Resources) -> bool:
        """True if a request fits beside the bookings; `need.fits(free)` without building the amounts."""
        if need.cpu_millis and need.cpu_millis > capacity.cpu_millis - self.taken_cpu_millis:
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
