"""How many tasks a run has at once, and how many threads take them: rules without threads or clocks."""

from __future__ import annotations

from dataclasses import dataclass

from rigging.errors import InvalidRequest

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
