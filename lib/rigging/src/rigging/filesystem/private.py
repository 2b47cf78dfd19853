"""Files that only this user may read or write, such as keys, and folders that only this user may write to."""

import contextlib
import os
import secrets
import stat
from collections.abc import Callable
from typing import Final

from rigging.errors import Denied
from rigging.filesystem.atomic import sync_names

LocalPath = str | os.PathLike[str]

_OPEN_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not make it wait
_FOR_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_WRITTEN_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def read_private(path: LocalPath, what: str) -> bytes | None:
    """Return the content of a file that only this user can access; None if it does not exist.

    Content that others could have written is never returned: the checks apply to the open file, not its name.

    Args:
        path: The file. Symbolic links are refused.
        what: Its name in errors, e.g. "the cluster's secret".

    Returns:
        The whole content in bytes.

    Raises:
        Denied: The file is not regular, belongs to another user, or others can read or write it.
        OSError: The file cannot be read.
    """
    try:
        descriptor = os.open(path, _OPEN_FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        try:
            status = os.lstat(path)
        except OSError:
            raise error from None
        _check_file(status, path, what)
        raise
    try:
        _check_file(os.fstat(descriptor), path, what)
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def load_or_create(path: LocalPath, make: Callable[[], bytes], what: str) -> bytes:
    """Return the content of a private file, creating it if it is missing.

    If several processes create it at once, one succeeds and all return its content. Readers never see a part of it, and
    the disk has stored it before this returns.

    Args:
        path: The file, in an existing folder.
        make: Returns the content of a new file.
        what: Its name in errors.

    Returns:
        The whole content in bytes.

    Raises:
        Denied: As in `read_private`.
        OSError: The file cannot be read or created.
    """
    found = read_private(path, what)
    if found is not None:
        return found
    temporary = f"{os.fspath(path)}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(make())
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another process was first: its content is the one
            os.link(temporary, path)
    finally:
        os.unlink(temporary)
    sync_names(path)
    found = read_private(path, what)
    if found is None:
        raise FileNotFoundError(f"{what} {os.fspath(path)} was removed while it was being created")
    return found


def write_private(path: LocalPath, data: bytes, *, durable: bool = False) -> None:
    """Replace a file that only this user can read. Readers see the old content or the new, never a part.

    Args:
        path: The file, in an existing folder. A symbolic link is replaced, not followed.
        data: The complete new content.
        durable: Also wait until the disk has stored it.

    Raises:
        OSError: The file cannot be written. No temporary file is left.
    """
    temporary = f"{os.fspath(path)}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    if durable:
        sync_names(path)


def check_own_folder(path: LocalPath, what: str, cure: str, *, follow_links: bool = True) -> None:
    """Check that no other user can create or replace files in a folder.

    Args:
        path: The folder.
        what: Its name in errors, e.g. "the work directory".
        cure: The end of the error: how to fix it.
        follow_links: False refuses a symbolic link, for names that others could have created first.

    Raises:
        Denied: The path is not a folder, belongs neither to this user nor to root, or others can write to it.
        OSError: The folder does not exist.
    """
    status = os.stat(path) if follow_links else os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        wrong = f"is not a directory but {_kind(status.st_mode)}"
    elif status.st_uid not in (os.geteuid(), 0):
        wrong = f"belongs to uid {status.st_uid}, not to you (uid {os.geteuid()})"
    elif status.st_mode & _WRITTEN_BY_OTHERS:
        wrong = f"has mode {stat.S_IMODE(status.st_mode):03o}, so others can write to it"
    else:
        return
    raise Denied(f"{what} {os.fspath(path)} {wrong}: {cure}")


def _check_file(status: os.stat_result, path: LocalPath, what: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        wrong, cure = f"is not a regular file but {_kind(status.st_mode)}", "remove it"
    elif status.st_uid != os.geteuid():
        wrong, cure = f"belongs to uid {status.st_uid}, not to you (uid {os.geteuid()})", "remove it"
    elif status.st_mode & _FOR_OTHERS:
        can = "write" if status.st_mode & _WRITTEN_BY_OTHERS else "read"
        wrong = f"has mode {stat.S_IMODE(status.st_mode):03o}, so others can {can} it"
        cure = "chmod 600 it if you trust what is in it, else remove it"
    else:
        return
    raise Denied(f"{what} {os.fspath(path)} {wrong}: {cure}")


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")


_KINDS: Final = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}
