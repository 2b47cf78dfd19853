"""The cross-region guard charges reads from another region's object store to the transfer budget.

A read is reserved in the budget before it begins, and settled with the bytes that arrived; a failed read returns its
reservation. A range costs its length. An open file is charged for the blocks it fetches, including read-ahead. The
budget is the current one, or that of the `mirror_budget` block that created the filesystem. Copies cost their size if
source and destination are in different places, wherever this machine is. The guard refuses operations that it does not
know (`guard_names`).

This module imports fsspec. `rigging.filesystem` imports it on demand.
"""

import functools
import inspect
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NoReturn

from fsspec import AbstractFileSystem
from fsspec.spec import AbstractBufferedFile

from rigging.errors import Denied
from rigging.filesystem.budget import BudgetBinding, TransferBudget
from rigging.filesystem.guard_names import INHERITED, is_passed_on
from rigging.filesystem.guard_reads import ChargedReads, Steps, run_async, run_sync
from rigging.filesystem.location import name_path

_PLAIN = (type(None), bool, int, float, str, bytes, tuple)


def _twins(steps: Callable[..., Steps[Any]]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the sync method that runs these steps, and the coroutine twin, whose name starts with "_"."""

    @functools.wraps(steps)
    def method(self: "CrossRegionGuardedFS", *args: Any, **kwargs: Any) -> Any:
        return run_sync(self.unguarded, steps(self.reads, *args, **kwargs))

    @functools.wraps(steps)
    async def twin(self: "CrossRegionGuardedFS", *args: Any, **kwargs: Any) -> Any:
        return await run_async(self.unguarded, steps(self.reads, *args, **kwargs))

    return method, twin


class CrossRegionGuardedFS(BudgetBinding, AbstractFileSystem):  # type: ignore[misc]
    """A filesystem that charges reads from other regions. Otherwise it behaves like the wrapped one.

    It pickles with the wrapped filesystem. It uses the region and budget of the reading process.

    Args:
        fs: The filesystem of an object store, also available as `unguarded`, whose reads are not charged.
        cross_region_checker: Decides for a bucket whether reads are charged, instead of the comparison of regions.
        budget: The budget to charge, instead of the current one.
    """

    protocol = "marin-guard"
    # Of the class, it tells fsspec to keep one instance for all threads; each instance says what its filesystem is.
    async_impl = True

    def __init__(
        self,
        fs: AbstractFileSystem,
        *,
        cross_region_checker: Callable[[str], bool] | None = None,
        budget: TransferBudget | None = None,
    ) -> None:
        super().__init__()
        self.bind_budget(budget)
        self.unguarded = fs
        self.reads = ChargedReads(fs, lambda: self.budget, cross_region_checker)
        self.async_impl = fs.async_impl
        self.protocol = fs.protocol

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CrossRegionGuardedFS) and bool(self.unguarded == other.unguarded)

    def __hash__(self) -> int:
        return hash((CrossRegionGuardedFS, self.unguarded))

    def __repr__(self) -> str:
        return f"CrossRegionGuardedFS({self.unguarded!r})"

    def __getattr__(self, name: str) -> Any:
        # Reached by what neither this class nor fsspec's base class has.
        if name.startswith("__") or "unguarded" not in self.__dict__:
            raise AttributeError(name)
        return _passed_on(self, name)

    def is_cross_region(self, path: str) -> bool:
        """Return whether reading `path` would be charged now."""
        return bool(self._run(self.reads.crossing([path])))

    cat, _cat = _twins(ChargedReads.cat)
    cat_file, _cat_file = _twins(ChargedReads.cat_file)
    cat_ranges, _cat_ranges = _twins(ChargedReads.cat_ranges)
    get, _get = _twins(ChargedReads.get)
    get_file, _get_file = _twins(ChargedReads.get_file)
    copy, _copy = _twins(ChargedReads.copy)
    cp_file, _cp_file = _twins(ChargedReads.cp_file)
    mv, _mv = _twins(ChargedReads.mv)
    mv_file, _mv_file = _twins(ChargedReads.mv_file)
    download, cp, move, rename = get, copy, mv, mv

    def head(self, path: str, size: int = 1024) -> bytes:
        whole = self._run(self.reads.size_if_crossing(path))
        if whole is None:
            data: bytes = self.unguarded.head(path, size)
        else:
            data = self.cat_file(path, 0, min(size, whole)) if min(size, whole) > 0 else b""
        return data

    def tail(self, path: str, size: int = 1024) -> bytes:
        whole = self._run(self.reads.size_if_crossing(path))
        if whole is None:
            data: bytes = self.unguarded.tail(path, size)
        else:
            data = self.cat_file(path, max(0, whole - size), whole) if min(size, whole) > 0 else b""
        return data

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> Any:
        # How a pickled file is opened again; the size is asked for here in any case.
        kwargs.pop("size", None)
        if cache_options is not None:
            kwargs["cache_options"] = cache_options
        if "r" in mode or "a" in mode or "+" in mode:
            size = self._run(self.reads.size_if_crossing(path, missing_ok="r" not in mode))
            if size is not None and mode == "rb":
                return ChargedFile(self, path, size=size, block_size=block_size or "default", **kwargs)
            if size is not None:
                # Appending and updating read what is there, out of sight.
                self.budget.record(size, self.reads.url(path))
        if not autocommit:
            kwargs["autocommit"] = False
        try:
            return self.unguarded.open(path, mode, block_size=block_size, **kwargs)
        except OSError as error:
            name_path(error, self.reads.url(path))
            raise

    async def open_async(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode != "wb":
            steps = self.reads.size_if_crossing(path, missing_ok="r" not in mode)
            # It streams out of sight, so that it costs the whole size at once.
            size = await run_async(self.unguarded, steps)
            if size is not None:
                self.budget.record(size, self.reads.url(path))
        return await self.unguarded.open_async(path, mode, **kwargs)

    def _run(self, steps: Steps[Any]) -> Any:
        return run_sync(self.unguarded, steps)


class ChargedFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file of another region, open for reading. Each block is charged when it is fetched.

    It reads with the guard's `cat_file`, so that pickling and caches keep the guard in place.
    """

    def _fetch_range(self, start: int, end: int) -> bytes:
        version = {name: self.kwargs[name] for name in ("generation", "version_id") if name in self.kwargs}
        data: bytes = self.fs.cat_file(self.path, start=start, end=end, **version)
        return data


def guarded(fs: AbstractFileSystem) -> CrossRegionGuardedFS:
    """Return the guard of `fs`, or `fs` itself if it is one."""
    return fs if isinstance(fs, CrossRegionGuardedFS) else CrossRegionGuardedFS(fs=fs)


def _passed_on(fs: CrossRegionGuardedFS, name: str) -> Any:
    """Return the wrapped filesystem's attribute of that name, if the guard passes it on or it is a plain setting."""
    value = getattr(fs.unguarded, name)
    if is_passed_on(name) or isinstance(value, _PLAIN):
        return value
    refusal = Denied(
        f"{type(fs.unguarded).__name__}.{name} is refused: the cross-region guard does not know whether it reads, and "
        "would not charge it. Use open, cat_file, get or another method of fsspec"
    )
    if not callable(value):
        raise refusal

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise refusal

    return refuse


def close_inherited_names(cls: type[CrossRegionGuardedFS]) -> None:
    """Override every name of fsspec's base class, so that none is inherited unnoticed."""
    for name in dir(AbstractFileSystem):
        is_own = inspect.getattr_static(cls, name) is not inspect.getattr_static(AbstractFileSystem, name)
        if is_own or name in INHERITED:
            continue
        if is_passed_on(name):
            setattr(cls, name, property(attrgetter(f"unguarded.{name}")))
        elif not name.startswith("_"):
            setattr(cls, name, property(functools.partial(_passed_on, name=name)))


close_inherited_names(CrossRegionGuardedFS)
