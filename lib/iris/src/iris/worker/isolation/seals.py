"""Detects changes to directories that no mount protects from tasks."""

import hashlib
import os
import stat
from pathlib import Path

from iris.worker.host.removal import remove_tree


class Seals:
    """Records the state of finished directories; a directory without a record counts as changed."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def seal(self, path: Path) -> None:
        """Record the current state of `path` as intact. Raises OSError."""
        self._known[str(path)] = tree_state(path)

    def is_intact(self, path: Path) -> bool:
        """Return whether no content, name or mode below `path` has changed since `seal`."""
        known = self._known.get(str(path))
        if known is None:
            return False
        try:
            return tree_state(path) == known
        except OSError:
            return False


def tree_state(path: Path) -> bytes:
    """Return a digest of the names, inodes, sizes, modes and change times of all files below `path`.

    Any write changes the digest, because a file's change time (ctime) cannot be set. Takes one stat per file. Raises
    OSError.
    """
    digest = hashlib.blake2b(digest_size=16)
    waiting = [str(path)]
    while waiting:
        directory = waiting.pop()
        _add(digest, directory, os.stat(directory))
        with os.scandir(directory) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                status = entry.stat(follow_symlinks=False)
                _add(digest, entry.name, status)
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(entry.path)
    return digest.digest()


def copy_tree(source: Path, target: Path) -> None:
    """Copy a bundle to the new directory `target`, writable by its owner. Raises OSError."""
    try:
        target.mkdir(mode=0o700)
        with os.scandir(source) as entries:
            for entry in entries:
                copy = target / entry.name
                if entry.is_symlink():
                    copy.symlink_to(os.readlink(entry.path))
                elif entry.is_dir():
                    copy_tree(Path(entry.path), copy)
                else:
                    _copy_file(entry.path, copy)
    except OSError:
        remove_tree(str(target))
        raise


def own_tree(path: Path, uid: int) -> None:
    """Change the owner of a file or tree to a uid and its group, children first. Raises OSError.

    No link is followed: only root can replace entries of a directory that does not belong to the uid yet.
    """
    for directory, folders, names in os.walk(path, topdown=False):
        for name in (*folders, *names):
            os.lchown(os.path.join(directory, name), uid, uid)
    os.lchown(path, uid, uid)


def _copy_file(source: str, target: Path) -> None:
    with open(source, "rb") as file, open(target, "xb") as copy:
        status = os.fstat(file.fileno())
        left = status.st_size
        while left:
            sent = os.sendfile(copy.fileno(), file.fileno(), None, left)
            if not sent:
                break
            left -= sent
        os.fchmod(copy.fileno(), stat.S_IMODE(status.st_mode) | stat.S_IWUSR)
        os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))  # what is compiled of it stays valid


def _add(digest: hashlib.blake2b, name: str, status: os.stat_result) -> None:
    state = (status.st_ino, status.st_size, status.st_mode, status.st_mtime_ns, status.st_ctime_ns)
    digest.update(f"{name}\0{state}\n".encode(errors="surrogateescape"))
