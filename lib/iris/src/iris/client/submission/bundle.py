"""Bundles: immutable copies of the workspace, named by digest. The client sends only parts that the cluster lacks."""

import errno
import hashlib
import io
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from iris.client.connection.connection import Connection
from iris.client.submission.workspace_choice import WORKSPACE_RULES
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.manifest import MANIFEST_FORMAT
from iris.rpc.protocol import MAX_BLOB_CHUNK_BYTES
from rigging.errors import Conflict, InvalidRequest
from rigging.project.workspace import WorkspaceFile, empty_folders, list_workspace

PART_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PartSource:
    """A range of a file from which a blob's bytes can be read again."""

    path: Path
    offset: int
    size_bytes: int

    def read(self) -> bytes:
        with open_plain(self.path) as file:
            file.seek(self.offset)
            return file.read(self.size_bytes)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A packed workspace. `digest` names the manifest, which names every part."""

    digest: str
    manifest: bytes
    parts: dict[str, PartSource]
    size_bytes: int
    warnings: tuple[str, ...]
    file_count: int


def blob_digest(data: bytes) -> str:
    """Return a blob's name: its SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def make_bundle(
    root: Path,
    *,
    project_dir: str = "",
    beside: Mapping[str, Path] | None = None,
    snapshot: Path | None = None,
) -> Bundle:
    """Pack the workspace at `root`. Equal files give equal digests on any machine.

    Args:
        root: The workspace.
        project_dir: The directory of the workspace in the bundle; empty for its root.
        beside: Further files and folders, by their paths in the bundle.
        snapshot: An empty directory for a copy of the files, so that later changes have no effect. None reads the files
            again when they are sent.

    Raises:
        InvalidRequest: See `list_workspace`, or a file cannot be read.
        Conflict: A file changed while it was read; never with `snapshot`.
    """
    content = gather_files(root, project_dir, beside or {})
    manifest = pb.BundleManifest(format=MANIFEST_FORMAT, directories=content.empty_folders)
    packed = _Packed(snapshot, warnings=list(content.warnings))
    for path in sorted(content.files):
        source, file = content.files[path]
        if file.symlink_target is not None:
            manifest.files.add(path=path, symlink_target=file.symlink_target)
            continue
        read = packed.add(source, path, file.size_bytes)
        if read is not None:
            size, digests = read
            manifest.files.add(path=path, size_bytes=size, executable=file.executable, part_digests=digests)
    encoded = manifest.SerializeToString(deterministic=True)
    total = sum(file.size_bytes for file in manifest.files)
    return Bundle(blob_digest(encoded), encoded, packed.parts, total, tuple(packed.warnings), len(manifest.files))


@dataclass(frozen=True, slots=True)
class BundleContent:
    """The files of a bundle, by their paths in it."""

    files: Mapping[str, tuple[Path, WorkspaceFile]]
    empty_folders: tuple[str, ...]
    warnings: tuple[str, ...]


def gather_files(root: Path, project_dir: str, beside: Mapping[str, Path]) -> BundleContent:
    """List the content of a workspace's bundle. Arguments and errors are those of `make_bundle`.

    Args:
        root: The workspace.
        project_dir: Its directory in the bundle; empty for the root.
        beside: Directories outside of the workspace to include, by their paths in the bundle.
    """
    files: dict[str, tuple[Path, WorkspaceFile]] = {}
    folders: list[str] = []
    warnings: list[str] = []
    for place, source in (*beside.items(), (project_dir, root)):
        if source.is_dir():
            listing = list_workspace(source, rules=WORKSPACE_RULES)
            warnings.extend(listing.warnings)
            prefix = f"{place}/" if place else ""
            folders.extend(prefix + path for path in listing.empty_folders)
            for file in listing.files:
                files[prefix + file.path] = (source / file.path, file)
        else:
            info = source.stat()
            files[place] = (source, WorkspaceFile(place, info.st_size, bool(info.st_mode & 0o100)))
    return BundleContent(files, empty_folders(folders, files), tuple(warnings))


@dataclass(slots=True)
class _Packed:
    """The parts read so far."""

    snapshot: Path | None
    parts: dict[str, PartSource] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, path: Path, name: str, size_bytes: int) -> tuple[int, list[str]] | None:
        """Return the size and parts of a file; None if it is skipped, after a warning."""
        digests = []
        size = 0
        try:
            with open_plain(path) as file:
                while size < size_bytes:
                    wanted = min(PART_BYTES, size_bytes - size)
                    data = file.read(wanted)
                    if len(data) != wanted and self.snapshot is None:
                        raise _changed(path)
                    if not data:
                        break
                    digests.append(self._keep(path, size, data))
                    size += len(data)
        except FileNotFoundError:
            if self.snapshot is None:
                raise _changed(path) from None
            return None
        except PermissionError as error:
            self.warnings.append(f"{name} cannot be read: {error.strerror}; skipping it")
            return None
        except OSError as error:
            raise InvalidRequest(f"{path} of the workspace cannot be read: {error.strerror}") from error
        return size, digests

    def _keep(self, path: Path, offset: int, data: bytes) -> str:
        digest = blob_digest(data)
        if digest not in self.parts:
            if self.snapshot is not None:
                path, offset = self.snapshot / digest, 0
                path.write_bytes(data)
            self.parts[digest] = PartSource(path, offset, len(data))
        return digest


def open_plain(path: Path) -> io.BufferedReader:
    """Open a regular file. Refuse any other file that has replaced it, because a FIFO would block forever.

    Raises:
        FileNotFoundError: The file does not exist any more, or is no longer a regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENOTDIR):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return os.fdopen(descriptor, "rb")


def _changed(path: Path) -> Conflict:
    return Conflict(f"{path} changed while the workspace was packed; submit again")


def upload_bundle(connection: Connection, bundle: Bundle) -> int:
    """Send the parts of a bundle that the cluster lacks, and return their number.

    Raises:
        Conflict: A file changed since it was packed.
        Unavailable: The controller is unreachable.
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
    """Split blobs into chunks and pack them into messages with up to about MAX_BLOB_CHUNK_BYTES of data."""
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
