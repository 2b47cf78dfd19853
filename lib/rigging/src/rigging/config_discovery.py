"""Locate the current project, and the cluster configs that a name can refer to."""

import difflib
import os
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from rigging.errors import NotFound

#: Where cluster configs lie; relative ones are below the project root, and earlier ones win.
CLUSTER_CONFIG_DIRS = ("infra/clusters", "lib/iris/config", "~/.config/marin/clusters")
_SUFFIXES = (".yaml", ".yml")


def find_project_root(start: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the project that contains `start` (default: the current directory), or None.

    This is the nearest parent whose pyproject.toml has [tool.uv.workspace]; else the nearest with a pyproject.toml;
    else the nearest with .git.
    """
    here = Path(start or Path.cwd()).absolute()
    parents = [directory for directory in (here, *here.parents) if directory.is_dir()]
    projects = [directory for directory in parents if (directory / "pyproject.toml").is_file()]
    for directory in projects:
        if _is_workspace(directory / "pyproject.toml"):
            return directory
    if projects:
        return projects[0]
    return next((directory for directory in parents if (directory / ".git").exists()), None)


class ConfigNotFound(NotFound, FileNotFoundError):
    """No config has that name, or the file does not exist."""


def find_configs(
    dirs: Iterable[str | os.PathLike[str]],
    name: str | None = None,
    *,
    start: str | os.PathLike[str] | None = None,
) -> dict[str, Path]:
    """Return the YAML files in `dirs`, by name without suffix. If two share a name, the earlier one wins.

    Args:
        dirs: Absolute, below the home directory ("~/..."), or relative to the project root (the current directory
            without a project). Missing ones are skipped.
        name: Return only the config of this name.
        start: Where to start looking for the project root.
    """
    base = find_project_root(start) or Path(start or Path.cwd())
    found: dict[str, Path] = {}
    for directory in dirs:
        folder = base / os.path.expanduser(directory)
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if path.suffix in _SUFFIXES and name in (None, path.stem) and path.is_file():
                    found.setdefault(path.stem, path)
    return found


def list_cluster_configs(
    dirs: Sequence[str | os.PathLike[str]] = CLUSTER_CONFIG_DIRS, *, start: str | os.PathLike[str] | None = None
) -> dict[str, Path]:
    """Return the config file of every known cluster, by cluster name. `dirs` is as in `find_configs`."""
    return find_configs(dirs, start=start)


def resolve_cluster_config(
    name_or_path: str | os.PathLike[str],
    dirs: Sequence[str | os.PathLike[str]] = CLUSTER_CONFIG_DIRS,
    *,
    start: str | os.PathLike[str] | None = None,
) -> Path:
    """Return the config file that a cluster name or a path refers to.

    Args:
        name_or_path: A name with or without .yaml, or a file's path.
        dirs: The config directories, as in `find_configs`.
        start: Where to start looking for the project root.

    Raises:
        ConfigNotFound: No such file or cluster. The message lists the known clusters.
    """
    text = os.fspath(name_or_path)
    looks_like_path = os.sep in text or text.endswith(_SUFFIXES)
    path = Path(os.path.expanduser(text))
    if looks_like_path and path.is_file():
        return path.absolute()
    known = find_configs(dirs, start=start)
    if text in known:
        return known[text]
    stem = Path(text).stem
    if os.sep not in text and looks_like_path and stem in known:
        return known[stem]
    what = f"no cluster config file {text!r}" if looks_like_path else f"no cluster named {text!r}"
    nearest = difflib.get_close_matches(stem, known)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    names = ", ".join(sorted(known)) or f"none (looked in {', '.join(str(place) for place in dirs)})"
    raise ConfigNotFound(f"{what}{hint}; known clusters: {names}")


def _is_workspace(pyproject: Path) -> bool:
    try:
        with pyproject.open("rb") as handle:
            tool = tomllib.load(handle).get("tool", {})
    except (OSError, tomllib.TOMLDecodeError):
        # An unreadable file still marks a project; it only cannot say that it is a workspace.
        return False
    return isinstance(tool, dict) and isinstance(tool.get("uv"), dict) and "workspace" in tool["uv"]
