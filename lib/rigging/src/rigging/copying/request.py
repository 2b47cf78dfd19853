"""Requests to copy files, and the method for each. Decisions only, no I/O."""

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
    """Settings for copies.

    Args:
        chunk_bytes: Bytes moved at a time. A copy holds two to four such chunks in memory.
        workers: Number of concurrent copies of small files between object stores.
        heartbeat_interval: Seconds between renewals of a copy's lease.
        heartbeat_timeout: Seconds without a renewal (for a local copy: without progress) after which others take over.
        s3_parts: Maximum number of parts in one S3 upload.
        s3_copy_bytes: S3 copies larger objects in parts of this size.
        s3_memory_bytes: Larger upload parts are spooled to a temporary file; the client holds about three copies of a
            part in memory.
        gcs_compose_parts: Maximum number of objects that GCS composes in one call.
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
        mark: The store's own version mark (generation, ETag, modification time); "" if it has none.
        md5: Hexadecimal; "" if the store does not publish one.
        crc32c: Hexadecimal; "" if the store does not publish one.
        generation: GCS's number of this version; "" elsewhere.
    """

    size: int
    mark: str
    md5: str = ""
    crc32c: str = ""
    generation: str = ""

    def fingerprint(self) -> str:
        """Return a text that identifies this version of a file."""
        return f"{self.size}|{self.mark}"


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """A request to copy a file into the local prefix."""

    path: str
    source: PrefixStore
    version: FileVersion

    @property
    def source_path(self) -> str:
        """The file's path in the source filesystem."""
        return self.source.path(self.path)

    @property
    def source_url(self) -> str:
        """The file's full URL."""
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
    """The way of transferring the bytes."""

    TO_LOCAL_FILE = "to a local file"
    SERVER_SIDE = "server-side"
    TO_OBJECT = "through this machine into an object"
    UNDER_TEMPORARY_NAME = "through this machine, under a temporary name"


def copy_method(source: PrefixStore, destination: PrefixStore) -> CopyMethod:
    """Return the method for copying a file from one prefix to another."""
    if destination.kind is StoreKind.LOCAL:
        return CopyMethod.TO_LOCAL_FILE
    if destination.kind in (StoreKind.GCS, StoreKind.S3):
        # The same instance means the same account and endpoint: the store can copy by itself.
        return CopyMethod.SERVER_SIDE if source.fs is destination.fs else CopyMethod.TO_OBJECT
    return CopyMethod.UNDER_TEMPORARY_NAME


def version_of(info: Info, url: str) -> FileVersion:
    """Return the file version in a store's listing entry.

    Raises:
        InvalidRequest: The entry is not a file. Reading a FIFO, for example, would wait for a writer.
        Unavailable: The store does not report the size, so the copy cannot be charged and is refused.
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
    """Yield the (start, end) of each piece of the bytes from `start` to `size`.

    Args:
        start: Offset of the first byte.
        size: Offset of the end.
        chunk_bytes: Maximum bytes of a piece.
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
