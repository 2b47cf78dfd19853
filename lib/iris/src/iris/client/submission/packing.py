"""Pack a workspace into a bundle with a layout that keeps all its relative paths valid."""

import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.client.connection.connection import Connection
from iris.client.submission.bundle import Bundle, make_bundle, upload_bundle
from iris.client.submission.locking import lock_project
from iris.client.submission.project import (
    LOCK_FILE,
    PROJECT_FILE,
    REQUIREMENTS_FILE,
    LocalDependency,
    Project,
    read_project,
)
from iris.client.submission.workspace_choice import check_workspace_root
from iris.domain.python_version import fits
from iris.domain.runtime import PackageSource
from iris.python_tools.programs import find_python
from rigging.errors import Conflict, InvalidRequest
from rigging.text.quantities import format_size

_WARNINGS_SHOWN: Final = 20
_SLOW_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of folders in a bundle."""

    project_dir: str
    beside: Mapping[str, Path]


def lay_out(project: Project) -> Layout:
    """Lay out a workspace and its path dependencies so that the relative paths between them stay valid.

    Raises:
        InvalidRequest: A dependency is in a directory that is never sent, such as a home directory.
    """
    folders = [found.target if found.target.is_dir() else found.target.parent for found in project.dependencies]
    base = Path(os.path.commonpath([project.root, *folders]))
    beside = {}
    for found in project.dependencies:
        if found.target.is_dir():
            _check_folder(found)
        # Also what lies in the workspace: git may ignore it.
        beside[_below(found.target, base)] = found.target
    project_dir = _below(project.root, base)
    # What decides the packages goes along even where git ignores it.
    for name in (LOCK_FILE, PROJECT_FILE, REQUIREMENTS_FILE):
        if (project.root / name).is_file():
            beside[f"{project_dir}/{name}" if project_dir else name] = project.root / name
    return Layout(project_dir, beside)


def _below(path: Path, base: Path) -> str:
    relative = path.relative_to(base).as_posix()
    return "" if relative == "." else relative


def _check_folder(found: LocalDependency) -> None:
    try:
        check_workspace_root(found.target)
    except InvalidRequest as error:
        raise InvalidRequest(f"{found.name} in {found.origin} is at {found.written!r}: {error}") from None


@dataclass(frozen=True, slots=True)
class PackedWorkspace:
    """A workspace whose bundle is stored on the cluster."""

    bundle: Bundle
    project_dir: str


class WorkspacePacker:
    """Pack and send one workspace.

    Args:
        root: The workspace.
        python: The Python, and the version for the lock file.
        warn: Called with warnings, such as skipped files.
        notice: Called with a summary of the sent files.
        same_machine: Whether the cluster's workers see this machine's files.
    """

    def __init__(
        self,
        connection: Connection,
        root: Path,
        python: tuple[str, str],
        *,
        warn: Callable[[str], None],
        notice: Callable[[str], None],
        environ: Mapping[str, str],
        same_machine: bool = False,
    ) -> None:
        self._connection = connection
        self._shown = root
        self._root = Path(os.path.realpath(root))
        self._python = python
        self._warn = warn
        self._notice = notice
        self._environ = environ
        self._same_machine = same_machine

    def read(self) -> Project:
        """Return the metadata of the workspace. Raise InvalidRequest."""
        check_workspace_root(self._root, environ=self._environ)
        return read_project(self._root, same_machine=self._same_machine)

    def send(self, project: Project) -> PackedWorkspace:
        """Pack the locked workspace, and send the missing parts. Raise InvalidRequest."""
        slow = threading.Timer(_SLOW_SECONDS, self._notice, [f"preparing the workspace {self._shown}"])
        slow.daemon = True
        slow.start()
        try:
            return self._send(project)
        finally:
            slow.cancel()

    def _send(self, project: Project) -> PackedWorkspace:
        layout = lay_out(project)
        beside = dict(layout.beside)
        if project.packages is PackageSource.LOCK and not project.locked:
            beside[f"{layout.project_dir}/{LOCK_FILE}" if layout.project_dir else LOCK_FILE] = self._lock(
                project, layout
            )
        layout = Layout(layout.project_dir, beside)
        try:
            bundle = self._upload(layout, None)
        except Conflict:
            # A file was written between packing and sending. A copy cannot change, so this time it succeeds.
            with tempfile.TemporaryDirectory(prefix="iris-workspace-") as snapshot:
                bundle = self._upload(layout, Path(snapshot))
        self._tell(bundle.warnings)
        return PackedWorkspace(bundle, layout.project_dir)

    def _lock(self, project: Project, layout: Layout) -> Path:
        interpreter, version = self._python
        lock = lock_project(
            project,
            layout.project_dir,
            layout.beside,
            interpreter if fits(version, project.requires_python) else self._other_python(project),
            self._environ,
        )
        self._notice("no uv.lock: pyproject.toml was locked for this job (`uv lock` keeps the versions)")
        return lock

    def _other_python(self, project: Project) -> str:
        return find_python(project.requires_python.replace(" ", ""), self._environ.get("PATH", ""))

    def _upload(self, layout: Layout, snapshot: Path | None) -> Bundle:
        bundle = make_bundle(self._root, project_dir=layout.project_dir, beside=layout.beside, snapshot=snapshot)
        sent = upload_bundle(self._connection, bundle)
        files = f"{bundle.file_count} file{'' if bundle.file_count == 1 else 's'}"
        known = "" if sent else " (nothing new)"
        self._notice(f"sent {files}, {format_size(bundle.size_bytes)}{known} from {self._shown}")
        return bundle

    def _tell(self, warnings: tuple[str, ...]) -> None:
        for warning in warnings[:_WARNINGS_SHOWN]:
            self._warn(warning)
        if len(warnings) > _WARNINGS_SHOWN:
            self._warn(f"and {len(warnings) - _WARNINGS_SHOWN} more files were skipped for such reasons")
