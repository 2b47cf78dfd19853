"""Write files atomically, and read files that may not exist."""

import contextlib
import errno
import functools
import io
import itertools
import os
import stat
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from rigging.errors import InvalidRequest
from rigging.filesystem.fences import check_writable
from rigging.filesystem.location import NO_ROOM, OBJECT_STORE_PROTOCOLS, Url, local_path, name_path, url_scheme
from rigging.filesystem.opening import url_to_fs

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

#: How names of files in the making begin; listings may hide them.
TEMPORARY_PREFIX = ".marin-tmp-"
_ONE_PUT_BYTES = 16 * 2**20


def write_bytes_atomic(url: Url, data: bytes, *, durable: bool = False) -> None:
    """Replace the content of `url` with `data`. Readers see the old content or the new, never a part.

    Local files are written under a temporary name in the same directory, then renamed; missing parents are created. A
    replaced file keeps its mode, and its owner where this process may set it. Object stores use one put. Other
    filesystems use a temporary name and their own move, which may not be atomic.

    Args:
        url: A plain path, file:// or any fsspec URL.
        data: The complete new content.
        durable: Also wait until a local disk has stored it, so that it survives a power failure.
    """
    path = local_path(url)
    if path is None:
        _put_bytes(url, data)
    elif durable:
        with _replacing(path, durable) as descriptor:
            _write_all(descriptor, data)
    else:
        replace_file(path, data)


def replace_file(path: str, data: bytes, *, keep_rights: bool = True) -> None:
    """Same as `write_bytes_atomic`, for an absolute local path.

    Args:
        path: The file.
        data: The complete new content.
        keep_rights: Whether an existing file may have a mode and owner to keep. False saves a stat.
    """
    # As `_replacing` does, in half the time: a step's small files are made here.
    old = _status(path) if keep_rights else None
    temporary, descriptor = _create_temporary(path, old)
    try:
        try:
            _write_all(descriptor, data)
            if old is not None and stat.S_ISREG(old.st_mode):
                _keep_rights(descriptor, old)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException as error:
        _remove_temporary(temporary)
        if isinstance(error, OSError):
            name_path(error, path)
        raise


def _write_all(descriptor: int, data: bytes) -> None:
    # A file object would cost a small file more than all the rest.
    written = os.write(descriptor, data)
    while written < len(data):  # the kernel takes at most 2 GiB at once
        written += os.write(descriptor, memoryview(data)[written:])


def _remove_temporary(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


@contextlib.contextmanager
def atomic_write(url: Url, mode: str = "wb", *, durable: bool = False) -> Iterator[IO[Any]]:
    """Open `url` for writing. The file appears at the end of the block; it does not if the block raises.

    Args:
        url: A plain path, file:// or any fsspec URL. For other filesystems the data is spooled to a local temporary
            file and uploaded at the end.
        mode: "wb" for bytes, "w" for UTF-8 text.
        durable: Also wait until a local disk has stored it.

    Raises:
        LeaseLostError: The path belongs to a step whose lease this process has lost.
    """
    if mode not in ("wb", "w"):
        raise InvalidRequest(f"atomic_write of {os.fspath(url)!r}: mode {mode!r} is not one of 'wb', 'w'")
    check_writable(url)
    path = local_path(url)
    if path is None:
        with _uploaded_at_end(url) as spool, _as_mode(spool, mode) as stream:
            yield stream
            check_writable(url)
        return
    with (
        _replacing(path, durable, streamed=True) as descriptor,
        open(descriptor, "wb", closefd=False) as handle,
        _as_mode(handle, mode) as stream,
    ):
        yield stream
        check_writable(url)


def upload_file(source: str | os.PathLike[str], url: Url) -> None:
    """Upload a local file to `url` on another filesystem. Readers see all of it or nothing."""
    if os.path.getsize(source) <= _ONE_PUT_BYTES:
        with open(source, "rb") as handle:
            _put_bytes(url, handle.read())
        return
    fs, path = url_to_fs(url)
    with _under_final_name(fs, path, url) as target:
        fs.put_file(os.fspath(source), target)


def sync_names(path: str | os.PathLike[str], known: str | os.PathLike[str] | None = None) -> None:
    """Wait until the disk has stored the directory entry of `path`. Without it, a crash loses even a synced file.

    Args:
        path: The file, already synced.
        known: A parent directory whose own entry is stored; the directories between were just created. None means the
            direct parent.
    """
    directory = os.path.dirname(os.fspath(path))
    top = directory if known is None else os.fspath(known)
    while True:
        descriptor = os.open(directory or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # so filesystems answer that have nothing to wait for
                raise
        finally:
            os.close(descriptor)
        if directory == top:
            return
        directory = os.path.dirname(directory)


def _existing_directory(path: str) -> str:
    directory = os.path.dirname(path)
    while directory and not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    return directory


def read_bytes_or_none(url: Url) -> bytes | None:
    """Return the whole content of `url`, or None if the file does not exist. Other failures raise."""
    path = local_path(url)
    try:
        if path is not None:
            with open(path, "rb", buffering=0) as handle:
                return handle.read()
        fs, remote = url_to_fs(url)
        content: bytes = fs.cat_file(remote)
        return content
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        name_path(error, url)
        raise


_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_numbers = itertools.count()


@functools.lru_cache(maxsize=1)
def _process_mark(pid: int) -> str:
    """Return the prefix of this process's temporary file names. A forked child creates its own."""
    return f"{TEMPORARY_PREFIX}{pid}-{os.urandom(6).hex()}"


@contextlib.contextmanager
def _replacing(path: str, durable: bool, *, streamed: bool = False) -> Iterator[int]:
    """Yield the descriptor of a new file beside `path`, which replaces it at the end of the block.

    Args:
        path: A local path.
        durable: As in `atomic_write`.
        streamed: Whether the block runs the caller's code. Then only a full disk is reported as an error of `path`.
    """
    known = _existing_directory(path) if durable else ""
    old = _status(path)
    temporary, descriptor = _create_temporary(path, old)
    try:
        try:
            yield descriptor
            if streamed:
                old = _status(path)
            if old is not None and stat.S_ISREG(old.st_mode):
                _keep_rights(descriptor, old)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException as error:
        _remove_temporary(temporary)
        if isinstance(error, OSError) and (not streamed or error.errno in NO_ROOM):
            name_path(error, path)
        raise
    if durable:
        sync_names(path, known)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:  # there is none, or none any more
        return None


def _create_temporary(path: str, old: os.stat_result | None) -> tuple[str, int]:
    """Return the unique name and the descriptor of a new, empty file beside `path`."""
    directory = path.rpartition("/")[0]
    temporary = f"{directory}/{_process_mark(os.getpid())}-{next(_numbers):x}"
    # What replaces a file is private until it has that file's rights.
    mode = 0o666 if old is None else 0o600
    try:
        return temporary, _open_new(temporary, directory, mode)
    except OSError as error:
        if error.filename == temporary:
            error.filename = path  # the name that the caller knows
        raise


def _open_new(temporary: str, directory: str, mode: int) -> int:
    try:
        return os.open(temporary, _FLAGS, mode)
    except FileNotFoundError:
        os.makedirs(directory, exist_ok=True)
        return os.open(temporary, _FLAGS, 0o666)


def _keep_rights(descriptor: int, old: os.stat_result) -> None:
    """Copy the mode, and where allowed the owner, of the replaced file to a new file."""
    new = os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    if (old.st_mode ^ new.st_mode) & 0o777:
        os.fchmod(descriptor, old.st_mode & 0o777)


@contextlib.contextmanager
def _as_mode(handle: IO[bytes], mode: str) -> Iterator[IO[Any]]:
    if mode == "wb":
        yield handle
        return
    text = io.TextIOWrapper(handle, encoding="utf-8", newline="", write_through=True)
    try:
        yield text
    finally:
        # The wrapper must not close the file under it, which is still to be synced or uploaded.
        text.detach()


@contextlib.contextmanager
def _uploaded_at_end(url: Url) -> Iterator[IO[bytes]]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="marin-upload-") as directory:
        spool = os.path.join(directory, "content")
        with open(spool, "xb") as handle:
            yield handle
        upload_file(spool, url)


def _put_bytes(url: Url, data: bytes) -> None:
    fs, path = url_to_fs(url)
    with _under_final_name(fs, path, url) as target:
        fs.pipe_file(target, data)


@contextlib.contextmanager
def _under_final_name(fs: "AbstractFileSystem", path: str, url: Url) -> Iterator[str]:
    """Yield the name to write to: a temporary name, moved at the end, where a put is not atomic."""
    if url_scheme(url) in OBJECT_STORE_PROTOCOLS:
        try:
            yield path
        except OSError as error:
            name_path(error, url)
            raise
        return
    parent, _, _ = path.rpartition("/")
    temporary = f"{parent}/{TEMPORARY_PREFIX}{os.urandom(8).hex()}"
    fs.makedirs(parent, exist_ok=True)
    try:
        yield temporary
        fs.mv(temporary, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            fs.rm_file(temporary)
        if isinstance(error, OSError):
            name_path(error, url)
        raise
