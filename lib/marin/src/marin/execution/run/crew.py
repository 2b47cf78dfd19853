"""The threads of a run: the rule of how many take its tasks (`Crew`), and those that do (`Workers`)."""

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
    """Check the limit of steps that run at once.

    Raises:
        InvalidRequest: It is below 1.
    """
    if max_concurrent is not None and max_concurrent < 1:
        raise InvalidRequest(f"max_concurrent={max_concurrent}: must be at least 1, or None for no limit")


def most_at_work(max_concurrent: int | None) -> int:
    """Return the largest number of tasks that run at once."""
    return min(max_concurrent or MAX_STEP_THREADS, MAX_STEP_THREADS)


@dataclass(frozen=True, slots=True)
class Crew:
    """The threads of a run that have something to do.

    Attributes:
        starters: How many at once suit the storage: one on local files, where a second one would double the processor
            time (each file operation hands the interpreter over), and many where they wait for answers.
        active: Threads that are at a task, or on their way to the next.
        stuck: Those of them whose function takes long.
    """

    starters: int
    active: int
    stuck: int

    @property
    def _at_hand(self) -> int:
        return self.active - self.stuck

    @property
    def _enough(self) -> int:
        """Return how many must not be stuck: where functions take long, as many as are, so that threads double."""
        return max(self.starters, self.stuck)

    def wanted(self, ready: int, limit: int) -> int:
        """Return how many more threads are to take tasks.

        Args:
            ready: Tasks that nobody has taken.
            limit: The largest number of tasks at work at once.
        """
        return max(0, min(self._enough - self._at_hand, ready, limit - self.active))

    @property
    def is_one_too_many(self) -> bool:
        """True if a thread that has ended a task is to rest: it was added while functions took long."""
        return self._at_hand > self._enough


class Workers:
    """Threads that take what is ready, and the attempts in them. The thread of `lead` starts them and sees the end.

    A thread that has finished a task goes on with one that became ready by it, without a hand-over to another. Threads
    are added until every ready task runs within moments.

    Args:
        work: Called with each task, and each attempt that is to go on, in a thread.
        limit: At most so many threads work at once.
    """

    def __init__(self, work: Callable[[StepTask | Attempt], None], limit: int) -> None:
        self._work = work
        self._limit = limit
        # Below, everything changes under this lock, which two conditions share.
        guard = threading.Lock()
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
        """Add what is ready.

        Args:
            items: Tasks, and attempts that go on.
            are_remote: Threads wait for a store's answers while they begin them.
            wakes: The leading thread looks at once; else when more is ready than the adding thread takes up.
        """
        with self._leading:
            self._ready.extend(items)
            if are_remote:
                self._starters = _REMOTE_STARTERS
            if wakes or (len(self._ready) > 1 and not self._is_looking):
                self._leading.notify()

    def add_later(self, attempt: Attempt, delay: float) -> None:
        """Add an attempt that is ready after so many seconds."""
        with self._leading:
            heapq.heappush(self._later, (time.monotonic() + delay, next(self._numbers), attempt))
            self._leading.notify()

    def call(self, function: Callable[[], None] | BaseException) -> None:
        """Have the leading thread call a function, or raise an error; until it returns, nothing more is taken."""
        with self._leading:
            self._calls.append(function)
            self._leading.notify()

    def begin(self, attempt: Attempt) -> bool:
        """Note that an attempt is at work; False when all have been told to end."""
        with self._work_or_end:
            self._at_work.add(attempt)
            return not self._closed

    def end(self, attempt: Attempt) -> bool:
        """Note that an attempt is at work no more; False when nobody waits for it."""
        with self._work_or_end:
            self._at_work.discard(attempt)
            if self._closed:
                self._work_or_end.notify_all()
            return not self._closed

    @property
    def at_work(self) -> list[Attempt]:
        """The attempts at work."""
        with self._work_or_end:
            return list(self._at_work)

    def close(self) -> None:
        """Let threads take nothing more, and end."""
        with self._work_or_end:
            self._closed = True
            self._ready.clear()
            self._work_or_end.notify_all()

    def wait_for_end(self, seconds: float) -> bool:
        """Wait so many seconds until no attempt is at work; True if that is so."""
        with self._work_or_end:
            return self._work_or_end.wait_for(lambda: not self._at_work, seconds)

    def lead(self, is_done: Callable[[], bool]) -> None:
        """Start threads while too few take what is ready, until all is done; make the calls that are asked for."""
        while (function := self._next_call(is_done)) is not None:
            if isinstance(function, BaseException):
                raise function
            function()
            with self._work_or_end:
                self._calls.popleft()
                self._work_or_end.notify_all()

    def _next_call(self, is_done: Callable[[], bool]) -> Callable[[], None] | BaseException | None:
        """Lead until there is a call to make, and return it; None when all is done."""
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
        """Make ready what is due; return the seconds until the next is, or until a signal is seen."""
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            self._ready.append(heapq.heappop(self._later)[2])
        return min(_SIGNAL_SECONDS, self._later[0][0] - now) if self._later else _SIGNAL_SECONDS

    def _add_threads(self) -> bool:
        """Start threads, so that beside those that run long functions there are as many as suit the storage.

        The number of threads doubles from look to look while functions keep them busy.

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
        """Work on one item after the other until the end; the function of each thread."""
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
