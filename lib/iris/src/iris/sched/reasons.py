"""The reasons of pending jobs, computed on request."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from iris.domain.ids import JobId

MOVED_TEXT: Final = "waits for its own stopping attempts, which make room for other work"


def held_text(count: int) -> str:
    """Return why a job waits that has `count` stopping attempts."""
    return f"waits for {count} earlier {'attempt' if count == 1 else 'attempts'} to end"


def full_text(most: int) -> str:
    """Return why a job waits that runs as many tasks as its max_running."""
    return f"runs {most} task{'s' if most > 1 else ''}, the job's max_running"


class Reason:
    """A sentence, created on first use. Jobs that wait for the same reason share it."""

    __slots__ = ("_make", "_text")

    def __init__(self, make: Callable[[], str]) -> None:
        self._make: Callable[[], str] | None = make
        self._text = ""

    def text(self) -> str:
        """Return the sentence."""
        if self._make is not None:
            self._text, self._make = self._make(), None
        return self._text


class Reasons(Mapping[JobId, str]):
    """Map each job with pending tasks to the reason why its first task is not placed."""

    __slots__ = ("_found", "_others", "_why")

    def __init__(self) -> None:
        self._found: dict[JobId, Reason | str] = {}
        self._others: Collection[JobId] = ()
        self._why: Callable[[JobId], Reason | str | None] = self._found.get

    def put(self, job_id: JobId, reason: Reason | str) -> None:
        """Set a job's reason."""
        self._found[job_id] = reason

    def put_others(self, jobs: Collection[JobId], why: Callable[[JobId], Reason | str | None]) -> None:
        """Set the reasons of jobs that have none yet.

        Args:
            jobs: Pending jobs. The collection may change later.
            why: Returns a job's reason, or None if it has none.
        """
        self._others, self._why = jobs, why

    def _find(self, job_id: JobId) -> Reason | str | None:
        found = self._found.get(job_id)
        return self._why(job_id) if found is None and job_id in self._others else found

    def __getitem__(self, job_id: JobId) -> str:
        found = self._find(job_id)
        if found is None:
            raise KeyError(job_id)
        return found if isinstance(found, str) else found.text()

    def __iter__(self) -> Iterator[JobId]:
        yield from self._found
        yield from (name for name in self._others if name not in self._found and self._why(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))
