"""The controller's blobs: immutable byte strings named by their SHA-256, one file each.

A blob is written under a temporary name, verified and renamed, so a file named by a digest is complete. Later damage is
detected at each read, and at the first use by a process. A damaged blob is removed and requested again.
"""

import contextlib
import errno
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

from iris.rpc.protocol import MAX_BLOB_CHUNK_BYTES
from rigging.errors import BudgetExceeded, InvalidRequest, NotFound

# How old the mark of a blob's last use may be before it is renewed; far below any grace.
_TOUCH_EVERY_S: Final = 600.0
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def check_digest(digest: str) -> str:
    """Return `digest` if it is a SHA-256 in lowercase hex. Raise InvalidRequest otherwise."""
    if not _DIGEST.fullmatch(digest):
        raise InvalidRequest(f"{digest[:80]!r} is not a blob digest: expected 64 lowercase hex digits (SHA-256)")
    return digest


class BlobStore:
    """Blobs below one directory, `ab/<digest>`.

    Args:
        has_room: Returns whether the disk has room for more bytes.
    """

    def __init__(self, root: Path, has_room: Callable[[int], bool] = lambda count: count >= 0) -> None:
        self._root = root
        self._has_room = has_room
        # When this process last wrote down that a blob is in use.
        self._used_at: dict[str, float] = {}
        self._verified: set[str] = set()
        self.removals = 0
        """Incremented when blobs are removed, which makes earlier checks for completeness stale."""

    def path(self, digest: str) -> Path:
        return self._root / digest[:2] / check_digest(digest)

    def has(self, digest: str) -> bool:
        """Return whether the blob is stored. If so it stays for `ControllerConfig.blob_grace_s`."""
        now = time.time()
        if self._used_at.get(digest, 0) > now - _TOUCH_EVERY_S:
            return True
        try:
            os.utime(self.path(digest), (now, now))
        except FileNotFoundError:
            self._lost(digest)
            return False
        self._used_at[digest] = now
        return True

    def is_verified(self, digest: str) -> bool:
        """Return whether the blob is stored and this process has verified it, without reading the file."""
        return digest in self._verified and self.has(digest)

    def verify(self, digest: str) -> bool:
        """Return whether the blob is stored and intact; remove a damaged one. Reads the file once per process."""
        if not self.has(digest):
            return False
        if digest not in self._verified:
            try:
                for _ in self.read(digest):
                    pass
            except NotFound:
                return False
        return True

    def unsound(self, digests: Iterable[str]) -> list[str]:
        """Return the `digests` of missing or damaged blobs, in order without duplicates. May read all of them."""
        return [digest for digest in dict.fromkeys(digests) if not self.verify(digest)]

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Return the `digests` of missing blobs, in order without duplicates."""
        return [digest for digest in dict.fromkeys(digests) if not self.has(digest)]

    def unused_since(self, before: float) -> Iterator[str]:
        """Return the digests of blobs not used since `before` (Unix seconds). Reads the whole directory."""
        for directory in os.scandir(self._root) if self._root.is_dir() else ():
            for entry in os.scandir(directory.path) if directory.is_dir() else ():
                if entry.stat().st_mtime < before and _DIGEST.fullmatch(entry.name):
                    yield entry.name

    def remove_unused(self, digest: str, before: float) -> bool:
        """Remove a blob unless it was used since `before`. Return whether the blob is gone."""
        try:
            if self.path(digest).stat().st_mtime >= before:
                return False
        except FileNotFoundError:
            return True
        self._discard(digest)
        return True

    def put(self, data: bytes) -> str:
        """Store one blob and return its digest."""
        digest = hashlib.sha256(data).hexdigest()
        if not self.verify(digest):
            with Upload(self) as upload:
                upload.add(digest, 0, data, last=True)
        return digest

    def read(self, digest: str) -> Iterator[tuple[int, bytes, bool]]:
        """Yield a blob in chunks of at most 1 MiB: (offset, data, is last). Raise NotFound, also if the blob is
        damaged.
        """
        try:
            file = self.path(digest).open("rb")
        except FileNotFoundError:
            self._lost(digest)
            raise NotFound(f"the controller has no blob {digest} any more: submit again, which uploads it") from None
        with file:
            size = os.fstat(file.fileno()).st_size
            check, offset = hashlib.sha256(), 0
            while True:
                data = file.read(MAX_BLOB_CHUNK_BYTES)
                check.update(data)
                last = offset + len(data) >= size
                if last and check.hexdigest() != digest:
                    if os.path.samestat(os.fstat(file.fileno()), self.path(digest).stat()):  # no other came meanwhile
                        self._discard(digest)
                    raise NotFound(
                        f"blob {digest} was damaged on the controller's disk and is removed: "
                        "submit again, which uploads it"
                    )
                if last:
                    self._verified.add(digest)
                yield offset, data, last
                if last:
                    return
                offset += len(data)

    def size(self, digest: str) -> int:
        """Return the size of a blob. Raise NotFound."""
        try:
            return self.path(digest).stat().st_size
        except FileNotFoundError:
            raise NotFound(f"the controller has no blob {digest}") from None

    def accept(self, temporary: Path, digest: str) -> None:
        """Rename a complete, verified file to its digest, for `Upload`."""
        target = self.path(digest)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.rename(target)
        self._used_at[digest] = time.time()
        self._verified.add(digest)

    def temporary_file(self) -> tuple[int, Path]:
        """Return a new empty file, open for writing, on the blobs' file system."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix="upload.", dir=self._root)
        return descriptor, Path(name)

    def has_room(self, count: int) -> bool:
        """Return whether there is room for `count` more bytes."""
        return self._has_room(count)

    def no_room(self) -> BudgetExceeded:
        """Return the error for an upload that does not fit on the disk."""
        return BudgetExceeded(
            f"there is no room for more files on the controller's disk ({self._root}); free some there"
        )

    def remove_leftovers(self) -> None:
        """Remove unfinished uploads of an earlier process."""
        for path in self._root.glob("upload.*"):
            path.unlink(missing_ok=True)

    def _discard(self, digest: str) -> None:
        self._lost(digest)
        self.path(digest).unlink(missing_ok=True)

    def _lost(self, digest: str) -> None:
        if self._used_at.pop(digest, None) is not None or digest in self._verified:
            self.removals += 1
        self._verified.discard(digest)


class Upload:
    """The blobs that one caller sends in chunks. Leaving the context drops unfinished blobs."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._open: dict[str, _Partial] = {}
        self.stored = 0

    def add(self, digest: str, offset: int, data: bytes, last: bool) -> None:
        """Add one chunk. Chunks of a blob must come in order.

        Raise InvalidRequest for a gap or a wrong digest, BudgetExceeded if the disk is full.

        Args:
            digest: The SHA-256 of the whole blob.
            offset: The offset of the chunk in the blob.
            data: The chunk.
            last: Whether it is the blob's last chunk.
        """
        if not self._store.has_room(len(data)):
            raise self._store.no_room()
        try:
            self._add(digest, offset, data, last)
        except OSError as error:
            raise self._store.no_room() if error.errno in _FULL else error from None

    def _add(self, digest: str, offset: int, data: bytes, last: bool) -> None:
        partial = self._open.get(check_digest(digest))
        if partial is None:
            if offset:
                raise InvalidRequest(f"blob {digest}: the first chunk has offset {offset}, expected 0")
            partial = self._open[digest] = _Partial(*self._store.temporary_file())
        if offset != partial.size:
            raise InvalidRequest(f"blob {digest}: chunk at offset {offset}, expected {partial.size}")
        partial.write(data)
        if last:
            actual = partial.finish()
            del self._open[digest]
            if actual != digest:
                partial.path.unlink(missing_ok=True)
                raise InvalidRequest(f"blob {digest}: the {partial.size} bytes sent have the digest {actual}")
            self._store.accept(partial.path, digest)
            self.stored += 1

    @property
    def unfinished(self) -> list[str]:
        return list(self._open)

    def __enter__(self) -> "Upload":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for partial in self._open.values():
            with contextlib.suppress(OSError):  # what is not on disk yet is not wanted any more
                partial.finish()
            partial.path.unlink(missing_ok=True)
        self._open.clear()


class _Partial:
    def __init__(self, descriptor: int, path: Path) -> None:
        self._file = os.fdopen(descriptor, "wb")
        self._digest = hashlib.sha256()
        self.path = path
        self.size = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    def finish(self) -> str:
        self._file.close()
        return self._digest.hexdigest()
