"""The release that new machines install: wheels of this installation, stored with the cluster's state.

Wheels are packed from the installed files, so that a checkout and an installed package are treated alike, without a
build or a network. The content's digest is a part of the release's name: a changed checkout is another release.
"""

import hashlib
import importlib.metadata
import importlib.util
import io
import platform
import re
import sys
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.autoscale.boot.script import StoredRelease
from iris.python_tools.uv import uv_program
from rigging.filesystem import read_bytes_or_none, url_to_fs, write_bytes_atomic

CONSTRAINTS: Final = "constraints.txt"
_PACKAGES: Final[Mapping[str, str]] = {"marin-iris": "iris", "marin-rigging": "rigging"}
_COMPLETE: Final = "complete"
_NEWEST: Final = "newest"
"""The file with the names of the current release and the one before it."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_KEPT_INFO: Final = ("METADATA", "WHEEL", "entry_points.txt")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Release:
    """The files with which a machine runs this release.

    Args:
        name: The version and a digest of the content.
        python: The Python version: "3.12".
        files: The files to install from, by name: wheels, and CONSTRAINTS with the versions of their dependencies.
        uv: The program uv, for machines like this one; None if there is none to send.
    """

    name: str
    python: str
    files: Mapping[str, bytes]
    uv: Path | None = None

    @property
    def wheels(self) -> tuple[str, ...]:
        """Return the names of the wheels."""
        return tuple(name for name in self.files if name.endswith(".whl"))

    @property
    def uv_name(self) -> str:
        """Return the name under which uv is stored, with the machine's architecture."""
        return f"uv-{platform.machine()}"


def own_release() -> Release:
    """Return this installation as a release."""
    files = dict(map(_wheel, _PACKAGES))
    files[CONSTRAINTS] = "".join(f"{line}\n" for line in sorted(_constraints())).encode()
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    digest = hashlib.sha256(python.encode())
    for name in sorted(files):
        digest.update(hashlib.sha256(files[name]).digest())
    name = f"{importlib.metadata.version('marin-iris')}-{digest.hexdigest()[:12]}"
    return Release(name, python, files, _own_uv())


def publish(release: Release, state_url: str) -> StoredRelease:
    """Store a release in a state directory and return where. Keep only this one and the one before. Blocks.

    Args:
        release: The release.
        state_url: The cluster's `remote_state_dir`.
    """
    releases = f"{state_url.rstrip('/')}/releases"
    url = f"{releases}/{release.name}"
    if read_bytes_or_none(f"{url}/{_COMPLETE}") is None:
        for name, content in release.files.items():
            write_bytes_atomic(f"{url}/{name}", content)
        if release.uv is not None:
            write_bytes_atomic(f"{url}/{release.uv_name}", release.uv.read_bytes())
        write_bytes_atomic(f"{url}/{_COMPLETE}", b"")
    _forget_others(releases, release.name)
    return StoredRelease(release.name, url, release.python, release.wheels)


def has_releases(state_url: str) -> bool:
    """Return whether a release was ever stored in a state directory, so that machines may have it. Blocks."""
    return read_bytes_or_none(f"{state_url.rstrip('/')}/releases/{_NEWEST}") is not None


def _forget_others(releases: str, current: str) -> None:
    """Remove all releases but the current one and the one before it, which machines may be installing."""
    place = f"{releases}/{_NEWEST}"
    known = (read_bytes_or_none(place) or b"").decode().split()
    if known[:1] == [current]:
        return
    kept = [current, *known[:1]]
    write_bytes_atomic(place, " ".join(kept).encode())
    fs, path = url_to_fs(releases)
    for entry in fs.ls(path, detail=False) if known else ():
        if entry.rstrip("/").rpartition("/")[2] not in (*kept, _NEWEST):
            fs.rm(entry, recursive=True)


def _wheel(distribution: str) -> tuple[str, bytes]:
    """Return the name and content of an installed package's wheel. The same files make the same bytes."""
    found = importlib.metadata.distribution(distribution)
    stem = f"{distribution.replace('-', '_')}-{found.version}"
    members = dict(_package_files(_PACKAGES[distribution])) | dict(_info_files(found, f"{stem}.dist-info"))
    record = "".join(f"{name},{_record_digest(members[name])},{len(members[name])}\n" for name in sorted(members))
    members[f"{stem}.dist-info/RECORD"] = f"{record}{stem}.dist-info/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(members):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, members[name])
    return f"{stem}-py3-none-any.whl", packed.getvalue()


def _package_files(package: str) -> Iterator[tuple[str, bytes]]:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    for root in map(Path, spec.submodule_search_locations):
        for path in root.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{package}/{path.relative_to(root).as_posix()}", path.read_bytes()


def _info_files(found: importlib.metadata.Distribution, folder: str) -> Iterator[tuple[str, bytes]]:
    for path in found.files or ():
        name = path.as_posix().partition(".dist-info/")[2]
        if name in _KEPT_INFO or name.startswith("licenses/"):
            yield f"{folder}/{name}", Path(str(found.locate_file(path))).read_bytes()


def _record_digest(content: bytes) -> str:
    return "sha256=" + urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def _constraints() -> Iterator[str]:
    """Yield the installed versions of all that the packages may need."""
    known: set[str] = set()
    waiting = list(_PACKAGES)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in known:
            continue
        known.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of an extra, or of another platform
        if name not in _PACKAGES:
            yield f"{name}=={found.version}"
        own = name in _PACKAGES  # machines may have extras of ours, not of others
        needs = (text for text in found.requires or () if own or "extra ==" not in text)
        waiting += [match[0] for text in needs if (match := _NAME.match(text))]


def _own_uv() -> Path | None:
    try:
        return Path(uv_program()) if sys.platform == "linux" else None
    except FileNotFoundError:
        return None
