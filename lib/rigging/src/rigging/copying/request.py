"""Requests to copy files, and the method of each: decisions without I/O."""

import base64
import binascii
import stat
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from rigging.errors import InvalidRequest, Unavailable
from rigging.prefixes.prefix_store import Info, PrefixStore, StoreKind

_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


@dataclass(frozen=True, slots=True)
class Settings:
    """How copies are made.

    Args:
        chunk_bytes: Bytes moved at a time; a copy holds two to four such chunks in memory.
        workers: Copies of small files under way at once, between object stores.
        heartbeat_interval: Seconds between renewals of the lease on a copy.
        heartbeat_timeout: Seconds without a renewal (of a local copy: without progress) after which others take over.
        s3_parts: The most parts of one upload that S3 takes.
        s3_copy_bytes: Larger objects are copied by S3 in parts of this size.
        s3_memory_bytes: Larger parts of an upload wait in a temporary file; the client holds about three copies of one
            that is in memory.
        gcs_compose_parts: The most objects that GCS puts together in one call.
    """

    chunk_bytes: int = 8 * 2**20
    workers: int = 64
    heartbeat_interval: float = 30.0
    heartbeat_timeout: float = 90.0
    s3_parts: int = 10_000
    s3_copy_bytes: int = 512 * 2**20
    s3_memory_bytes: int = 16 * 2**20
    gcs_compose_parts: int = 32


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One version of a file in one region.

    Args:
        size: In bytes.
        mark: The store's own mark of this version (generation, ETag, modification time), "" when it has none.
        md5: Hexadecimal, "" when the store does not give one.
        crc32c: Hexadecimal, likewise.
        generation: GCS's number of this version, "" elsewhere.
    """

    size: int
    mark: str
    md5: str = ""
    crc32c: str = ""
    generation: str = ""

    def fingerprint(self) -> str:
        """Return what tells this version of a file from others."""
        return f"{self.size}|{self.mark}"


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """A file that is to be copied into the local prefix."""

    path: str
    source: PrefixStore
    version: FileVersion

    @property
    def source_path(self) -> str:
        """The source filesystem's own path of the file."""
        return self.source.path(self.path)

    @property
    def source_url(self) -> str:
        """Where the file is, in full."""
        return self.source.url(self.path)


#: Counts bytes as they move.
Moved = Callable[[int], None]
#: Reserves bytes in the budget; returns the counter of those that move.
Reserve = Callable[[int], Moved]
#: Raises LeaseLostError when the copy is not ours to make any more.
Check = Callable[[], None]
#: Called with each file that is there, and the bytes that moved for it.
Done = Callable[[CopyRequest, int], None]


class CopyMethod(StrEnum):
    """How the bytes go."""

    TO_LOCAL_FILE = "to a local file"
    SERVER_SIDE = "server-side"
    TO_OBJECT = "through this machine into an object"
    UNDER_TEMPORARY_NAME = "through this machine, under a temporary name"


def copy_method(source: PrefixStore, destination: PrefixStore) -> CopyMethod:
    """Decide how a file goes from one prefix to another."""
    if destination.kind is StoreKind.LOCAL:
        return CopyMethod.TO_LOCAL_FILE
    if destination.kind in (StoreKind.GCS, StoreKind.S3):
        # The same instance means the same account and endpoint: the store can copy by itself.
        return CopyMethod.SERVER_SIDE if source.fs is destination.fs else CopyMethod.TO_OBJECT
    return CopyMethod.UNDER_TEMPORARY_NAME


def version_of(info: Info, url: str) -> FileVersion:
    """Read a store's entry of a file.

    Raises:
        InvalidRequest: It is no file: reading a FIFO, say, would wait for a writer.
        Unavailable: The store does not tell the size: the copy cannot be charged, so it is refused.
    """
    if info.get("type") == "other":
        raise InvalidRequest(f"{url} is {_kind_of(info)}, not a file, so it is not copied; remove it there")
    size = info.get("size")
    if not isinstance(size, int) or size < 0:
        raise Unavailable(f"{url}: its size is unknown ({size!r}), so the copy cannot be charged to the budget")
    if isinstance(mtime := info.get("mtime"), float):
        return FileVersion(size, str(mtime))  # a local file
    generation = str(info.get("generation") or "")
    etag = str(info.get("ETag") or "").strip('"')
    times = (info[key] for key in ("mtime", "LastModified", "created") if info.get(key) is not None)
    mark = generation or etag or str(next(times, ""))
    md5 = _hexadecimal(info.get("md5Hash")) or (etag.lower() if _is_md5(etag) else "")
    return FileVersion(size, mark, md5, _hexadecimal(info.get("crc32c")), generation)


def _kind_of(info: Info) -> str:
    mode = info.get("mode")
    kind = stat.S_IFMT(mode) if isinstance(mode, int) else 0
    return _KINDS.get(kind, "of an unknown kind")


def chunks(start: int, size: int, chunk_bytes: int) -> list[tuple[int, int]]:
    """Return the (start, end) of the pieces in which the bytes from `start` to `size` are moved.

    Args:
        start: Offset of the first byte.
        size: Offset of the end.
        chunk_bytes: The most bytes of a piece.
    """
    return [(offset, min(offset + chunk_bytes, size)) for offset in range(start, size, chunk_bytes)]


def _hexadecimal(encoded: object) -> str:
    try:
        return base64.b64decode(encoded, validate=True).hex() if isinstance(encoded, str) else ""
    except binascii.Error:
        return ""


def _is_md5(etag: str) -> bool:
    # The ETag of an object uploaded in parts ends with -N and is no digest of the content.
    return len(etag) == 32 and all(digit in "0123456789abcdefABCDEF" for digit in etag)
