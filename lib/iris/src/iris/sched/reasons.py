"""The reasons of pending jobs, computed on request."""

from collections.abc import Callable, Collection, Iterator, Mapping, Set

from iris.domain.ids import JobId


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

    __slots__ = ("_found", "_rest", "_rest_reason", "_without")

    def __init__(self) -> None:
        self._found: dict[JobId, Reason | str] = {}
        self._rest: Collection[JobId] = ()
        self._rest_reason: Reason | None = None
        self._without: Set[JobId] = frozenset()

    def put(self, job_id: JobId, reason: Reason | str) -> None:
        """Set a job's reason."""
        self._found[job_id] = reason

    def put_rest(self, rest: Collection[JobId], reason: Reason, without: Set[JobId]) -> None:
        """Set the reason of all other jobs in `rest` that still exist, except those in `without`.

        Args:
            rest: Jobs, some of which may not exist any more.
            reason: The reason.
            without: Jobs that keep their own reason.
        """
        self._rest, self._rest_reason, self._without = rest, reason, without

    def __getitem__(self, job_id: JobId) -> str:
        found = self._found.get(job_id)
        if found is None and self._rest_reason is not None and job_id in self._rest and job_id not in self._without:
            return self._rest_reason.text()
        if found is None:
            raise KeyError(job_id)
        return found if isinstance(found, str) else found.text()

    def __iter__(self) -> Iterator[JobId]:
        yield from self._found
        yield from (job_id for job_id in self._rest if job_id not in self._found and job_id not in self._without)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))
