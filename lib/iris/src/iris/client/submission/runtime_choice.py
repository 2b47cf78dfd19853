"""Choose a job's Python and packages from its workspace and the submitting process."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iris.client.submission.project import PROJECT_FILE, PYTHON_VERSION_FILE, Project
from iris.domain.python_version import fits, minor
from iris.domain.runtime import PackageSource, TaskRuntime
from rigging.errors import InvalidRequest
from rigging.project.needs import normalized


@dataclass(frozen=True, slots=True)
class PythonEnvironment:
    """A Python interpreter with its packages.

    Args:
        prefix: The directory of the virtual environment or installation.
        version: The version, "3.12.4".
        interpreter: The program's path, with links resolved.
    """

    prefix: str
    version: str
    interpreter: str


@dataclass(frozen=True, slots=True)
class Submitting:
    """The submitting process.

    Args:
        own: The environment of this process, the source of callables.
        shell: The active environment of the shell that ran the command, else this process's.
        same_machine: Whether the cluster's workers see this machine's files, as in the local cluster.
    """

    own: PythonEnvironment
    shell: PythonEnvironment
    same_machine: bool


def submitting_from(environ: Mapping[str, str], *, same_machine: bool) -> Submitting:
    """Return this process and its shell."""
    own = PythonEnvironment(sys.prefix, ".".join(map(str, sys.version_info[:3])), os.path.realpath(sys.executable))
    active = environ.get("VIRTUAL_ENV", "")
    shell = _environment_at(active) if active and os.path.abspath(active) != os.path.abspath(sys.prefix) else None
    return Submitting(own, shell or own, same_machine)


def _environment_at(prefix: str) -> PythonEnvironment | None:
    """Return the virtual environment in a directory, or None."""
    try:
        lines = Path(prefix, "pyvenv.cfg").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    python = os.path.join(os.path.abspath(prefix), "bin", "python")
    values = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
    version = values.get("version_info") or values.get("version") or ""
    if not version or not os.path.exists(python):
        return None
    return PythonEnvironment(os.path.abspath(prefix), ".".join(version.split(".")[:3]), os.path.realpath(python))


def choose_runtime(project: Project | None, here: Submitting, *, is_callable: bool) -> tuple[TaskRuntime, str]:
    """Return a job's runtime, without directories, and a note for the user (empty for none).

    Args:
        project: The metadata of its workspace; None without one.
        here: The submitting process.
        is_callable: Whether the job runs a pickled callable, which needs the Python that pickled it.

    Raises:
        InvalidRequest: The job's needs cannot be determined, or its Python is not suitable.
    """
    python, origin = _python_request(project, here, is_callable)
    environment = here.own if is_callable else here.shell
    other = f"Python {python}, as {origin} requires: yours is {environment.version}"
    interpreter = here.own.interpreter if here.same_machine else ""
    if project is not None and project.packages is not PackageSource.NONE:
        told = "" if fits(environment.version, python) else other
        return TaskRuntime(python=python, packages=project.packages, interpreter=interpreter), told
    if here.same_machine and fits(environment.version, python):
        why = "no workspace" if project is None else "no uv.lock, pyproject.toml or requirements.txt"
        runtime = TaskRuntime(
            python=python,
            packages=PackageSource.SUBMITTER,
            environment_path=environment.prefix,
            interpreter=environment.interpreter,
        )
        return runtime, f"{why}: using your environment {environment.prefix} (local cluster only)"
    bare = TaskRuntime(python=python, packages=PackageSource.NONE, interpreter=interpreter)
    if project is None:
        return bare, ""
    if here.same_machine:
        return bare, f"without packages and with {other}"
    raise InvalidRequest(
        f"the workspace {project.root} does not list the packages of its jobs: add a uv.lock, a pyproject.toml with "
        "[project] or a requirements.txt (may be empty), or send no files (--no-workspace); only the local "
        f"cluster could use your environment {environment.prefix}"
    )


def _python_request(project: Project | None, here: Submitting, is_callable: bool) -> tuple[str, str]:
    """Return the job's requested Python version or specifiers, and the file with the request; empty for none."""
    version = here.own.version if is_callable else here.shell.version
    if project is None:
        return minor(version), ""
    required = project.requires_python.replace(" ", "")
    if is_callable:
        if not fits(version, required):
            raise InvalidRequest(
                f"this callable comes from Python {version} and runs on {minor(version)}, but the project "
                f"{project.root} requires Python {required}: submit it from such a Python"
            )
        return minor(version), ""
    if project.python_version:
        return project.python_version, str(project.root / PYTHON_VERSION_FILE)
    if fits(version, required):
        return minor(version), ""
    return required, f"requires-python of {project.root / PROJECT_FILE}"


def check_extras(extras: Sequence[str], project: Project | None) -> None:
    """Raise InvalidRequest for an extra that the workspace does not define. The message names the defined ones."""
    if not extras:
        return
    if project is None or project.packages is not PackageSource.LOCK:
        where = "it has no workspace" if project is None else f"the workspace {project.root} has none"
        raise InvalidRequest(
            f"extra {extras[0]!r}: extras are optional dependencies of a pyproject.toml, and the job has none: {where}"
        )
    if project.extras is None:
        return
    for extra in extras:
        if normalized(extra) not in project.extras:
            known = ", ".join(sorted(project.extras)) or "none"
            raise InvalidRequest(f"extra {extra!r} is not defined by {project.root}; its extras: {known}")
