"""Datasets: chains of operations that do nothing until they are executed."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from data_library.storage import glob, read_jsonl, read_lines


@dataclass(frozen=True)
class Map:
    fn: Callable[[Any], Any]

    def apply(self, records: Iterator[Any]) -> Iterator[Any]:
        return map(self.fn, records)


@dataclass(frozen=True)
class Filter:
    fn: Callable[[Any], Any]

    def apply(self, records: Iterator[Any]) -> Iterator[Any]:
        return filter(self.fn, records)


@dataclass(frozen=True)
class FlatMap:
    fn: Callable[[Any], Iterable[Any]]

    def apply(self, records: Iterator[Any]) -> Iterator[Any]:
        return chain.from_iterable(map(self.fn, records))


@dataclass(frozen=True)
class Whole:
    """A function of all records of a shard."""

    fn: Callable[[Iterator[Any]], Iterable[Any]]

    def apply(self, records: Iterator[Any]) -> Iterator[Any]:
        return iter(self.fn(records))


@dataclass(frozen=True)
class Shuffle:
    """Records of one key come together in one of `shards`, where `reducer(key, records)` makes one record of them."""

    key: Callable[[Any], Any]
    reducer: Callable[[Any, Iterator[Any]], Any]
    shards: int


@dataclass(frozen=True)
class WriteJsonl:
    """A file for each shard; `pattern` has {shard} and {total}."""

    pattern: str


Operation = Map | Filter | FlatMap | Whole | Shuffle | WriteJsonl


@dataclass(frozen=True)
class Dataset:
    """Shards of records: `sources` are the shards' inputs, `operations` what is done with each."""

    sources: tuple[Any, ...]
    operations: tuple[Operation, ...] = ()

    @classmethod
    def from_files(cls, pattern: str) -> "Dataset":
        """The paths that match, each a shard."""
        return cls(tuple([path] for path in glob(pattern)))

    @classmethod
    def from_list(cls, items: Iterable[Any], shards: int = 1) -> "Dataset":
        """The items, in `shards` shards."""
        items = list(items)
        return cls(tuple(part for n in range(shards) if (part := items[n::shards])))

    def map(self, fn: Callable[[Any], Any]) -> "Dataset":
        return self._then(Map(fn))

    def filter(self, fn: Callable[[Any], Any]) -> "Dataset":
        return self._then(Filter(fn))

    def flat_map(self, fn: Callable[[Any], Iterable[Any]]) -> "Dataset":
        return self._then(FlatMap(fn))

    def map_shard(self, fn: Callable[[Iterator[Any]], Iterable[Any]]) -> "Dataset":
        return self._then(Whole(fn))

    def load_lines(self) -> "Dataset":
        """The lines of the files that the records are paths of."""
        return self.flat_map(read_lines)

    def load_jsonl(self) -> "Dataset":
        return self.flat_map(read_jsonl)

    def group_by(
        self, key: Callable[[Any], Any], reducer: Callable[[Any, Iterator[Any]], Any], num_output_shards: int
    ) -> "Dataset":
        return self._then(Shuffle(key, reducer, num_output_shards))

    def deduplicate(self, key: Callable[[Any], Any], num_output_shards: int) -> "Dataset":
        """The first record of each key."""
        return self.group_by(key, lambda _, records: next(records), num_output_shards)

    def reduce(self, local: Callable[[Iterator[Any]], Any], total: Callable[[Iterator[Any]], Any]) -> "Dataset":
        """One record: `total` of what `local` makes of each shard."""
        partial = self.map_shard(lambda records: [local(records)])
        return partial.group_by(lambda _: 0, lambda _, partials: total(partials), 1)

    def write_jsonl(self, pattern: str) -> "Dataset":
        """The paths of the files that were written."""
        return self._then(WriteJsonl(pattern))

    def _then(self, operation: Operation) -> "Dataset":
        return replace(self, operations=(*self.operations, operation))
