"""The threads of a run: the rule for their number (`Crew`), and the threads themselves (`Workers`)."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rigging.errors import InvalidRequest

if TYPE_CHECKING:
    from marin.execution.run.attempt import Attempt
    from marin.execution.run.step_task import StepTask

# A function that takes longer than this keeps its thread busy, so that another must take the ready tasks. For shorter
# ones a hand-over to another thread would cost more than the function.
_STALL_SECONDS = 0.001
_MOST_PAUSE_SECONDS = 0.008

# A signal that arrives just before a thread begins to wait is handled only after that wait.
_SIGNAL_SECONDS = 0.25

# Threads that take leases and write statuses at once; see `Crew.starters`.
_LOCAL_STARTERS = 1
_REMOTE_STARTERS = 64

# Steps that run in this process have a thread each. Threads are cheap, but their number in a process is limited.
MAX_STEP_THREADS = 800


def check_max_concurrent(max_concurrent: int | None) -> None:
    """Validate the limit of concurrent steps.

    Raises:
        InvalidRequest: The limit is below 1.
    """
    if max_concurrent is not None and max_concurrent < 1:
        raise InvalidRequest(f"max_concurrent={max_concurrent}: must be at least 1, or None for no limit")


def most_at_work(max_concurrent: int | None) -> int:
    """Return the maximum number of concurrent tasks."""
    return min(max_concurrent or MAX_STEP_THREADS, MAX_STEP_THREADS)


@dataclass(frozen=True, slots=True)
class Crew:
    """The busy threads of a run.

    Attributes:
        starters: The best number of starting threads for the storage: one on local files, where a second would double
            the processor time (each file operation passes the interpreter lock), and many on remote storage.
        active: Threads that run a task or are about to take one.
        stuck: Active threads in a long-running function.
    """

    starters: int
    active: int
    stuck: int

    @property
    def _at_hand(self) -> int:
        return self.active - self.stuck

    @property
    def _enough(self) -> int:
        """Return the required number of threads that are not stuck: the number of stuck ones, so that threads
        double."""
        return max(self.starters, self.stuck)

    def wanted(self, ready: int, limit: int) -> int:
        """Return the number of further threads that should take tasks.

        Args:
            ready: Tasks that no thread has taken.
            limit: The maximum number of concurrent tasks.
        """
        return max(0, min(self._enough - self._at_hand, ready, limit - self.active))

    @property
    def is_one_too_many(self) -> bool:
        """Return whether a thread that finished a task should rest, because it was added while functions took long."""
        return self._at_hand > self._enough


class Workers:
    """Threads that take ready tasks and their attempts. The thread that calls `lead` starts them and observes the end.

    A thread that finished a task continues with a task that became ready, without a hand-over. Threads are added until
    every ready task starts within moments.

    Args:
        work: Called in a thread with each task, and each attempt to continue.
        limit: Maximum number of working threads.
    """

    def __init__(self, work: Callable[[StepTask | Attempt], None], limit: int) -> None:
        self._work = work
        self._limit = limit
        # Below, everything changes under this lock, which two conditions share. Ctrl-C in `Condition.wait` could keep
        # it from taking a plain Lock back.
        guard = threading.RLock()
        self._work_or_end = threading.Condition(guard)
        self._leading = threading.Condition(guard)
        self._ready: deque[StepTask | Attempt] = deque()
        self._later: list[tuple[float, int, Attempt]] = []
        self._numbers = itertools.count()
        self._calls: deque[Callable[[], None] | BaseException] = deque()
        self._at_work: set[Attempt] = set()
        self._starters = _LOCAL_STARTERS
        self._threads = 0
        self._idle = 0
        self._is_looking = False
        self._closed = False

    def add(self, items: Sequence[StepTask | Attempt], *, are_remote: bool = False, wakes: bool = True) -> None:
        """Add ready items.

        Args:
            items: Tasks, and attempts to continue.
            are_remote: Whether starting them waits for remote storage.
            wakes: Whether the leading thread checks immediately. Otherwise it checks only if the adding thread cannot
                take everything.
        """
        with self._leading:
            self._ready.extend(items)
            if are_remote:
                self._starters = _REMOTE_STARTERS
            if wakes or (len(self._ready) > 1 and not self._is_looking):
                self._leading.notify()

    def add_later(self, attempt: Attempt, delay: float) -> None:
        """Add an attempt that is ready after a delay in seconds."""
        with self._leading:
            heapq.heappush(self._later, (time.monotonic() + delay, next(self._numbers), attempt))
            self._leading.notify()

    def call(self, function: Callable[[], None] | BaseException) -> None:
        """Make the leading thread call a function or raise an error. Until it returns, no more tasks are taken."""
        with self._leading:
            self._calls.append(function)
            self._leading.notify()

    def begin(self, attempt: Attempt) -> bool:
        """Record a starting attempt. Return False if the run is stopping."""
        with self._work_or_end:
            self._at_work.add(attempt)
            return not self._closed

    def end(self, attempt: Attempt) -> bool:
        """Record the end of an attempt. Return False if the run no longer waits for it."""
        with self._work_or_end:
            self._at_work.discard(attempt)
            if self._closed:
                self._work_or_end.notify_all()
            return not self._closed

    @property
    def at_work(self) -> list[Attempt]:
        """The running attempts."""
        with self._work_or_end:
            return list(self._at_work)

    def close(self) -> None:
        """Let threads take no more tasks, and end."""
        with self._work_or_end:
            self._closed = True
            self._ready.clear()
            self._work_or_end.notify_all()

    def wait_for_end(self, seconds: float) -> bool:
        """Wait up to `seconds` until no attempt is running; return False on timeout."""
        with self._work_or_end:
            return self._work_or_end.wait_for(lambda: not self._at_work, seconds)

    def lead(self, is_done: Callable[[], bool]) -> None:
        """Start threads as needed for ready tasks, and make requested calls, until everything is done."""
        while (function := self._next_call(is_done)) is not None:
            if isinstance(function, BaseException):
                raise function
            function()
            with self._work_or_end:
                self._calls.popleft()
                self._work_or_end.notify_all()

    def _next_call(self, is_done: Callable[[], bool]) -> Callable[[], None] | BaseException | None:
        """Lead until there is a call to make, and return it; None when everything is done."""
        pause = _STALL_SECONDS
        with self._leading:
            while not self._calls:
                if is_done():
                    return None
                until_due = self._take_due() if self._later else _SIGNAL_SECONDS
                if not self._ready:
                    self._leading.wait(until_due)
                    continue
                # Frequent looks would slow down threads that need no help, and so would waking this one for each task.
                pause = _STALL_SECONDS if self._add_threads() else min(2 * pause, _MOST_PAUSE_SECONDS)
                self._is_looking = True
                self._leading.wait(pause)
                self._is_looking = False
            return self._calls[0]

    def _take_due(self) -> float:
        """Make due attempts ready. Return the seconds until the next one is due, or until signals are checked."""
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            self._ready.append(heapq.heappop(self._later)[2])
        return min(_SIGNAL_SECONDS, self._later[0][0] - now) if self._later else _SIGNAL_SECONDS

    def _add_threads(self) -> bool:
        """Start threads up to the best number for the storage, not counting threads in long functions.

        While functions keep all threads busy, their number doubles at each check.

        Returns:
            True if functions keep threads busy.
        """
        crew = self._crew()
        wanted = crew.wanted(len(self._ready), self._limit)
        if wanted == 0:
            return crew.stuck > 0
        new = wanted - self._idle
        self._work_or_end.notify(wanted)
        for _ in range(new):
            self._threads += 1
            threading.Thread(target=self._serve, name=f"marin-step-{self._threads}", daemon=True).start()
        return True

    def _crew(self) -> Crew:
        stuck_since = time.monotonic() - _STALL_SECONDS
        since = [attempt.working_since for attempt in self._at_work]
        stuck = sum(began is not None and began < stuck_since for began in since)
        return Crew(self._starters, self._threads - self._idle, stuck)

    def _serve(self) -> None:
        """Work on one item after another until the end: the function of each thread."""
        try:
            while (item := self._take()) is not None:
                self._work(item)
                del item  # not held while there is nothing to do
        # A defect of the run itself: to be raised by the run, and not lost with this thread.
        except BaseException as error:
            self.call(error)

    def _take(self) -> StepTask | Attempt | None:
        with self._work_or_end:
            while not self._closed:
                if self._ready and not self._calls:
                    # Of few threads none may rest, so that nobody need be counted.
                    if self._threads - self._idle <= self._starters or not self._crew().is_one_too_many:
                        return self._ready.popleft()
                    self._leading.notify()  # the others may yet be kept busy
                self._idle += 1
                try:
                    self._work_or_end.wait()
                finally:
                    self._idle -= 1
            return None
