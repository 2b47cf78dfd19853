"""The cross-region guard: reading an object store of another region is charged to the transfer budget.

A read is reserved in the budget before it begins, and settled with what came; a read that fails gives its reservation
back. Ranges cost the range. A file that is opened is charged by the blocks that are fetched, read-ahead included. The
budget is the one in force, or that of the `mirror_budget` block in which the filesystem was made (`bound`). Copies cost
their size when source and destination are in different places, wherever this machine is. What the guard does not know
it refuses (`guard_names`).

This module imports fsspec; `rigging.filesystem` brings it in only when it is asked for.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from fsspec import AbstractFileSystem
from fsspec.spec import AbstractBufferedFile

from rigging.errors import Denied
from rigging.filesystem.bound import BoundToBudget, BudgetBinding
from rigging.filesystem.guard_names import INHERITED, is_passed_on
from rigging.filesystem.guard_reads import ChargedReads, Steps, run_async, run_sync
from rigging.filesystem.naming import name_path

_PLAIN = (type(None), bool, int, float, str, bytes, tuple)


class CrossRegionGuardedFS(BudgetBinding, AbstractFileSystem, metaclass=BoundToBudget):  # type: ignore[misc]
    """A filesystem whose reads from other regions are charged; otherwise as the one under it.

    Equal filesystems have one guard (in each `mirror_budget` block). It pickles with the filesystem under it; region
    and budget are those of the process in which a read happens.

    Args:
        fs: The filesystem of an object store, also available as `unguarded`: its reads are not charged.
        cross_region_checker: Says of a bucket whether reading it is charged, instead of the comparison of regions.
        budget: What reads are charged to, instead of the budget in force.
    """

    protocol = "marin-guard"
    # Of the class, it tells fsspec to keep one instance for all threads; each instance says what its filesystem is.
    async_impl = True

    def __init__(self, fs: AbstractFileSystem, *, cross_region_checker: Callable[[str], bool] | None = None) -> None:
        super().__init__()
        self.bind_budget()
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
        """Say whether reading `path` would be charged now."""
        return bool(self._run(self.reads.crossing([path])))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        data: bytes = self._run(self.reads.cat_file(path, start, end, kwargs))
        return data

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        return await run_async(self.unguarded, self.reads.cat_file(path, start, end, kwargs))

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        return self._run(self.reads.cat(path, recursive, on_error, kwargs))

    async def _cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        return await run_async(self.unguarded, self.reads.cat(path, recursive, on_error, kwargs))

    def cat_ranges(self, paths: list[str], starts: Any, ends: Any, **kwargs: Any) -> Any:
        return self._run(self.reads.cat_ranges(paths, starts, ends, kwargs))

    async def _cat_ranges(self, paths: list[str], starts: Any, ends: Any, **kwargs: Any) -> Any:
        return await run_async(self.unguarded, self.reads.cat_ranges(paths, starts, ends, kwargs))

    def get_file(self, rpath: str, lpath: Any, *args: Any, **kwargs: Any) -> Any:
        return self._run(self.reads.whole("get_file", rpath, (lpath, *args), kwargs))

    async def _get_file(self, rpath: str, lpath: Any, *args: Any, **kwargs: Any) -> Any:
        return await run_async(self.unguarded, self.reads.whole("get_file", rpath, (lpath, *args), kwargs))

    def get(self, rpath: Any, lpath: Any, recursive: bool = False, **kwargs: Any) -> Any:
        return self._run(self.reads.whole("get", rpath, (lpath,), {"recursive": recursive, **kwargs}))

    async def _get(self, rpath: Any, lpath: Any, recursive: bool = False, **kwargs: Any) -> Any:
        steps = self.reads.whole("get", rpath, (lpath,), {"recursive": recursive, **kwargs})
        return await run_async(self.unguarded, steps)

    def download(self, rpath: Any, lpath: Any, recursive: bool = False, **kwargs: Any) -> Any:
        return self.get(rpath, lpath, recursive=recursive, **kwargs)

    def head(self, path: str, size: int = 1024) -> bytes:
        whole = self._run(self.reads.size_if_crossing(path))
        if whole is None:
            data: bytes = self.unguarded.head(path, size)
            return data
        return self.cat_file(path, 0, min(size, whole)) if min(size, whole) > 0 else b""

    def tail(self, path: str, size: int = 1024) -> bytes:
        whole = self._run(self.reads.size_if_crossing(path))
        if whole is None:
            data: bytes = self.unguarded.tail(path, size)
            return data
        return self.cat_file(path, max(0, whole - size), whole) if min(size, whole) > 0 else b""

    def copy(self, path1: Any, path2: Any, recursive: bool = False, **kwargs: Any) -> Any:
        return self._run(self.reads.copied("copy", path1, path2, {"recursive": recursive, **kwargs}))

    async def _copy(self, path1: Any, path2: Any, recursive: bool = False, **kwargs: Any) -> Any:
        steps = self.reads.copied("copy", path1, path2, {"recursive": recursive, **kwargs})
        return await run_async(self.unguarded, steps)

    def cp(self, path1: Any, path2: Any, **kwargs: Any) -> Any:
        return self.copy(path1, path2, **kwargs)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> Any:
        return self._run(self.reads.copied("cp_file", path1, path2, kwargs))

    async def _cp_file(self, path1: str, path2: str, **kwargs: Any) -> Any:
        return await run_async(self.unguarded, self.reads.copied("cp_file", path1, path2, kwargs))

    def mv(self, path1: Any, path2: Any, recursive: bool = False, **kwargs: Any) -> Any:
        return self._run(self.reads.copied("mv", path1, path2, {"recursive": recursive, **kwargs}))

    async def _mv(self, path1: Any, path2: Any, recursive: bool = False, **kwargs: Any) -> Any:
        steps = self.reads.copied("mv", path1, path2, {"recursive": recursive, **kwargs})
        return await run_async(self.unguarded, steps)

    def move(self, path1: Any, path2: Any, **kwargs: Any) -> Any:
        return self.mv(path1, path2, **kwargs)

    def rename(self, path1: Any, path2: Any, **kwargs: Any) -> Any:
        return self.mv(path1, path2, **kwargs)

    def mv_file(self, path1: str, path2: str, **kwargs: Any) -> Any:
        return self._run(self.reads.copied("mv_file", path1, path2, kwargs))

    async def _mv_file(self, path1: str, path2: str, **kwargs: Any) -> Any:
        return await run_async(self.unguarded, self.reads.copied("mv_file", path1, path2, kwargs))

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
    """A file of another region, open for reading: each block is charged when it is fetched.

    It reads by `cat_file` of the guard, so that pickling it, and every kind of cache, keep the guard between.
    """

    def _fetch_range(self, start: int, end: int) -> bytes:
        version = {name: self.kwargs[name] for name in ("generation", "version_id") if name in self.kwargs}
        data: bytes = self.fs.cat_file(self.path, start=start, end=end, **version)
        return data


def guarded(fs: AbstractFileSystem) -> CrossRegionGuardedFS:
    """Return the guard of `fs`, or `fs` itself when it is one."""
    return fs if isinstance(fs, CrossRegionGuardedFS) else CrossRegionGuardedFS(fs=fs)


def _passed_on(fs: CrossRegionGuardedFS, name: str) -> Any:
    """Return what the filesystem under the guard has by that name, if the guard knows it, or it is a mere setting."""
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
    """Give the class every name of fsspec's base class: passed on or refused, never inherited unseen."""
    for name in dir(AbstractFileSystem):
        is_own = inspect.getattr_static(cls, name) is not inspect.getattr_static(AbstractFileSystem, name)
        if not is_own and name not in INHERITED and (is_passed_on(name) or not name.startswith("_")):
            setattr(cls, name, property(partial(_passed_on, name=name)))


close_inherited_names(CrossRegionGuardedFS)
