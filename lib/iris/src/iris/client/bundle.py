"""Bundles: an immutable copy of the workspace, named by digest, of which only what the cluster lacks is sent."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.client.connection import Connection
from iris.client.workspace import list_workspace
from iris.rpc import iris_pb2 as pb
from iris.rpc.manifest import MANIFEST_FORMAT
from iris.rpc.protocol import MAX_BLOB_CHUNK_BYTES
from rigging.errors import Conflict

PART_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PartSource:
    """Where the bytes of a blob can be read again: a range of a file."""

    path: Path
    offset: int
    size_bytes: int

    def read(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size_bytes)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A packed workspace; `digest` names the manifest, which names every part."""

    digest: str
    manifest: bytes
    parts: dict[str, PartSource]
    size_bytes: int
    warnings: tuple[str, ...]


def blob_digest(data: bytes) -> str:
    """The name of a blob: its SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def make_bundle(root: Path) -> Bundle:
    """Pack the workspace at `root`. The same files give the same digest on any machine.

    Raises:
        InvalidRequest: See `list_workspace`.
        Conflict: A file changed while it was read.
    """
    listing = list_workspace(root)
    manifest = pb.BundleManifest(format=MANIFEST_FORMAT)
    parts: dict[str, PartSource] = {}
    for file in listing.files:
        entry = manifest.files.add(path=file.path, size_bytes=file.size_bytes, executable=file.executable)
        if file.symlink_target is not None:
            entry.symlink_target = file.symlink_target
            continue
        entry.part_digests.extend(_hash_parts(root / file.path, file.size_bytes, parts))
    encoded = manifest.SerializeToString(deterministic=True)
    total = sum(file.size_bytes for file in listing.files)
    return Bundle(blob_digest(encoded), encoded, parts, total, listing.warnings)


def _hash_parts(path: Path, size_bytes: int, parts: dict[str, PartSource]) -> Iterator[str]:
    try:
        with path.open("rb", buffering=0) as file:
            for offset in range(0, size_bytes, PART_BYTES):
                expected = min(PART_BYTES, size_bytes - offset)
                data = file.read(expected)
                if len(data) != expected:
                    raise _changed(path)
                digest = blob_digest(data)
                parts.setdefault(digest, PartSource(path, offset, expected))
                yield digest
    except FileNotFoundError:
        raise _changed(path) from None


def _changed(path: Path) -> Conflict:
    return Conflict(f"{path} changed while the workspace was packed; submit again")


def upload_bundle(connection: Connection, bundle: Bundle) -> int:
    """Send the cluster what it lacks of a bundle; returns the number of blobs sent.

    Raises:
        Conflict: A file changed since it was packed.
        Unavailable: The controller cannot be reached.
    """
    missing = connection.missing_blobs([bundle.digest, *bundle.parts])
    if not missing:
        return 0
    # The manifest goes last: where it is, its parts are too.
    order = [*(digest for digest in missing if digest != bundle.digest), bundle.digest]
    connection.upload_blobs(lambda: upload_messages(_read_blob(bundle, digest) for digest in order))
    return len(missing)


def _read_blob(bundle: Bundle, digest: str) -> tuple[str, bytes]:
    if digest == bundle.digest:
        return digest, bundle.manifest
    source = bundle.parts[digest]
    try:
        data = source.read()
    except FileNotFoundError:
        raise _changed(source.path) from None
    if blob_digest(data) != digest:
        raise _changed(source.path)
    return digest, data


def upload_messages(blobs: Iterable[tuple[str, bytes]]) -> Iterator[pb.UploadBlobsRequest]:
    """Cut blobs into chunks and gather them into messages of at most about MAX_BLOB_CHUNK_BYTES of data."""
    message, filled = pb.UploadBlobsRequest(), 0
    for digest, data in blobs:
        for offset in range(0, max(len(data), 1), MAX_BLOB_CHUNK_BYTES):
            chunk = data[offset : offset + MAX_BLOB_CHUNK_BYTES]
            if filled and filled + len(chunk) > MAX_BLOB_CHUNK_BYTES:
                yield message
                message, filled = pb.UploadBlobsRequest(), 0
            last = offset + len(chunk) >= len(data)
            message.chunks.add(digest=digest, offset=offset, data=chunk, last=last)
            filled += len(chunk)
    if message.chunks:
        yield message
