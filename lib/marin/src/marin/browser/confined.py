"""Files below one storage root, and nothing else: names that lead elsewhere are refused, symbolic links included."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from marin.recorded.reading.store import read_part, reading
from rigging.errors import Denied, InvalidRequest, NotFound
from rigging.filesystem import local_path, url_to_fs

_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO must not make it wait
_CHUNK: Final = 1 << 20
#: A disk's words for a name at which nothing can be: too long, below a file, a link that leads to itself.
_NOTHING_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or directory.

    Attributes:
        name: Its name below the root; "" for the root.
        is_dir: Whether it is a directory.
        size: Bytes; 0 for a directory.
        modified: When it was written, in seconds since the epoch; None when storage does not tell.
    """

    name: str
    is_dir: bool
    size: int = 0
    modified: float | None = None

    @property
    def base(self) -> str:
        """The last part of its name."""
        return self.name.rpartition("/")[2]


class Confined:
    """A storage root, read by names that are relative to it.

    Args:
        root: The directory or URL, absolute, without a slash at its end.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._local = local_path(root)

    @property
    def is_local(self) -> bool:
        """True if it is on a disk of this machine."""
        return self._local is not None

    def name_of(self, path: str) -> str | None:
        """Return the name of a path below the root; None for any other path."""
        if not path.startswith(f"{self.root}/"):
            return None
        name = path[len(self.root) + 1 :].rstrip("/")
        return name if _is_plain(name) else None

    def path(self, name: str) -> str:
        """Return the path of a name, which may not lead out of the root.

        Raises:
            InvalidRequest: It is no plain relative name.
            Denied: It leads out by a symbolic link.
        """
        if name and not _is_plain(name):
            raise InvalidRequest(f"path {name[:100]!r}: give a name below the prefix, without empty parts, . and ..")
        path = f"{self.root}/{name}" if name else self.root
        if self._local is not None:
            self._check(os.path.realpath(os.path.join(self._local, name)), name)
        return path

    def _check(self, real: str, name: str) -> None:
        assert self._local is not None
        root = os.path.realpath(self._local)
        if real != root and not real.startswith(root.rstrip("/") + "/"):
            raise Denied(f"path {name[:100]!r} leads out of the prefix")

    def entry(self, name: str) -> Entry:
        """Return what is at a name.

        Raises:
            NotFound: Nothing is.
        """
        path = self.path(name)
        try:
            if self._local is not None:
                found = os.stat(os.path.join(self._local, name))
                is_dir = stat.S_ISDIR(found.st_mode)
                return Entry(name, is_dir, 0 if is_dir else found.st_size, found.st_mtime)
            with reading(path):
                fs, remote = url_to_fs(path)
                fs.invalidate_cache(remote)
                return _remote_entry(name, fs.info(remote))
        except OSError as error:
            raise _not_found(error, f"nothing at {name[:300]!r} below {self.root}") from None

    def size(self, name: str) -> int | None:
        """Return the size of a file now; None when there is none."""
        try:
            found = self.entry(name)
        except NotFound:
            return None
        return None if found.is_dir else found.size

    def entries(self, name: str) -> list[Entry]:
        """Return what a directory has, directories first, hidden files last; links that lead out are left out.

        Raises:
            NotFound: There is no such directory.
        """
        path = self.path(name)
        try:
            found = list(self._local_entries(name) if self._local is not None else _remote_entries(path, name))
        except OSError as error:
            raise _not_found(error, f"no directory {name[:300]!r} below {self.root}") from None
        return sorted(found, key=lambda entry: (not entry.is_dir, entry.base.startswith("."), entry.name))

    def _local_entries(self, name: str) -> Iterator[Entry]:
        assert self._local is not None
        for item in os.scandir(os.path.join(self._local, name)):
            below = f"{name}/{item.name}" if name else item.name
            try:
                if item.is_symlink():
                    self.path(below)
                found = item.stat()
            except (OSError, Denied):
                continue  # gone meanwhile, or it leads nowhere or out
            is_dir = stat.S_ISDIR(found.st_mode)
            yield Entry(below, is_dir, 0 if is_dir else found.st_size, found.st_mtime)

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of a file from `start` up to `end`, or to where it ends.

        Raises:
            NotFound: There is no such file.
        """
        if self._local is None:
            path = self.path(name)
            try:
                return read_part(path, start, end)
            except OSError as error:
                raise _not_found(error, f"no file {name[:300]!r} below {self.root}") from None
        with self.open(name) as file:
            if start >= os.fstat(file.fileno()).st_size:
                return b""  # a disk refuses to go to places that no file can have
            file.seek(start)
            return file.read(max(0, end - start))

    def open(self, name: str) -> BinaryIO:
        """Open a regular file to read; the check is made on the open file, not on its name.

        Raises:
            NotFound: There is no such file.
            Denied: It is no regular file, or leads out of the root.
        """
        path = self.path(name)
        if self._local is None:
            with reading(path):
                fs, remote = url_to_fs(path)
                try:
                    opened: BinaryIO = fs.open(remote, "rb")
                except OSError as error:
                    raise _not_found(error, f"no file {name[:300]!r} below {self.root}") from None
                return opened
        real = os.path.realpath(os.path.join(self._local, name))
        try:
            descriptor = os.open(real, _FLAGS)
        except OSError as error:
            raise _not_found(error, f"no file {name[:300]!r} below {self.root}") from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Denied(f"{name[:100]!r} is no regular file")
            self._check(
                os.path.realpath(f"/proc/self/fd/{descriptor}") if os.path.exists("/proc/self/fd") else real, name
            )
            return io.open(descriptor, "rb")  # noqa: UP020 - `open` is this method's name
        except BaseException:
            os.close(descriptor)
            raise

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield a file piece by piece; it is never in memory as a whole."""
        with self.open(name) as file:
            while piece := file.read(_CHUNK):
                yield piece


def _not_found(error: OSError, words: str) -> Exception:
    """Return NotFound with these words if storage says that nothing can be at a name; else its own error."""
    is_nothing = isinstance(error, FileNotFoundError) or error.errno in _NOTHING_THERE
    return NotFound(words) if is_nothing else error


def _is_plain(name: str) -> bool:
    parts = name.split("/")
    return "\0" not in name and all(part not in ("", ".", "..") for part in parts) and "://" not in name


def _remote_entries(path: str, name: str) -> Iterator[Entry]:
    with reading(path):
        fs, remote = url_to_fs(path)
        fs.invalidate_cache(remote)
        for item in fs.ls(remote, detail=True):
            base = str(item["name"]).rstrip("/").rpartition("/")[2]
            if base and str(item["name"]).rstrip("/") != remote.rstrip("/"):
                yield _remote_entry(f"{name}/{base}" if name else base, item)


def _remote_entry(name: str, item: dict[str, Any]) -> Entry:
    from marin.recorded.reading.store import modified_of

    return Entry(name, item.get("type") == "directory", int(item.get("size") or 0), modified_of(item))
