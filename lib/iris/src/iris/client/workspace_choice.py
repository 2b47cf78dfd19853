"""Which folder goes along with jobs, and in which directory of it a command runs."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rigging.config_discovery import find_project_root
from rigging.errors import InvalidRequest

_SYSTEM_DIRS: Final = frozenset(
    {"/", "/bin", "/boot", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/root", "/run", "/sbin"}
    | {"/srv", "/tmp", "/usr", "/usr/local", "/var", "/var/tmp", "/Users", "/private", "/private/tmp", "/Library"}
)
_SYSTEM_TREES: Final = ("/dev", "/proc", "/sys")


def find_workspace(cwd: Path, *, environ: Mapping[str, str] | None = None) -> Path:
    """The folder that goes along with what is run in `cwd`: its project or git repository, else `cwd` itself.

    Raises:
        InvalidRequest: It would be a folder such as "/", the home directory or /tmp.
    """
    root = find_project_root(cwd)
    # A stray pyproject.toml or .git in the home directory does not make all of it the project.
    if root is None or _reason_against(root, environ):
        root = cwd.absolute()
    check_workspace_root(root, environ=environ)
    return root


def check_workspace_root(root: Path, *, environ: Mapping[str, str] | None = None) -> None:
    """Raise InvalidRequest for a folder that is nobody's project: "/", the home directory, /tmp and the like."""
    if not root.is_dir():
        raise InvalidRequest(f"workspace {root} is not a directory")
    reason = _reason_against(root, environ)
    if reason:
        raise InvalidRequest(
            f"the workspace {root} is {reason}, which does not go along with a job as a whole: run it in the folder "
            "of your files, name that folder (--workspace DIR), or send none (--no-workspace)"
        )


def working_dir(cwd: Path, root: Path) -> str:
    """`cwd` relative to the workspace `root`, with "/"; empty for the root itself and for any place outside of it."""
    for here, there in ((cwd.absolute(), root.absolute()), (cwd.resolve(), root.resolve())):
        if here.is_relative_to(there):
            relative = here.relative_to(there).as_posix()
            return "" if relative == "." else relative
    return ""


def _reason_against(root: Path, environ: Mapping[str, str] | None) -> str:
    """What kind of folder it is that never is a workspace; empty for any other."""
    environ = os.environ if environ is None else environ
    path = root.resolve()
    home = Path(environ.get("HOME") or os.path.expanduser("~")).resolve()
    if path == home:
        return "your home directory"
    if path == Path("/"):
        return "the root of the file system"
    # Some set HOME to a folder of the project for the time of a build.
    if home.is_relative_to(path) and not any((path / mark).exists() for mark in (".git", "pyproject.toml")):
        return "a folder above your home directory"
    if str(path) in _SYSTEM_DIRS or any(path.is_relative_to(tree) for tree in _SYSTEM_TREES):
        return "a directory of the system"
    if path == Path(environ.get("TMPDIR") or tempfile.gettempdir()).resolve():
        return "the directory of temporary files"
    return ""
