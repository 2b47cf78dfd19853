"""The end of a run that was interrupted: its steps are told, their processes ended, and their leases kept till then.

A thread cannot be stopped from outside. So a function that does not look at `step_lease().lost` goes on, and its output
is given to nobody else while it does: the lease is kept and renewed until it ends, or this process does.
"""

from __future__ import annotations

import atexit
import logging
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from marin.execution.lease.step_lease import StepLease
from marin.execution.run.children import StepProcesses
from rigging.errors import MarinError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EndingTerms:
    """How long the end of an interrupted run takes.

    Attributes:
        notice_seconds: How long functions are waited for that have nothing outside this process to be ended; and how
            long processes that may have got a terminal's Ctrl-C themselves are left alone.
        grace_seconds: How long jobs and processes are waited for before the processes are killed.
    """

    notice_seconds: float = 1.0
    grace_seconds: float = 10.0


DEFAULT_ENDING = EndingTerms()


@dataclass(frozen=True, slots=True)
class AtWork:
    """A step at work.

    Attributes:
        lease: Its lease.
        thread: The native id of its thread.
        in_process: Whether its function runs in that thread, and not in a job.
    """

    lease: StepLease
    thread: int
    in_process: bool


def end_work(
    working: Sequence[AtWork],
    all_ended: Callable[[float], bool],
    *,
    jobs_are_stopping: bool,
    by_keyboard: bool,
    since: int,
    terms: EndingTerms = DEFAULT_ENDING,
) -> None:
    """Tell steps that their run was interrupted, end their processes, and wait for them, but not for ever.

    Args:
        working: What is at work.
        all_ended: Waits so many seconds for all of it to end; whether it has.
        jobs_are_stopping: Some of it is done by jobs that have been asked to stop.
        by_keyboard: The interrupt was Ctrl-C, which a terminal also sends to the processes.
        since: When the run began, in clock ticks.
        terms: How long it may take.
    """
    for each in working:
        each.lease.interrupt()
    _leave_at_exit([each.lease for each in working])
    threads = [each.thread for each in working if each.in_process]
    with StepProcesses(threads, since) if threads else StepProcesses((), 1 << 62) as processes:
        if processes:
            _end_processes(processes, by_keyboard, terms)
            jobs_are_stopping = True
    if not all_ended(terms.grace_seconds if jobs_are_stopping else terms.notice_seconds):
        for each in working:
            if each.lease.held:
                logger.warning(
                    "interrupted, but the function of step %s still runs: nobody else gets %s before it ends",
                    each.lease.label, each.lease.output_path,
                )  # fmt: skip


def _end_processes(processes: StepProcesses, by_keyboard: bool, terms: EndingTerms) -> None:
    logger.warning("interrupted: ending the processes that steps have started: %s", processes.pids)
    try:
        if by_keyboard and processes.wait(terms.notice_seconds):
            return
        processes.signal(signal.SIGTERM)
        processes.wait(terms.grace_seconds)
    finally:
        processes.signal(signal.SIGKILL)


_guard = threading.Lock()
_left: list[StepLease] = []


def _leave_at_exit(leases: Sequence[StepLease]) -> None:
    with _guard:
        if not _left:
            atexit.register(_leave_all)
        _left[:] = [lease for lease in [*_left, *leases] if lease.held]


def _leave_all() -> None:
    """Write a true last word for what ends with this process; that it has ended frees the leases."""
    for lease in _left:
        try:
            lease.leave()
        except (OSError, MarinError) as error:
            logger.warning("could not write the status of %s: %s", lease.output_path, error)
