"""The end of an interrupted run: notify its steps, end their processes, and keep their leases until then.

Another thread cannot be stopped. A function that does not check `step_lease().lost` continues. Its lease is kept and
renewed until the function or this process ends, so that no other run makes its output meanwhile.
"""

from __future__ import annotations

import atexit
import logging
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from marin.execution.lease.step_lease import StepLease
from marin.execution.log.step_log import StepLog
from marin.execution.report.error_text import stack_of_thread
from marin.execution.run.children import StepProcesses
from rigging.errors import MarinError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EndingTerms:
    """Time limits for the end of an interrupted run.

    Attributes:
        notice_seconds: Maximum time to wait for functions without jobs or processes, and for processes that may have
            received a terminal's Ctrl-C themselves.
        grace_seconds: Maximum time to wait for jobs and processes before the processes are killed.
    """

    notice_seconds: float = 1.0
    grace_seconds: float = 10.0


DEFAULT_ENDING = EndingTerms()


class StepInterrupted(MarinError, RuntimeError):
    """The run was interrupted while the step's function was running."""


@dataclass(frozen=True, slots=True)
class AtWork:
    """A running step.

    Attributes:
        lease: Its lease.
        log: Its log; None before the log exists.
        thread: The native id of its thread.
        in_process: Whether its function runs in that thread rather than in a job.
    """

    lease: StepLease
    log: StepLog | None
    thread: int
    in_process: bool

    def interrupt(self, *, by_keyboard: bool) -> None:
        """Tell the function that its output no longer counts, and log the reason."""
        self.lease.interrupt()
        if self.log is not None:
            self.log.add([f"=== interrupted: the run was stopped{' by Ctrl-C' if by_keyboard else ''}"])

    def leave(self) -> None:
        """Complete the log and write FAILED, in a process that exits while the function may still run."""
        if self.log is not None and self.lease.held:
            error = StepInterrupted("the run was interrupted, and its process ended before the step's function did")
            where = stack_of_thread(self.thread) if self.in_process else None
            if where is not None:
                error.add_note(f"The function was here:\n{where}")
            self.log.end(error)
        self.lease.leave()


class ExitLeases:
    """Steps whose functions may still run at process exit. They keep their leases until then.

    Args:
        register: Registers a function to call at process exit.
    """

    def __init__(self, register: Callable[[Callable[[], None]], object] = atexit.register) -> None:
        self._register = register
        self._guard = threading.Lock()
        self._steps: list[AtWork] = []

    def add(self, steps: Sequence[AtWork]) -> None:
        """Add steps, and forget those whose leases are no longer held."""
        with self._guard:
            if not self._steps:
                self._register(self.leave_all)
            self._steps = [step for step in [*self._steps, *steps] if step.lease.held]

    def leave_all(self) -> None:
        """Write FAILED for the steps that end with this process. Its exit frees their leases."""
        for step in self._steps:
            try:
                step.leave()
            except (OSError, MarinError) as error:
                logger.warning("could not write the status of %s: %s", step.lease.output_path, error)


EXIT_LEASES = ExitLeases()


def names_of(working: Sequence[AtWork], most: int = 10) -> str:
    """Return the number of steps and their names: `2 step(s): a, b`. Of many names, only the first are listed."""
    names = sorted(each.lease.label for each in working)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)} step(s): {', '.join(names[:most])}{more}"


def end_work(
    working: Sequence[AtWork],
    all_ended: Callable[[float], bool],
    *,
    jobs_are_stopping: bool,
    by_keyboard: bool,
    since: int,
    terms: EndingTerms = DEFAULT_ENDING,
    open_processes: Callable[[Iterable[int], int], StepProcesses] = StepProcesses,
    exit_leases: ExitLeases = EXIT_LEASES,
) -> None:
    """Notify steps that their run was interrupted, end their processes, and wait for them for a limited time.

    Args:
        working: The running steps.
        all_ended: Waits up to that many seconds for the end of all steps. Returns whether all have ended.
        jobs_are_stopping: Whether some steps run as jobs that have been asked to stop.
        by_keyboard: Whether the interrupt was Ctrl-C, which a terminal also sends to the processes.
        since: The start of the run, in clock ticks.
        terms: The time limits.
        open_processes: Finds the processes of threads, started since a time in clock ticks.
        exit_leases: Takes the leases of functions that continue.
    """
    for each in working:
        each.interrupt(by_keyboard=by_keyboard)
    exit_leases.add(working)
    threads = [each.thread for each in working if each.in_process]
    with open_processes(threads, since) if threads else open_processes((), 1 << 62) as processes:
        if processes:
            logger.warning("interrupted: ending the processes that steps have started: %s", processes.pids)
            end_processes(processes, terms, terms.notice_seconds if by_keyboard else 0.0)
            jobs_are_stopping = True
    if not all_ended(terms.grace_seconds if jobs_are_stopping else terms.notice_seconds):
        for each in working:
            if each.lease.held:
                logger.warning(
                    "interrupted, but the function of step %s still runs: no other run can make %s before it ends",
                    each.lease.label, each.lease.output_path,
                )  # fmt: skip


def end_processes(processes: StepProcesses, terms: EndingTerms = DEFAULT_ENDING, notice_seconds: float = 0.0) -> None:
    """Send SIGTERM to processes, wait for them, and send SIGKILL to the remaining ones.

    Args:
        processes: The processes.
        terms: The time limits.
        notice_seconds: Seconds to wait before the first signal.
    """
    try:
        if notice_seconds and processes.wait(notice_seconds):
            return
        processes.signal(signal.SIGTERM)
        processes.wait(terms.grace_seconds)
    finally:
        processes.signal(signal.SIGKILL)
