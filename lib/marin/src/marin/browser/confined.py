"""Access confined to files below one storage root. Names that lead elsewhere are refused, including symbolic links."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from marin.browser.listing import Entry, Listing
from marin.recorded.reading.store import read_part
from marin.stored_files import reading
from rigging.errors import Denied, InvalidRequest, MarinError, NotFound, Unavailable
from rigging.filesystem import local_path, url_to_fs

_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO must not make it wait
_CHUNK: Final = 1 << 20
_MOST_NAMES: Final = 1000
_MOST_BYTES: Final = 256 << 20
_END_BYTES: Final = 64 << 10
#: Nothing can be at a name for which the system says one of these; the last is of links that lead in a circle.
_NOTHING_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


@contextlib.contextmanager
def _local_errors(name: str, root: str) -> Iterator[None]:
    """Context manager: convert disk errors to marin's, with the name instead of the path.

    Raises:
        NotFound: The name does not exist.
        Denied: This process may not read the file, or it is a socket or device.
        Unavailable: The disk failed.
    """
    try:
        yield
    except MarinError:
        raise
    except OSError as error:
        # Libraries of object stores give no number.
        if error.errno in _NOTHING_THERE or isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise NotFound(f"nothing at {name[:100]!r} below {root}") from None
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket; a device that is not there
            raise Denied(f"{name[:100]!r} is not a regular file") from None
        if isinstance(error, PermissionError):
            raise Denied(f"{name[:100]!r} may not be read by this server") from None
        raise Unavailable(f"{name[:100]!r} cannot be read: {error.strerror or type(error).__name__}") from error


class Confined:
    """A storage root, read by relative names.

    Args:
        root: The directory or URL, absolute, without a trailing slash.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._local = local_path(root)
        # What was recorded may name the root in another way: without `..`, or where a symbolic link leads.
        local = () if self._local is None else (os.path.normpath(self._local), os.path.realpath(self._local))
        self._spellings = tuple(dict.fromkeys((root, *local)))

    @property
    def is_local(self) -> bool:
        """Return whether the root is on a disk of this machine."""
        return self._local is not None

    def name_of(self, path: str) -> str | None:
        """Return the relative name of a path below the root; None for any other path."""
        for root in self._spellings:
            if path.startswith(f"{root}/"):
                name = path[len(root) + 1 :].rstrip("/")
                return name if _is_plain(name) else None
        return None

    def path(self, name: str) -> str:
        """Return the path of a name, which must not lead out of the root.

        Raises:
            InvalidRequest: The name is not a plain relative name.
            Denied: A symbolic link leads out of the root.
        """
        if self._local is not None:
            self._resolve(name)
        else:
            _check_form(name)
        return f"{self.root}/{name}" if name else self.root

    def _resolve(self, name: str) -> tuple[str, str]:
        """Return the real paths of a name on a disk and of the root. Raise like `path`."""
        assert self._local is not None
        _check_form(name)
        root = os.path.realpath(self._local)
        real = os.path.realpath(os.path.join(root, name))
        _check_below(real, root, name)
        return real, root

    def entry(self, name: str) -> Entry:
        """Return the entry of a name.

        Raises:
            NotFound: The name does not exist.
        """
        path = self.path(name)
        with _local_errors(name, self.root):
            if self._local is not None:
                return _local_entry(name, os.stat(os.path.join(self._local, name)))
            with reading(path):
                fs, remote = url_to_fs(path)
                fs.invalidate_cache(remote)
                return _remote_entry(name, fs.info(remote))

    def size(self, name: str) -> int | None:
        """Return the current size of a file; None if the file does not exist."""
        try:
            found = self.entry(name)
        except NotFound:
            return None
        return None if found.is_dir else found.size

    def entries(self, name: str) -> Listing:
        """Return the entries of a directory, without links that lead out of the root or nowhere.

        Raises:
            NotFound: The directory does not exist.
        """
        path = self.path(name)
        with _local_errors(name, self.root):
            if self._local is None:
                known = {entry.base: entry for entry in _remote_entries(path, name)}
                return Listing(((base, entry.is_dir) for base, entry in known.items()), lambda base, _: known.get(base))
            with os.scandir(os.path.join(self._local, name)) as items:
                found = [(item.name, is_dir) for item in items if (is_dir := self._kind(name, item)) is not None]
            return Listing(found, lambda base, is_dir: self._look(_joined(name, base), is_dir))

    def _kind(self, name: str, item: os.DirEntry[str]) -> bool | None:
        """Return whether an entry is a directory; None for a link that leads out of the root or nowhere."""
        try:
            if not item.is_symlink():
                return item.is_dir()
            self.path(_joined(name, item.name))
            return stat.S_ISDIR(item.stat().st_mode)
        except (OSError, Denied):
            return None

    def _look(self, name: str, is_dir: bool) -> Entry | None:
        assert self._local is not None
        try:
            return _local_entry(name, os.stat(os.path.join(self._local, name)))
        except PermissionError:
            return Entry(name, is_dir)
        except OSError:
            return None

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of a file from `start` to `end`, or to its end.

        Args:
            name: The file, below the prefix.
            start: The first byte.
            end: The byte after the last.

        Raises:
            NotFound: The file does not exist.
        """
        if self._local is None:
            path = self.path(name)
            with _local_errors(name, self.root):
                return read_part(path, start, end)
        with self.open(name) as file, _local_errors(name, self.root):
            if start >= os.fstat(file.fileno()).st_size:
                return b""  # a disk refuses to go to places that no file can have
            file.seek(start)
            return file.read(max(0, end - start))

    def end(self, name: str, most: int) -> bytes:
        """Return at most so many bytes of the end of a file.

        Raises:
            NotFound: The file does not exist.
        """
        if self._local is None:
            size = self.size(name) or 0
            return self.read(name, max(0, size - most), size)
        with self.open(name) as file, _local_errors(name, self.root):
            file.seek(max(0, os.fstat(file.fileno()).st_size - most))
            return file.read(most)

    def open(self, name: str) -> BinaryIO:
        """Open a regular file for reading. The checks apply to the open file, not its name.

        Raises:
            NotFound: The file does not exist.
            Denied: The file is not regular, not readable, or outside of the root.
        """
        with _local_errors(name, self.root):
            if self._local is not None:
                return _open_below(name, *self._resolve(name))
            path = self.path(name)
            with reading(path):
                fs, remote = url_to_fs(path)
                opened: BinaryIO = fs.open(remote, "rb")
                return opened

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield a file piece by piece, without loading all of it into memory."""
        with self.open(name) as file:
            while piece := file.read(_CHUNK):
                yield piece


@dataclass(frozen=True, slots=True)
class ConfinedFiles:
    """The files of an output below the root.

    Attributes:
        place: The root.
        output: The output's name.
    """

    place: Confined
    output: str

    def names(self, directory: str = "") -> list[str]:
        """Return the first names in a directory; [] if it does not exist."""
        try:
            found = self.place.entries(self._name(directory) if directory else self.output)
        except MarinError:
            return []
        return [entry.base for entry in found.part(0, _MOST_NAMES)]

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None if it does not exist, or leads out of the root."""
        try:
            return self.place.read(self._name(name), 0, _MOST_BYTES)
        except MarinError:
            return None

    def end(self, name: str) -> bytes:
        """Return the last 64 KiB of a file; b"" if it does not exist, or leads out of the root."""
        try:
            return self.place.end(self._name(name), _END_BYTES)
        except MarinError:
            return b""

    def size(self, name: str) -> int:
        """Return a file's size; 0 if it does not exist."""
        try:
            return self.place.size(self._name(name)) or 0
        except MarinError:
            return 0

    def _name(self, name: str) -> str:
        return f"{self.output}/{name}"


def _check_form(name: str) -> None:
    if name and not _is_plain(name):
        raise InvalidRequest(f"path {name[:100]!r}: give a name below the prefix, without empty parts, . and ..")


def _check_below(real: str, root: str, name: str) -> None:
    if real != root and not real.startswith(root.rstrip("/") + "/"):
        raise Denied(f"path {name[:100]!r} leads out of the prefix")


def _open_below(name: str, real: str, root: str) -> BinaryIO:
    descriptor = os.open(real, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Denied(f"{name[:100]!r} is not a regular file")
        # The system's own word for what is open; elsewhere the path once more.
        try:
            opened = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:
            opened = os.path.realpath(real)
        _check_below(opened, root, name)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _is_plain(name: str) -> bool:
    parts = name.split("/")
    return "\0" not in name and all(part not in ("", ".", "..") for part in parts) and "://" not in name


def _joined(name: str, base: str) -> str:
    return f"{name}/{base}" if name else base


def _local_entry(name: str, found: os.stat_result) -> Entry:
    is_dir = stat.S_ISDIR(found.st_mode)
    return Entry(name, is_dir, 0 if is_dir else found.st_size, found.st_mtime)


def _remote_entries(path: str, name: str) -> Iterator[Entry]:
    with reading(path):
        fs, remote = url_to_fs(path)
        fs.invalidate_cache(remote)
        for item in fs.ls(remote, detail=True):
            base = str(item["name"]).rstrip("/").rpartition("/")[2]
            if base and str(item["name"]).rstrip("/") != remote.rstrip("/"):
                yield _remote_entry(_joined(name, base), item)


def _remote_entry(name: str, item: dict[str, Any]) -> Entry:
    from marin.stored_files import modified_of

    return Entry(name, item.get("type") == "directory", int(item.get("size") or 0), modified_of(item))
