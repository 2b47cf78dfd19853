"""Parses and validates the manifest of a bundle.

The controller checks a manifest at submission; the worker checks it again before any write.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from google.protobuf.message import DecodeError

from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import InvalidRequest

MANIFEST_FORMAT: Final = 1
MAX_MANIFEST_BYTES: Final = 32 * 1024 * 1024
MAX_BUNDLE_FILES: Final = 200_000
MAX_BUNDLE_BYTES: Final = 16 * 1024**3
MAX_NAME_BYTES: Final = 255
"""Maximum length of a path component on Linux file systems."""
MAX_PATH_BYTES: Final = 2048
"""Maximum length of a path: half of the kernel's limit, to leave room for the worker's directory."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_SHOWN: Final = 80
_LINK: Final = "goes through a symbolic link"
_FILE: Final = "is below a file"
_EMPTY: Final = "is in a directory that should be empty"


@dataclass(frozen=True, slots=True)
class BundleEntry:
    """A file, symbolic link or empty directory of a bundle. Only a file has parts and a size."""

    path: str
    executable: bool
    symlink_target: str
    part_digests: tuple[str, ...]
    size_bytes: int = 0
    is_directory: bool = False


def parse_manifest(data: bytes) -> list[BundleEntry]:
    """Return the unchecked entries of a bundle's manifest. Raises InvalidRequest if the manifest has another format."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise InvalidRequest(f"its manifest has {len(data)} bytes; at most {MAX_MANIFEST_BYTES} are allowed")
    try:
        manifest = pb.BundleManifest.FromString(data)
    except DecodeError as error:
        raise InvalidRequest(f"it is not a bundle manifest: {error}") from error
    if manifest.format != MANIFEST_FORMAT:
        raise InvalidRequest(f"its manifest has format {manifest.format}; this release reads format {MANIFEST_FORMAT}")
    for count, what in ((len(manifest.files), "files"), (len(manifest.directories), "empty directories")):
        if count > MAX_BUNDLE_FILES:
            raise InvalidRequest(f"it has {count} {what}; at most {MAX_BUNDLE_FILES} are allowed")
    files = [
        BundleEntry(file.path, file.executable, file.symlink_target, tuple(file.part_digests), file.size_bytes)
        for file in manifest.files
    ]
    return [*files, *(BundleEntry(path, False, "", (), is_directory=True) for path in manifest.directories)]


def check_entries(entries: Sequence[BundleEntry]) -> None:
    """Raise InvalidRequest for entries that cannot be written, or that write or point outside their directory."""
    kinds: dict[str, str] = {}
    total = 0
    for entry in entries:
        _check_path(entry.path)
        if entry.path in kinds:
            raise InvalidRequest(f"path {_shown(entry.path)} occurs twice")
        kinds[entry.path] = _LINK if entry.symlink_target else _EMPTY if entry.is_directory else _FILE
        _check_content(entry)
        total += entry.size_bytes
    if total > MAX_BUNDLE_BYTES:
        raise InvalidRequest(f"its files have {total} bytes; at most {MAX_BUNDLE_BYTES} are allowed")
    _check_directories(kinds)


def check_sizes(entries: Iterable[BundleEntry], sizes: dict[str, int]) -> None:
    """Raise InvalidRequest for a file whose size differs from the sum of its parts' `sizes`."""
    for entry in entries:
        actual = sum(sizes[part] for part in entry.part_digests)
        if actual != entry.size_bytes:
            raise InvalidRequest(
                f"file {_shown(entry.path)} should have {entry.size_bytes} bytes, but its parts have {actual}"
            )


def _check_path(path: str) -> None:
    names = path.split("/")
    if not path or "\0" in path or any(name in ("", ".", "..") for name in names):
        raise InvalidRequest(f"path {_shown(path)} is not a plain relative path")
    if len(path) > MAX_NAME_BYTES // 4:  # no character has more than four bytes: most paths need not be encoded
        longest = max(len(name.encode()) for name in names)
        if longest > MAX_NAME_BYTES:
            raise InvalidRequest(
                f"path {_shown(path)} has a name of {longest} bytes; at most {MAX_NAME_BYTES} are allowed"
            )
        if len(path.encode()) > MAX_PATH_BYTES:
            raise InvalidRequest(
                f"path {_shown(path)} has {len(path.encode())} bytes; at most {MAX_PATH_BYTES} are allowed"
            )


def _check_content(entry: BundleEntry) -> None:
    if entry.size_bytes < 0:
        raise InvalidRequest(f"file {_shown(entry.path)} has a size of {entry.size_bytes} bytes")
    for part in entry.part_digests:
        if not _DIGEST.fullmatch(part):
            raise InvalidRequest(
                f"file {_shown(entry.path)}: {part[:_SHOWN]!r} is not a digest; expected 64 lowercase hex digits"
            )
    if not entry.symlink_target:
        return
    if entry.part_digests or entry.size_bytes:
        raise InvalidRequest(f"{_shown(entry.path)} is a symbolic link and has content, too")
    if len(entry.symlink_target.encode()) > MAX_PATH_BYTES:
        raise InvalidRequest(f"the target of link {_shown(entry.path)} is longer than {MAX_PATH_BYTES} bytes")
    if not _stays_inside(entry.path, entry.symlink_target):
        raise InvalidRequest(f"link {_shown(entry.path)} points outside of the bundle: {_shown(entry.symlink_target)}")


def _check_directories(kinds: Mapping[str, str]) -> None:
    """Check that no entry is below another entry, which would have to be a directory. Visits each directory once."""
    seen: set[str] = set()
    for path in kinds:
        above = path.rpartition("/")[0]
        while above and above not in seen:
            seen.add(above)
            if above in kinds:
                raise InvalidRequest(f"path {_shown(path)} {kinds[above]}: {_shown(above)}")
            above = above.rpartition("/")[0]


def _stays_inside(path: str, target: str) -> bool:
    if PurePosixPath(target).is_absolute() or "\0" in target:
        return False
    depth = path.count("/")
    for part in target.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return False
    return True


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"
