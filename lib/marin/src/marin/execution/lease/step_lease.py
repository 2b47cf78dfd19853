"""The lease and status of one attempt at one output, changed together in as few storage operations as possible.

On local files both change under the lease's kernel lock, so that an attempt that lost the lease never writes a status.
On object stores with conditional writes, writing a status requires that the previous status is the one this attempt saw
or wrote. An attempt that took over the lease has written its own status, so the late write fails. On other stores the
lease has the guarantees of `rigging.distributed_lock`.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from marin.execution.lease.fencing import LeaseToken
from marin.execution.lease.status_file import check_status
from marin.execution.lease.status_words import STATUS_FAILED
from marin.full_disk import full_disk
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
    """The timings of leases.

    Attributes:
        renew_seconds: Time between renewals.
        timeout_seconds: Time without a renewal after which others may take the lease. All users of the storage must use
            the same value.
        patience_seconds: How long to retry requests to storage that does not answer.
        clock: The clock; replaced in tests.
        new_id: Returns an id for each acquisition. Replaced in tests that simulate other machines.
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
        label: The step's name in messages.
        terms: The timings of the lease.

    Attributes:
        lost_event: Set when the lease is lost, or has not been renewed for so long that others may take it.
    """

    def __init__(self, output_path: str, label: str, terms: LeaseTerms) -> None:
        self.output_path = output_path
        self.label = label
        self.terms = terms
        self.lost_event = threading.Event()
        # Renewals, the end and an interrupt come from different threads.
        self._turn = threading.RLock()
        self._held = False
        self._interrupted: str | None = None
        self._expired = False
        self._renewed_at = 0.0
        self._worker_id = ""
        # Files written about the step, for a lease that goes on although its directory was removed.
        self._written: dict[str, bytes] = {}

    @property
    def lost(self) -> bool:
        """Whether the lease is lost: further work does not count, and another attempt may be making the output."""
        return self.lost_event.is_set()

    def check(self) -> None:
        """Raise LeaseLostError if the lease is lost."""
        if self._interrupted is not None:
            raise LeaseLostError(f"step {self.label}: {self._interrupted}, so its output does not count")
        if self.lost:
            raise LeaseLostError(
                f"step {self.label}: its lease on {self.output_path} was lost, so another run may be making this output"
            )

    def why_lost(self) -> str | None:
        """Return why writes to the output are no longer allowed; None while the lease is held.

        An interrupted function, or one past its timeout, may still write: no other attempt starts before it ends.
        """
        if self._interrupted is None and self.lost:
            return f"the lease of step {self.label} was lost, and another run may be making this output"
        if self._held and self.seconds_left() <= 0:
            seconds = self.terms.timeout_seconds - self.seconds_left()
            return (
                f"the lease of step {self.label} was not renewed for {seconds:.0f} s (this process was stopped, or "
                "could not reach its storage), so another run may be making this output"
            )
        return None

    def check_write(self, url: str) -> None:
        """Raise LeaseLostError if writes to the output are no longer allowed."""
        reason = self.why_lost()
        if reason is not None:
            raise LeaseLostError(f"{url} is not written: {reason}")

    def together(self) -> AbstractContextManager[None]:
        """Context manager: run `begin`, `write` and `end` in the block under a single exclusion of the lease.

        On local files this takes one kernel lock and one check of the lease instead of one for each call. Others wait
        for the end of the block, so keep it fast.
        """
        return contextlib.nullcontext()

    def begin(self, *, force_run_failed: bool, is_fresh: bool = False) -> bool:
        """Take the lease and write RUNNING, unless another attempt holds it.

        Args:
            force_run_failed: Whether to retry an output that failed before.
            is_fresh: Whether there was no status a moment ago, which saves a request on object stores.

        Returns:
            True if the lease is now held. If not, see `is_free`.

        Raises:
            StepAlreadyDone: The output exists. The lease is not held.
            PreviousTaskFailedError: The last attempt failed, and `force_run_failed` is off. The lease is not held.
        """
        with self._turn:
            started = self.terms.clock.monotonic()
            self.lost_event.clear()
            self._interrupted = None
            self._expired = False
            self._written.clear()
            self._held = self._begin(force_run_failed, is_fresh)
            self._renewed_at = started
            return self._held

    def write(self, name: str, content: bytes) -> None:
        """Write one of the step's own files (info, result), atomically.

        Raises:
            LeaseLostError: The lease is lost. Nothing is written.
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
        """Remove one of the step's own files, if it exists. Raise LeaseLostError if the lease is lost."""
        with self._turn:
            self._ensure_held()
            self.token().remove(name)

    def token(self) -> LeaseToken:
        """Return the proof that this lease is held, for the job that does the step's work."""
        return LeaseToken(self.output_path, self._worker_id, self.terms.patience_seconds)

    def end(self, status: str) -> None:
        """Write the final status and release the lease. Without the lease nothing is written.

        Raises:
            LeaseLostError: The lease was lost meanwhile. The new holder's status stays.
        """
        with self._turn:
            self._ensure_held()
            self._held = False
            # A lease that was reported as lost stays lost, even if no other attempt took it.
            was_held = self._end_or_give_up(STATUS_FAILED if self.lost else status)
            if not was_held:
                self.lost_event.set()
            if not (was_held and self._expired):
                self.check()

    def interrupt(self) -> None:
        """Mark the lease as lost for the function of an interrupted run. The lease is kept until the function ends."""
        self._interrupted = "its run was interrupted"
        self.lost_event.set()

    def expire(self, reason: str) -> None:
        """Mark the lease as lost for a function past its timeout. The lease is kept until `end`, which writes
        FAILED."""
        self._interrupted = reason
        self._expired = True
        self.lost_event.set()

    def leave(self) -> None:
        """Write FAILED, if the lease is held, in a process that exits while the function may still run.

        The lock file stays, so that no other attempt starts before the process has ended.
        """
        with self._turn:
            held, self._held = self._held, False
            self.lost_event.set()  # keeps the function's thread from writing anything
            if held:
                self._leave(STATUS_FAILED)

    @property
    def held(self) -> bool:
        """Whether the lease is held as far as known, also by an interrupted run."""
        return self._held

    def _end_or_give_up(self, status: str) -> bool:
        try:
            return self._end(status)
        except BaseException:
            give_up(self._worker_id)  # the lock may still be there, and this process may go on for long
            raise

    def renew(self) -> None:
        """Renew the lease now. Raise LeaseLostError, and set `lost_event`, if it is no longer held."""
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
        """Return the seconds until others may take the lease if it is not renewed; negative if they already may."""
        return self._renewed_at + self.terms.timeout_seconds - self.terms.clock.monotonic()

    def observer(self, location: str) -> LeaseObserver:
        """Return an observer that decides, by these terms, whether the lock file at `location` is held."""
        return LeaseObserver(location, self.terms.timeout_seconds, clock=self.terms.clock)

    @abstractmethod
    def is_free(self) -> bool:
        """Return whether `begin` may succeed now: no attempt holds and renews the lease."""

    @abstractmethod
    def _begin(self, force_run_failed: bool, is_fresh: bool) -> bool: ...

    @abstractmethod
    def _write(self, name: str, content: bytes) -> None:
        """Write a file of the output path. Raise LeaseLostError if the lease is no longer held."""

    @abstractmethod
    def _end(self, status: str) -> bool:
        """Write the status and release the lease. Return False if it was no longer held."""

    @abstractmethod
    def _leave(self, status: str) -> None:
        """Write the status if the lease is still held, and leave the lock in place."""

    @abstractmethod
    def _renew(self) -> bool:
        """Renew the lease. Return False if it was no longer held."""

    def _check_status(self, status: str | None, force_run_failed: bool) -> None:
        check_status(status, self.label, self.output_path, force_run_failed=force_run_failed)


def end_failed(lease: StepLease, error: BaseException) -> None:
    """Write FAILED for an attempt that raised `error`, and release its lease.

    Raises:
        LeaseLostError: The lease was lost, with `error` as the cause. The new holder's status stays.
    """
    try:
        lease.end(STATUS_FAILED)
    except LeaseLostError as lost:
        raise lost from error
    except (OSError, MarinError) as trouble:
        # On a full disk, say. The step's own error matters more; its status stays that of a killed run.
        told = full_disk(trouble, lease.output_path) or trouble
        logger.error("step %s: could not write FAILED to %s: %s", lease.label, lease.output_path, told)


class _NoLease(StepLease):
    """The lease of a function outside of any run, which is never lost."""

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
    """Return the lease of the calling step, for long-running functions in this process.

    Check `.lost` regularly, or call `.check()`, and stop: a step that lost its lease cannot succeed any more, and
    another run may be writing to the same output path.
    """
    return _current.get()


def set_step_lease(lease: StepLease) -> None:
    """Make `step_lease()` return this lease in the current context."""
    _current.set(lease)
