"""One attempt to make one output: its lease and its status, changed together, in as few storage operations as possible.

On local files both change under the kernel lock of the lease, so that no status is ever written by somebody who lost
the lease. On object stores that can write on condition, each status is written on condition that the status before it
is still the one this attempt saw or wrote: whoever took the lease over has written its own, and the late write fails.
Elsewhere the lease is as good as `rigging.distributed_lock` says.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from marin.execution.lease.fencing import LeaseToken
from marin.execution.lease.status_file import check_status
from marin.execution.lease.status_words import STATUS_FAILED
from rigging.clock import SYSTEM_CLOCK, Clock
from rigging.distributed_lock import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, LeaseLostError
from rigging.errors import InvalidRequest, MarinError
from rigging.filesystem import write_bytes_atomic
from rigging.filesystem.location import path_in
from rigging.lease.identity import acquisition_id, give_up
from rigging.lease.objects import RETRY_SECONDS
from rigging.lease.staleness import LeaseObserver

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How leases are kept.

    Attributes:
        renew_seconds: Between renewals.
        timeout_seconds: Without a renewal, after which others may take the lease; one value for all that share storage.
        patience_seconds: How long storage that does not answer is tried before something is given up.
        clock: For tests.
        new_id: Gives each acquisition an id; for tests, which play other machines.
    """

    renew_seconds: float = HEARTBEAT_INTERVAL
    timeout_seconds: float = HEARTBEAT_TIMEOUT
    patience_seconds: float = RETRY_SECONDS
    clock: Clock = SYSTEM_CLOCK
    new_id: Callable[[], str] = acquisition_id

    def __post_init__(self) -> None:
        if not 0 < self.renew_seconds < self.timeout_seconds:
            raise InvalidRequest(
                f"renew_seconds={self.renew_seconds}: must be above 0 and below timeout_seconds={self.timeout_seconds}"
            )


DEFAULT_TERMS = LeaseTerms()


class StepLease(ABC):
    """The lease and the status of one output path, for one attempt at a time.

    Args:
        output_path: The output path.
        label: What to call the step in messages.
        terms: How the lease is kept.

    Attributes:
        lost_event: Set as soon as the lease is lost, or could not be renewed for so long that others may take it.
    """

    def __init__(self, output_path: str, label: str, terms: LeaseTerms) -> None:
        self.output_path = output_path
        self.label = label
        self.terms = terms
        self.lost_event = threading.Event()
        # Renewals, the end and an interrupt come from different threads.
        self._turn = threading.Lock()
        self._held = False
        self._interrupted = False
        self._renewed_at = 0.0
        self._worker_id = ""
        # What was written about the step, for a lease that goes on although its directory was removed.
        self._written: dict[str, bytes] = {}

    @property
    def lost(self) -> bool:
        """Whether the lease is lost: what is made now does not count, and another may be making it."""
        return self.lost_event.is_set()

    def check(self) -> None:
        """Raise LeaseLostError when the lease is lost."""
        if self._interrupted:
            raise LeaseLostError(f"step {self.label}: its run was interrupted, so what it makes does not count")
        if self.lost:
            raise LeaseLostError(
                f"step {self.label}: its lease on {self.output_path} was lost, so another run may be making this output"
            )

    def begin(self, *, force_run_failed: bool, is_fresh: bool = False) -> bool:
        """Take the lease and write RUNNING, unless somebody else is at work on this output.

        Args:
            force_run_failed: Whether an output that failed before is to be tried again.
            is_fresh: There was no status a moment ago; saves a request where reading costs one.

        Returns:
            Whether the lease is held now. If not, see `is_free`.

        Raises:
            StepAlreadyDone: The output is there; the lease is not held.
            PreviousTaskFailedError: It failed previously, and `force_run_failed` is off; the lease is not held.
        """
        with self._turn:
            started = self.terms.clock.monotonic()
            self.lost_event.clear()
            self._interrupted = False
            self._written.clear()
            self._held = self._begin(force_run_failed, is_fresh)
            self._renewed_at = started
            return self._held

    def write(self, name: str, content: bytes) -> None:
        """Write one of the files in which a step tells of itself, atomically.

        Raises:
            LeaseLostError: The lease is lost; nothing is written.
        """
        with self._turn:
            self._ensure_held()
            try:
                self._write(name, content)
            except LeaseLostError:
                self.lost_event.set()
                raise
            self._written[name] = content

    def remove(self, name: str) -> None:
        """Remove such a file, if it is there; raises LeaseLostError when the lease is lost."""
        with self._turn:
            self._ensure_held()
            self.token().remove(name)

    def token(self) -> LeaseToken:
        """What proves to storage that this lease is held, for the job that does the step's work."""
        return LeaseToken(self.output_path, self._worker_id, self.terms.patience_seconds)

    def end(self, status: str) -> None:
        """Write the last word and give the lease up; nothing is written without the lease.

        Raises:
            LeaseLostError: The lease was lost on the way; the status is its new holder's.
        """
        with self._turn:
            self._ensure_held()
            self._held = False
            # What others were told is lost stays lost, even if nobody came to take it.
            if not self._end_or_give_up(STATUS_FAILED if self.lost else status):
                self.lost_event.set()
            self.check()

    def interrupt(self) -> None:
        """Tell the function that its run was interrupted: what it makes counts no more; the lease is kept meanwhile."""
        self._interrupted = True
        self.lost_event.set()

    def leave(self) -> None:
        """Write FAILED, if the lease is held, for a process that ends while the function may still be at work.

        The lock file stays: whoever sees that the process has ended need not wait, and nobody begins before it has.
        """
        with self._turn:
            held, self._held = self._held, False
            self.lost_event.set()  # keeps the function's thread from writing anything
            if held:
                self._leave(STATUS_FAILED)

    @property
    def held(self) -> bool:
        """Whether the lease is held as far as is known, by an interrupted run, too."""
        return self._held

    def _end_or_give_up(self, status: str) -> bool:
        try:
            return self._end(status)
        except BaseException:
            give_up(self._worker_id)  # the lock may still be there, and this process may live on for long
            raise

    def renew(self) -> None:
        """Renew the lease now; raises LeaseLostError, and sets `lost_event`, when it is not held any more."""
        with self._turn:
            if not self._held:
                return
            started = self.terms.clock.monotonic()
            if self._renew():
                self._renewed_at = started
                return
            self._held = False
            self.lost_event.set()
        self.check()

    def _ensure_held(self) -> None:
        if not self._held:
            self.lost_event.set()
            self.check()

    def seconds_left(self) -> float:
        """For how long nobody may take the lease even if it is not renewed; below 0 when they may already."""
        return self._renewed_at + self.terms.timeout_seconds - self.terms.clock.monotonic()

    def observer(self, location: str) -> LeaseObserver:
        """What sees by these terms whether somebody holds the lease whose lock file is at `location`."""
        return LeaseObserver(location, self.terms.timeout_seconds, clock=self.terms.clock)

    @abstractmethod
    def is_free(self) -> bool:
        """Whether `begin` may succeed now: nobody holds the lease and renews it."""

    @abstractmethod
    def _begin(self, force_run_failed: bool, is_fresh: bool) -> bool: ...

    @abstractmethod
    def _write(self, name: str, content: bytes) -> None:
        """Write a file of the output path; raises LeaseLostError when the lease was not held any more."""

    @abstractmethod
    def _end(self, status: str) -> bool:
        """Write the status and give the lease up; False when it was not held any more."""

    @abstractmethod
    def _leave(self, status: str) -> None:
        """Write the status if the lease is still held, and leave the lock where it is."""

    @abstractmethod
    def _renew(self) -> bool:
        """Renew; False when the lease was not held any more."""

    def _check_status(self, status: str | None, force_run_failed: bool) -> None:
        check_status(status, self.label, self.output_path, force_run_failed=force_run_failed)


def end_failed(lease: StepLease, error: BaseException) -> None:
    """Write FAILED for an attempt that raised `error`, and give its lease up.

    Raises:
        LeaseLostError: The lease was lost, with `error` as cause: the output is another's to speak about now.
    """
    try:
        lease.end(STATUS_FAILED)
    except LeaseLostError as lost:
        raise lost from error
    except (OSError, MarinError) as trouble:
        # On a full disk, say: why the step failed is what counts, and its status is that of a run that was killed.
        logger.error("step %s: could not write FAILED to %s: %s", lease.label, lease.output_path, trouble)


class _NoLease(StepLease):
    """What a function sees that runs outside of any run: never lost."""

    def is_free(self) -> bool:
        return True

    def _begin(self, *_: object) -> bool:
        return True

    def _end(self, *_: object) -> bool:
        return True

    def _leave(self, *_: object) -> None: ...

    def _write(self, name: str, content: bytes) -> None:
        write_bytes_atomic(path_in(self.output_path, name), content)

    def _renew(self) -> bool:
        return True


_NO_LEASE = _NoLease("", "(none)", DEFAULT_TERMS)
_current: contextvars.ContextVar[StepLease] = contextvars.ContextVar("marin_step_lease", default=_NO_LEASE)


def step_lease() -> StepLease:
    """The lease of the step whose function this is called in; of use to functions that run for long in this process.

    Look at `.lost` now and then, or call `.check()`, and stop: a step that lost its lease cannot succeed any more, and
    another run may be writing to the same output path.
    """
    return _current.get()


def set_step_lease(lease: StepLease) -> None:
    """Make `step_lease()` give this lease in the present context."""
    _current.set(lease)
