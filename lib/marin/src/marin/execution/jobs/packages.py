"""A step's `pip_dependency_groups`, split into extras of this project and packages for pip."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rigging.project.needs import check_requirement, normalized

_DISTRIBUTION = "marin"


@dataclass(frozen=True, slots=True)
class DependencyGroups:
    """Extras (optional-dependency keys) and pip requirements, each in the given order."""

    extras: list[str]
    pip_packages: list[str]


def split_dependency_groups(groups: Sequence[str], root: Path | None = None) -> DependencyGroups:
    """Split dependency groups into extras and pip requirements.

    Args:
        groups: Names. An optional-dependency key of lib/marin or of the root project is an extra. Any other name is a
            pip requirement.
        root: The project's root. Defaults to the nearest parent of the current directory with a uv workspace, or else
            with any pyproject.toml.

    Raises:
        InvalidRequest: A group is neither an extra nor a requirement.
    """
    if not groups:
        return DependencyGroups([], [])
    known = {normalized(name): name for name in (*_installed_extras(), *_declared_extras(root or _find_root()))}
    extras, pip_packages = [], []
    for group in groups:
        extra = known.get(normalized(group))
        if extra is not None:
            extras.append(extra)
        else:
            check_requirement(group)
            pip_packages.append(group)
    return DependencyGroups(extras, pip_packages)


def _installed_extras() -> list[str]:
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        return metadata(_DISTRIBUTION).get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return []  # runs from a bare checkout: only the pyproject files can tell


def _find_root() -> Path | None:
    with_pyproject = [path for path in (Path.cwd(), *Path.cwd().parents) if (path / "pyproject.toml").is_file()]
    for path in with_pyproject:
        if "[tool.uv.workspace]" in (path / "pyproject.toml").read_text(encoding="utf-8"):
            return path
    return with_pyproject[0] if with_pyproject else None


def _declared_extras(root: Path | None) -> Iterable[str]:
    import tomllib

    if root is None:
        return
    for path in (root / "pyproject.toml", root / "lib" / _DISTRIBUTION / "pyproject.toml"):
        if path.is_file():
            project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
            yield from project.get("optional-dependencies", {})
