"""Why jobs wait, worked out only when somebody asks."""

from collections.abc import Callable, Iterator, Mapping

from iris.domain.ids import JobId


class Reason:
    """One sentence, made on first use. Jobs that wait for the same thing share it."""

    __slots__ = ("_make", "_text")

    def __init__(self, make: Callable[[], str]) -> None:
        self._make: Callable[[], str] | None = make
        self._text = ""

    def text(self) -> str:
        """The sentence."""
        if self._make is not None:
            self._text, self._make = self._make(), None
        return self._text


class Reasons(Mapping[JobId, str]):
    """Of every job that still has pending tasks after a round, why the first of them is not placed."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[JobId, Reason | str] = {}

    def put(self, job_id: JobId, reason: Reason | str) -> None:
        """Set a job's reason."""
        self._found[job_id] = reason

    def __getitem__(self, job_id: JobId) -> str:
        found = self._found[job_id]
        return found if isinstance(found, str) else found.text()

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return repr(dict(self))
