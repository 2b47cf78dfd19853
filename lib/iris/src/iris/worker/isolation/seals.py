"""Detection of changes to a directory, where no mount can protect it from tasks."""

import hashlib
import os
import stat
from pathlib import Path

from iris.worker.host.removal import remove_tree


class Seals:
    """Records the state of finished directories; unrecorded ones count as changed."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def seal(self, path: Path) -> None:
        """Record the current state of `path` as intact. Raises OSError."""
        self._known[str(path)] = tree_state(path)

    def is_intact(self, path: Path) -> bool:
        """Return whether nothing below `path` was written, removed, added or had its mode changed since it was
        sealed.
        """
        known = self._known.get(str(path))
        if known is None:
            return False
        try:
            return tree_state(path) == known
        except OSError:
            return False


def tree_state(path: Path) -> bytes:
    """Return a digest of names, numbers, sizes, modes and change times of everything below `path`.

    Any write changes it, because a file's change time (ctime) cannot be set. Takes one stat per file. Raises OSError.
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
    """Copy a bundle to `target`, which must not exist, so that its owner can change all of it. Raises OSError."""
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

    Until a directory belongs to the uid only root can replace entries in it, so links are not followed.
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
