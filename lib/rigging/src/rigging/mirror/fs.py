"""The fsspec filesystem of the protocol `mirror`."""

import dataclasses
import errno
import io
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.core import has_magic
from fsspec.utils import stringify_path

from rigging.copying.fetch import fetch, fetch_many
from rigging.copying.request import CopyRequest, Settings
from rigging.errors import InvalidRequest
from rigging.filesystem.atomic import write_bytes_atomic
from rigging.filesystem.budget import BudgetBinding, TransferBudget
from rigging.filesystem.fences import check_writable
from rigging.mirror.union_fs import MirrorPath, UnionFileSystem, missing
from rigging.mirror.writing import open_whole, whole
from rigging.prefixes.paths import PROTOCOL
from rigging.prefixes.prefix_store import PrefixStore, StoreKind, local_store, other_stores
from rigging.prefixes.removed import described, mark_removed, read_removal
from rigging.prefixes.union import elsewhere, files_elsewhere, union_info

#: The most files that only other regions have and that one removal hides; each costs a request.
MOST_REMOVED_ELSEWHERE = 10_000


class MirroredFile(io.BufferedReader):
    """A file of the local prefix on local disk, open for reading. Pickling stores its mirror path and position.

    Attributes:
        fs: The mirror.
        path: The file, relative to the prefix.
    """

    def __init__(self, fs: "MirrorFileSystem", path: str, opened: io.FileIO) -> None:
        super().__init__(opened)
        self.fs = fs
        self.path = path

    @property
    def size(self) -> int:
        """The file's size in bytes."""
        return os.fstat(self.fileno()).st_size

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.fs, self.path, self.tell())

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()


class MirrorFileSystem(BudgetBinding, UnionFileSystem):
    """All regions' prefixes as one filesystem. Reads copy the file into the local prefix. Writes are local.

    Paths are relative to the prefix. Queries (`info`, `ls`, `find`, `glob`, `exists`...) cover all regions without
    copying. A file that is read is first copied whole, once, and then read locally. Other regions are never written: a
    removed (or moved) file is removed here, and a tombstone in the local prefix hides other regions' files of that name
    until the name is written again or `python -m rigging.mirror --undelete` revokes it.

    An instance created in a `mirror_budget` block charges that block's budget in any thread; others charge the current
    one.

    Args:
        budget: The budget to charge, instead of the current one.
        storage_options: The fields of `Settings`, and fsspec's own options.

    Attributes:
        bytes_copied: Bytes that this instance has copied into the local prefix.
    """

    def __init__(self, *, budget: TransferBudget | None = None, **storage_options: Any) -> None:
        self.bind_budget(budget)
        self.bytes_copied = 0
        self._counting = threading.Lock()
        names = [field.name for field in dataclasses.fields(Settings) if field.name in storage_options]
        self.settings = Settings(**{name: storage_options.pop(name) for name in names})
        super().__init__(**storage_options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MirrorFileSystem) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        # fsspec tells filesystems over this one apart by this text: those of two blocks, but not one and its pickle.
        return f"<MirrorFileSystem {self._fs_token}, budget {id(self._bound):x}>"

    # Reading

    def open(
        self,
        path: MirrorPath,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open a file (see `fsspec.AbstractFileSystem.open`)."""
        if mode == "rb" and compression is None and not kwargs:
            relative = self._strip_protocol(path)
            store = local_store()
            if store.kind is StoreKind.LOCAL:
                # The one path that has to be quick: nothing but the file itself is touched.
                try:
                    return MirroredFile(self, relative, io.FileIO(store.path(relative), "rb"))
                except FileNotFoundError:
                    pass
        return super().open(path, mode, block_size, cache_options, compression, **kwargs)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> Any:
        if mode == "rb":
            return self._read(path, lambda store: self._open_here(store, path, block_size, **kwargs))
        if "x" in mode and self.exists(path):
            raise _taken(path)
        if "a" in mode or ("+" in mode and "w" not in mode):
            # What is added to, or changed in part, has to be here first.
            self._fetch_many([path])
        store = local_store()
        self._make_parent(store, path)
        if store.kind is StoreKind.LOCAL and mode[0] in "wx":
            return open_whole(store.path(path), mode, kwargs.get("autocommit", True))
        return store.fs.open(store.path(path), mode, block_size=block_size, **kwargs)

    def _open_here(self, store: PrefixStore, path: str, block_size: int | None, **kwargs: Any) -> Any:
        if store.kind is StoreKind.LOCAL:
            return MirroredFile(self, path, io.FileIO(store.path(path), "rb"))
        if store.kind is StoreKind.OTHER and store.info(path) is None:
            # Not every filesystem looks before the first read.
            raise FileNotFoundError(path)
        return store.fs.open(store.path(path), "rb", block_size=block_size, **kwargs)

    def _read(self, path: str, read: Callable[[PrefixStore], Any]) -> Any:
        """Read from the local prefix, fetching the file first if it is missing."""
        try:
            return read(local_store())
        except FileNotFoundError:
            fetch(path, self.settings, self.budget, self._count)
        return read(local_store())

    def cat_file(self, path: MirrorPath, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Return the bytes of a file, or those from `start` to `end` (negative: from the end of the file)."""
        relative = self._strip_protocol(path)
        if local_store().kind is StoreKind.LOCAL:
            content: bytes = super().cat_file(relative, start, end, **kwargs)
            return content

        def read(store: PrefixStore) -> bytes:
            content: bytes = store.fs.cat_file(store.path(relative), start=start, end=end, **kwargs)
            return content

        return self._read(relative, read)  # type: ignore[no-any-return]

    def cat(self, path: MirrorPath, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        """Return the content of a file, or of several by path (see fsspec). Several are fetched concurrently."""
        paths = self.expand_path(path, recursive=recursive)
        if recursive:
            paths = [found for found in paths if not self.isdir(found)]
        if len(paths) > 1:
            self._fetch_many(paths)
        return super().cat(paths if recursive else path, on_error=on_error, **kwargs)

    def cat_ranges(
        self,
        paths: list[Any],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Return ranges of files (see fsspec)."""
        relative = self._strip_protocol(paths) if isinstance(paths, list) else paths
        if isinstance(relative, list):
            self._fetch_many(sorted(set(relative)))
        ranges: list[Any] = super().cat_ranges(relative, starts, ends, max_gap, on_error, **kwargs)
        return ranges

    def get(
        self,
        rpath: MirrorPath,
        lpath: MirrorPath,
        recursive: bool = False,
        callback: Callback = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy files or directories to plain local paths (see fsspec)."""
        if isinstance(rpath, list) or recursive:
            paths = rpath if isinstance(rpath, list) and isinstance(lpath, list) else None
            self._fetch_many(
                self._strip_protocol(paths)
                if paths is not None
                else self.expand_path(rpath, recursive=recursive, maxdepth=maxdepth)
            )
        super().get(rpath, lpath, recursive=recursive, callback=callback, maxdepth=maxdepth, **kwargs)

    def get_file(
        self,
        rpath: MirrorPath,
        lpath: MirrorPath,
        callback: Callback = DEFAULT_CALLBACK,
        outfile: Any = None,
        **kwargs: Any,
    ) -> None:
        """Copy one file to a plain local path or an open file."""
        relative = self._strip_protocol(rpath)
        store = local_store()
        if store.kind is StoreKind.LOCAL or outfile is not None or not isinstance(lpath, str | os.PathLike):
            super().get_file(relative, lpath, callback=callback, outfile=outfile, **kwargs)
            return
        if self.isdir(relative):
            os.makedirs(lpath, exist_ok=True)
            return
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        self._read(relative, lambda here: here.fs.get_file(here.path(relative), lpath, callback=callback, **kwargs))

    # Writing: local only

    def pipe_file(self, path: MirrorPath, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write a file in the local prefix. Mode "create" raises if any region has the file."""
        relative = self._strip_protocol(path)
        if mode == "create" and self.exists(relative):
            raise _taken(relative)
        store = local_store()
        self._make_parent(store, relative)
        if store.kind is StoreKind.LOCAL:
            write_bytes_atomic(store.path(relative), value)
        else:
            store.fs.pipe_file(store.path(relative), value, mode=mode, **kwargs)

    def put_file(
        self,
        lpath: MirrorPath,
        rpath: MirrorPath,
        callback: Callback = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **kwargs: Any,
    ) -> None:
        """Copy a plain local file into the local prefix. A directory is only created."""
        relative = self._strip_protocol(rpath)
        if mode == "create" and self.exists(relative):
            raise _taken(relative)
        if os.path.isdir(lpath):
            self.makedirs(relative, exist_ok=True)
            return
        store = local_store()
        self._make_parent(store, relative)
        with whole(store, relative) as own:
            store.fs.put_file(lpath, own, callback=callback, **kwargs)

    def cp_file(self, path1: MirrorPath, path2: MirrorPath, **kwargs: Any) -> None:
        """Copy a file within the local prefix, fetching it first. A directory is only created."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        found = self.info(source)
        if found["type"] == "directory":
            self.makedirs(target, exist_ok=True)
            return
        self._fetch_many([source])
        store = local_store()
        self._make_parent(store, target)
        with whole(store, target) as own:
            store.fs.cp_file(store.path(source), own, **kwargs)

    def mv(
        self, path1: MirrorPath, path2: MirrorPath, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any
    ) -> None:
        """Move files within the local prefix, fetching them first. Hide other regions' files, as `rm` does.

        Raises:
            InvalidRequest: The target is below the source. Nothing was moved.
        """
        if not isinstance(path1, list):
            if self._strip_protocol(path1) == self._strip_protocol(path2):
                return
            if has_magic(self._strip_protocol(path1)):
                # Now: after the copy the pattern may match the copies, too, which would be removed.
                path1 = self._matches(self._strip_protocol(path1))
        _check_apart(self._strip_protocol(path1), self._strip_protocol(path2))
        if isinstance(path1, list) or isinstance(path2, list) or maxdepth is not None:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
            return
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        store = local_store()
        found = union_info(source)
        into_directory = stringify_path(path2).endswith("/") or self.isdir(target)
        if store.kind is not StoreKind.LOCAL or found is None or found["type"] != "file" or into_directory:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
            return
        self._fetch_many([source])
        self._make_parent(store, target)
        if elsewhere(source) is not None:
            mark_removed(store, [source])
        os.replace(store.path(source), store.path(target))

    def rm_file(self, path: MirrorPath) -> None:
        """Remove a local file, and hide other regions' files of that name without deleting them."""
        relative = self._strip_protocol(path)
        local = local_store()
        check_writable(local.url(relative))
        is_here = local.info(relative) is not None
        if not is_here or other_stores():
            found = elsewhere(relative)
            if found is None and not is_here:
                raise _not_there(relative)
            if found is not None and found[1]["type"] != "directory":
                # Before the local one: whoever looks between the two sees one or the other, and no former version.
                mark_removed(local, [relative])
        if is_here:
            local.fs.rm_file(local.path(relative))

    def _rm(self, path: MirrorPath) -> None:
        self.rm_file(path)

    def rm(self, path: MirrorPath, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files or directories from the local prefix, and hide other regions' files of those names.

        Args:
            path: One path or a list. Patterns match visible files.
            recursive: Also remove everything below directories.
            maxdepth: Maximum depth.

        Raises:
            FileNotFoundError: No region has the path, or nothing matches the pattern.
            PermissionError: More than 10,000 of the files exist only in other regions. Nothing was removed.
            LeaseLostError: The path belongs to a step whose lease this process has lost. Nothing was removed.
        """
        local = local_store()
        paths = self._strip_protocol(path) if isinstance(path, list) else [self._strip_protocol(path)]
        if "" in paths and recursive:
            raise InvalidRequest(f"refusing to remove the whole prefix {local.prefix.url}")
        own: list[str] = []
        hidden: set[str] = set()
        for top in [found for relative in paths for found in self._matches(relative)]:
            check_writable(local.url(top))
            is_here = local.info(top) is not None
            if is_here:
                own.append(local.path(top))
            hidden |= self._to_hide(local, top, is_here, recursive, maxdepth)
        mark_removed(local, hidden)
        if own:
            local.fs.rm(own, recursive=recursive, maxdepth=maxdepth)

    def _matches(self, relative: str) -> list[str]:
        """Return a path, or the matches of a pattern."""
        if not has_magic(relative) or self.exists(relative):
            return [relative]
        found: list[str] = self.glob(relative)
        if not found:
            raise _not_there(relative)
        return found

    def _to_hide(self, local: PrefixStore, top: str, is_here: bool, recursive: bool, maxdepth: int | None) -> set[str]:
        """Return the files of other regions that a removal covers."""
        found = elsewhere(top)
        if found is None:
            if not is_here:
                raise _not_there(top)
            return set()
        if found[1]["type"] != "directory":
            return {top}
        if not recursive:
            if not is_here:
                raise IsADirectoryError(errno.EISDIR, "a directory; give recursive=True", f"{PROTOCOL}://{top}")
            return set()
        far = files_elsewhere(top, maxdepth)
        only_there = far.difference(local.find(top))
        if len(only_there) > MOST_REMOVED_ELSEWHERE:
            raise PermissionError(
                errno.EPERM,
                f"{len(only_there):,} files below it are only in other regions, more than the "
                f"{MOST_REMOVED_ELSEWHERE:,} that are removed at once here; remove them in {found[0].url(top)}, or its "
                "directories one by one",
                f"{PROTOCOL}://{top}",
            )
        return far

    def mkdir(self, path: MirrorPath, create_parents: bool = True, **kwargs: Any) -> None:
        """Create a directory in the local prefix, if its storage has directories."""
        relative = self._strip_protocol(path)
        found = union_info(relative)
        if found is not None:
            raise _taken(relative)
        store = local_store()
        if store.kind not in (StoreKind.GCS, StoreKind.S3):
            store.fs.mkdir(store.path(relative), create_parents=create_parents, **kwargs)

    def makedirs(self, path: MirrorPath, exist_ok: bool = False) -> None:
        """Create a directory and its parents in the local prefix, if its storage has directories."""
        relative = self._strip_protocol(path)
        if not exist_ok and self.exists(relative):
            raise _taken(relative)
        store = local_store()
        if store.kind not in (StoreKind.GCS, StoreKind.S3):
            store.fs.makedirs(store.path(relative), exist_ok=True)

    def rmdir(self, path: MirrorPath) -> None:
        """Remove an empty directory of the local prefix."""
        relative = self._strip_protocol(path)
        store = local_store()
        if store.kind not in (StoreKind.GCS, StoreKind.S3):
            store.fs.rmdir(store.path(relative))

    def touch(self, path: MirrorPath, truncate: bool = True, **kwargs: Any) -> None:
        """Create an empty file in the local prefix. Without `truncate`, fetch an existing one and update its
        modification time.
        """
        relative = self._strip_protocol(path)
        if not truncate:
            self._fetch_many([relative])
        store = local_store()
        self._make_parent(store, relative)
        if store.kind in (StoreKind.LOCAL, StoreKind.S3, StoreKind.GCS) and not (
            truncate and store.kind is not StoreKind.LOCAL
        ):
            store.fs.touch(store.path(relative), truncate=truncate, **kwargs)
        else:
            own = store.path(relative)
            kept = not truncate and store.info(relative) is not None
            store.fs.pipe_file(own, store.fs.cat_file(own) if kept else b"")

    def _fetch_many(self, paths: Iterable[str]) -> None:
        fetch_many(list(dict.fromkeys(paths)), self.settings, self.budget, self._count)

    def _count(self, _wanted: CopyRequest, moved: int) -> None:
        with self._counting:
            self.bytes_copied += moved

    def _make_parent(self, store: PrefixStore, relative: str) -> None:
        check_writable(store.url(relative))
        parent, _, _ = relative.rpartition("/")
        if store.kind in (StoreKind.LOCAL, StoreKind.OTHER):
            store.fs.makedirs(store.path(parent), exist_ok=True)


def _check_apart(sources: MirrorPath, targets: MirrorPath) -> None:
    """Refuse to move a path to a place below it, because the copy would be removed with the rest."""
    sources = sources if isinstance(sources, list) else [sources]
    pairs = zip(sources, targets, strict=False) if isinstance(targets, list) else ((one, targets) for one in sources)
    for source, target in pairs:
        if f"{target}/".startswith(f"{source}/"):
            raise InvalidRequest(f"{PROTOCOL}://{source} cannot be moved to {target}, which is the same or below it")


def _not_there(relative: str) -> FileNotFoundError:
    removal = read_removal(local_store(), relative)
    return missing(relative) if removal is None else missing(relative, described(removal))


def _taken(relative: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, "exists in this or another region", f"{PROTOCOL}://{relative}")


def _reopen(fs: MirrorFileSystem, path: str, position: int) -> Any:
    stream = fs.open(path, "rb")
    stream.seek(position)
    return stream
