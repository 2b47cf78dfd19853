"""Tables whose entries of ended jobs are in memory only while memory is not short; the archive has all of them."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from iris.core.state.names import NameFilter
from iris.domain.entities import Job, Task
from iris.domain.ids import JobId

Key = TypeVar("Key", bound=str)
Value = TypeVar("Value")

_ABSENT_KEPT: Final = 10_000
_in_memory = dict.get


class Archive(Protocol):
    """Reads what is committed."""

    def job_of(self, job_id: JobId) -> Job | None:
        """Return a job."""
        ...

    def tasks_of(self, job_id: JobId) -> list[Task]:
        """Return all tasks of a job, in order of index; empty if it does not exist."""
        ...


class ArchivedTable(dict[Key, Value]):
    """A dict that fetches missing entries from the archive. `items`, `values` and `len` show only what is in memory.

    Only this process writes to the archive, so missing or deleted entries stay unknown until they are set.

    Args:
        shelf: Total weight of evicted entries that stay in memory.
        weigh: Returns the weight of an entry.
        names: The keys of all entries, those of the archive included: what it denies is not looked up. None looks each
            up.
    """

    __slots__ = ("_absent", "_fetch", "_names", "_shelf", "_shelf_size", "_shelved", "_weigh")

    def __init__(
        self, shelf: int, weigh: Callable[[Value], int] = lambda _: 1, names: NameFilter | None = None
    ) -> None:
        super().__init__()
        self._fetch: Callable[[Key], Value | None] | None = None
        self._weigh = weigh
        self._names = names
        self._shelf: OrderedDict[Key, int] = OrderedDict()
        self._shelf_size = shelf
        self._shelved = 0
        self._absent: set[Key] = set()

    def attach(self, fetch: Callable[[Key], Value | None]) -> None:
        """Use an archive: `fetch` returns its entry, or None. Until then everything stays in memory."""
        self._fetch = fetch

    def __missing__(self, key: Key) -> Value:
        if self._fetch is None or key in self._absent:
            raise KeyError(key)
        value = self._fetch(key)
        if value is None:
            self._note_absent(key)
            raise KeyError(key)
        super().__setitem__(key, value)
        self._put_on_shelf(key, value)
        return value

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self.get(key) is not None

    def __setitem__(self, key: Key, value: Value) -> None:
        if key in self._shelf:
            self._take_from_shelf(key)
        self._absent.discard(key)
        if self._names is not None:
            self._names.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: Key) -> None:
        self.get(key)
        super().__delitem__(key)
        self._take_from_shelf(key)
        self._note_absent(key)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return an entry, from the archive if needed."""
        found = _in_memory(self, key)
        if found is None and self._fetch is not None and key not in self._absent:
            if self._names is not None and key not in self._names:
                return default
            try:
                return self[key]
            except KeyError:
                return default
        return default if found is None else found

    def pop(self, key: Any, default: Any = None) -> Any:
        """Delete an entry and return it, from the archive if needed."""
        value = self.get(key, default)
        if super().__contains__(key):
            del self[key]
        return value

    def evict(self, key: Key) -> None:
        """Let `trim` drop an entry, which is committed and belongs to a job that has ended."""
        if self._fetch is not None and super().__contains__(key) and key not in self._shelf:
            self._put_on_shelf(key, self[key])

    def trim(self) -> None:
        """Drop the entries evicted longest ago. Call it only when everything is committed."""
        while self._shelved > self._shelf_size:
            key, weight = self._shelf.popitem(last=False)
            self._shelved -= weight
            super().__delitem__(key)

    def _put_on_shelf(self, key: Key, value: Value) -> None:
        self._shelf[key] = weight = self._weigh(value)
        self._shelved += weight

    def _take_from_shelf(self, key: Key) -> None:
        self._shelved -= self._shelf.pop(key, 0)

    def _note_absent(self, key: Key) -> None:
        if len(self._absent) >= _ABSENT_KEPT:
            self._absent.clear()
        self._absent.add(key)
