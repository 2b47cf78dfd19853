"""Pack a job's working directory, the files that git sees, in Ray's format."""

import hashlib
import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rigging.errors import InvalidRequest
from rigging.project.workspace import (
    WorkspaceFile,
    WorkspaceListing,
    WorkspaceRules,
    check_workspace_root,
    list_workspace,
)

RULES: Final = WorkspaceRules(
    limit_variable="MARIN_RAY_MAX_WORKING_DIR_MB",
    other_ways="name another folder (--working-dir DIR)",
)
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Package:
    """A packed working directory.

    Args:
        name: Its name in Ray. The same files give the same name.
        data: The zip file.
        warnings: Messages for the user about skipped files.
    """

    name: str
    data: bytes
    file_count: int
    size_bytes: int
    warnings: tuple[str, ...]

    @property
    def uri(self) -> str:
        return f"gcs://{self.name}"


def list_working_directory(root: Path, environ: Mapping[str, str]) -> WorkspaceListing:
    """Return the files of `root` that a job receives.

    Raises:
        InvalidRequest: The folder is too broad, such as the home directory, or too large. The message lists the largest
            files.
    """
    check_workspace_root(root, rules=RULES, environ=environ)
    return list_workspace(root, rules=RULES, environ=environ)


def pack(root: Path, listing: WorkspaceListing) -> Package:
    """Pack the listed files. Ray does not support symbolic links, so their targets are packed instead.

    Raises:
        InvalidRequest: A file cannot be read.
    """
    warnings = list(listing.warnings)
    buffer = io.BytesIO()
    count = size = 0
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=5) as archive:
        for path, source, executable in _sources(root, listing.files, warnings):
            if "\\" in path:
                warnings.append(f"{path!r} has a backslash in its name, which Ray refuses; skipping it")
                continue
            try:
                content = (root / source).read_bytes()
            except FileNotFoundError:
                continue  # removed since it was listed
            except OSError as error:
                raise InvalidRequest(f"{source} of the working directory cannot be read: {error.strerror}") from None
            info = zipfile.ZipInfo(path, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o100755 if executable else 0o100644) << 16
            archive.writestr(info, content)
            count, size = count + 1, size + len(content)
    data = buffer.getvalue()
    digest = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    return Package(f"_ray_pkg_{digest}.zip", data, count, size, tuple(warnings))


def pack_all(root: Path) -> Package:
    """Pack a folder with everything in it. Raise InvalidRequest."""
    files = tuple(
        WorkspaceFile(path.relative_to(root).as_posix(), path.stat().st_size, bool(path.stat().st_mode & 0o100))
        for path in sorted(root.rglob("*"))
        if path.is_file()
    )
    return pack(root, WorkspaceListing(files, warnings=()))


def _sources(root: Path, files: tuple[WorkspaceFile, ...], warnings: list[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield each path in the package, its source file, and whether it is executable."""
    plain = {file.path: file for file in files if file.symlink_target is None}
    for file in files:
        if file.symlink_target is None:
            yield file.path, file.path, file.executable
            continue
        target = os.path.relpath(os.path.realpath(root / file.path), os.path.realpath(root))
        if target in plain:
            yield file.path, target, plain[target].executable
            continue
        inside = [inner for inner in plain.values() if inner.path.startswith(f"{target}/")]
        for inner in inside:
            yield f"{file.path}/{inner.path.removeprefix(f'{target}/')}", inner.path, inner.executable
        if not inside:
            warnings.append(
                f"symlink {file.path} points to nothing that can be sent in its place (to {file.symlink_target}); "
                "skipping it"
            )
