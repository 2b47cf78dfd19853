"""The workspace of one client's jobs, packed once, with the working directory and the Python."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from iris.client.connection.connection import Connection
from iris.client.job_env import JobEnv
from iris.client.submission.bundle import Bundle
from iris.client.submission.packing import PackedWorkspace, WorkspacePacker
from iris.client.submission.project import Project
from iris.client.submission.runtime_choice import check_extras, choose_runtime, submitting_from
from iris.client.submission.workspace_choice import working_dir
from iris.domain.python_version import minor
from iris.domain.runtime import TaskRuntime, check_relative_dir
from rigging.errors import InvalidRequest


class JobWorkspace:
    """The workspace of one client's jobs. Thread-safe. Arguments are those of `IrisClient`.

    Args:
        parent: The job whose workspace and environment are inherited.
        same_machine: Whether the cluster's workers see this machine's files.
    """

    def __init__(
        self,
        connection: Connection,
        workspace: Path | None,
        parent: JobEnv | None,
        *,
        same_machine: bool,
        warn: Callable[[str], None],
        notice: Callable[[str], None],
        environ: Mapping[str, str],
    ) -> None:
        self._workspace = workspace
        self._parent = parent
        self._notice = notice
        self._here = submitting_from(environ, same_machine=same_machine)
        self._packer: WorkspacePacker | None = None
        if workspace is not None:
            shell = self._here.shell
            self._packer = WorkspacePacker(
                connection,
                workspace,
                (shell.interpreter, shell.version),
                warn=warn,
                notice=notice,
                environ=environ,
                same_machine=same_machine,
            )
        self._lock = threading.Lock()
        self._project: Project | None = None
        self._packed: PackedWorkspace | None = None
        self._chosen: dict[bool, TaskRuntime] = {}
        self._working_dirs: dict[str, str] = {}

    @property
    def bundle(self) -> Bundle | None:
        """The packed bundle, if there is one."""
        return self._packed.bundle if self._packed else None

    def bundle_digest(self) -> str:
        """Return the digest of the workspace's bundle after sending its missing parts; empty without a workspace."""
        packed = self._packed_workspace()
        if packed is None:
            return self._parent.bundle_digest if self._parent else ""
        return packed.bundle.digest

    def runtime(self, *, is_callable: bool, working_dir: str | None, extras: Sequence[str]) -> TaskRuntime:
        """Return the Python, packages and working directory of a job's tasks.

        Args:
            is_callable: Whether the job runs a callable rather than a command.
            working_dir: The working directory that the user gave.
            extras: The requested extras.

        Raises:
            InvalidRequest: The workspace has no such directory or extra, or its metadata cannot be read.
        """
        if self._parent is not None:
            chosen = self._parent.runtime
            if is_callable:  # only the Python that pickled it can read it
                chosen = replace(chosen, python=minor(self._here.own.version))
        else:
            chosen = self._choose(is_callable, extras)
        place = self._working_dir(working_dir)
        return chosen if place == chosen.working_dir else replace(chosen, working_dir=place)

    def _choose(self, is_callable: bool, extras: Sequence[str]) -> TaskRuntime:
        with self._lock:
            if is_callable not in self._chosen:
                chosen, told = choose_runtime(self._read(), self._here, is_callable=is_callable)
                if told and chosen not in self._chosen.values():
                    self._notice(told)
                self._chosen[is_callable] = chosen
            check_extras(extras, self._project)
        packed = self._packed_workspace()
        chosen = self._chosen[is_callable]
        return replace(chosen, project_dir=packed.project_dir) if packed and packed.project_dir else chosen

    def _read(self) -> Project | None:
        if self._packer is not None and self._project is None:
            self._project = self._packer.read()
        return self._project

    def _packed_workspace(self) -> PackedWorkspace | None:
        if self._packer is None:
            return None
        with self._lock:
            project = self._read()
            if self._packed is None and project is not None:
                self._packed = self._packer.send(project)
            return self._packed

    def _working_dir(self, given: str | None) -> str:
        if given is not None:
            check_relative_dir(given, "working_dir")
            if given and not self.bundle_digest():
                raise InvalidRequest(f"working_dir {given!r}: the job has no workspace")
            return given
        if self._workspace is None and (self._parent is None or not self._parent.bundle_digest):
            return ""
        try:
            here = os.getcwd()
        except FileNotFoundError:  # it was removed under this process
            here = "/"
        if here not in self._working_dirs:
            self._working_dirs[here] = self._place_of(Path(here))
        return self._working_dirs[here]

    def _place_of(self, here: Path) -> str:
        if self._workspace is not None:
            return working_dir(here, self._workspace)
        assert self._parent is not None
        own = Path(self._parent.workspace_dir) if self._parent.workspace_dir else None
        if own is not None and here.is_relative_to(own):
            return working_dir(here, own)
        return self._parent.runtime.working_dir
