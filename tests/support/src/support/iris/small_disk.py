"""A small separate file system, for tests of a full disk."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CHUNK = 64 * 1024


class SmallDisk:
    """A mounted tmpfs, and a file that fills it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._filler = root / "filler"

    @property
    def free(self) -> int:
        found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Fill the free space, except about `leave` bytes."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (_CHUNK, 4096, 1):
                try:
                    while self.free > leave:
                        file.write(bytes(size))
                except OSError:
                    continue

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)


@contextmanager
def small_disk(root: Path, size: str = "20m") -> Iterator[SmallDisk | None]:
    """Context manager: yield a tmpfs of that size; None if this user may not mount."""
    root.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", str(root)], capture_output=True, check=False
    )
    if mounted.returncode:
        yield None
        return
    try:
        yield SmallDisk(root)
    finally:
        # Lazily: a process that is about to end may still have a file open.
        subprocess.run(["umount", "-l", str(root)], check=True)
