"""Chooses the workspace of jobs, and a command's working directory in it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import rigging.project.workspace
from rigging.config_discovery import find_project_root
from rigging.project.workspace import WorkspaceRules, reason_against_root

WORKSPACE_RULES: Final = WorkspaceRules(
    limit_variable="IRIS_MAX_BUNDLE_MB",
    other_ways="name another folder (--workspace DIR), or send none (--no-workspace)",
)


def find_workspace(cwd: Path, *, environ: Mapping[str, str] | None = None) -> Path:
    """Return the workspace of a command run in `cwd`: its project or git repository, else `cwd` itself.

    Raises:
        InvalidRequest: The workspace would be a folder such as "/", the home directory or /tmp.
    """
    root = find_project_root(cwd)
    # A stray pyproject.toml or .git in the home directory does not make all of it the project.
    if root is None or reason_against_root(root, environ):
        root = cwd.absolute()
    check_workspace_root(root, environ=environ)
    return root


def check_workspace_root(root: Path, *, environ: Mapping[str, str] | None = None) -> None:
    """Raise InvalidRequest for a folder that is not a project: "/", the home directory, /tmp and the like."""
    rigging.project.workspace.check_workspace_root(root, rules=WORKSPACE_RULES, environ=environ)


def working_dir(cwd: Path, root: Path) -> str:
    """Return `cwd` relative to the workspace `root`, with "/"; empty for the root and for directories outside of it."""
    for here, there in ((cwd.absolute(), root.absolute()), (cwd.resolve(), root.resolve())):
        if here.is_relative_to(there):
            relative = here.relative_to(there).as_posix()
            return "" if relative == "." else relative
    return ""
