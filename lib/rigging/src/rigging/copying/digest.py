"""Check that the copied bytes equal the source's bytes."""

import hashlib
import os
from typing import Any

from rigging.copying.request import FileVersion
from rigging.errors import Unavailable
from rigging.prefixes.prefix_store import PrefixStore, StoreKind

_READ_BYTES = 2**20


class CorruptCopyError(Unavailable):
    """The copied bytes differ from the source. None of them was kept."""


class Digest:
    """Compute a copy's checksum, if the store publishes one to compare."""

    __slots__ = ("_expected", "_hash", "_kind")

    def __init__(self, version: FileVersion) -> None:
        self._hash: Any = None
        self._kind, self._expected = "", ""
        if version.md5:
            self._kind, self._expected = "md5", version.md5
            self._hash = hashlib.md5(usedforsecurity=False)
        elif version.crc32c:
            # Objects composed of parts have no MD5.
            try:
                import google_crc32c
            except ImportError:
                return
            self._kind, self._expected = "crc32c", version.crc32c
            self._hash = google_crc32c.Checksum()  # type: ignore[no-untyped-call]

    def update(self, data: bytes) -> None:
        """Add the next bytes."""
        if self._hash is not None:
            self._hash.update(data)

    def update_from(self, descriptor: int, size: int) -> None:
        """Add the first `size` bytes of an open file."""
        if self._hash is not None:
            for offset in range(0, size, _READ_BYTES):
                self._hash.update(os.pread(descriptor, min(_READ_BYTES, size - offset), offset))

    def mismatch(self) -> str:
        """Return a description of a mismatch; "" if the bytes match or the store published no checksum."""
        if self._hash is None:
            return ""
        got = self._hash.hexdigest() if self._kind == "md5" else self._hash.digest().hex()
        return "" if got == self._expected else f"{self._kind} {got} instead of {self._expected}"


def check_digest(digest: Digest, source: PrefixStore, path: str) -> None:
    """Raise CorruptCopyError if the digest differs, unless the store's published value is not a digest.

    Args:
        digest: The digest of the copied bytes.
        source: The source prefix.
        path: The file, relative to the prefix.
    """
    wrong = digest.mismatch()
    if wrong and not (source.kind is StoreKind.S3 and _is_opaque_etag(source, path)):
        raise CorruptCopyError(f"{source.url(path)}: the copy has {wrong}; it was discarded")


def check_size(got: int, version: FileVersion, url: str) -> None:
    """Raise CorruptCopyError unless the copy has the expected size.

    Args:
        got: The number of bytes that arrived.
        version: The source's version, including its size.
        url: The source, for the error.
    """
    if got != version.size:
        raise CorruptCopyError(f"{url}: {got} bytes arrived instead of {version.size}; they were discarded")


def _is_opaque_etag(source: PrefixStore, path: str) -> bool:
    # Asked only when the comparison failed: S3's ETag is no MD5 when a key of the user encrypts the object.
    bucket, _, key = source.path(path).partition("/")
    head = source.fs.call_s3("head_object", Bucket=bucket, Key=key)
    return str(head.get("ServerSideEncryption", "")).startswith("aws:kms") or "SSECustomerAlgorithm" in head
