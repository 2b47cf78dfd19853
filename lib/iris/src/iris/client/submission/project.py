"""The packages and the Python of a workspace, from pyproject.toml, uv.lock and requirements.txt."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from iris.domain.python_version import is_python_request
from iris.domain.runtime import PackageSource
from iris.python_tools.requirements import file_target, named_paths
from rigging.errors import InvalidRequest
from rigging.project.needs import normalized, read_toml

LOCK_FILE: Final = "uv.lock"
PROJECT_FILE: Final = "pyproject.toml"
REQUIREMENTS_FILE: Final = "requirements.txt"
PYTHON_VERSION_FILE: Final = ".python-version"
METADATA_FILES: Final = (PROJECT_FILE, "uv.toml", PYTHON_VERSION_FILE, "setup.py", "setup.cfg")
"""Files that list a project's packages without a build."""

_FILE_URL: Final = re.compile(r"@\s*file:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LocalDependency:
    """A package, an archive or a requirements file that is referenced by path.

    Args:
        name: The dependency's name, for messages.
        written: The path as written.
        target: Its absolute location.
        origin: The file that references it.
    """

    name: str
    written: str
    target: Path
    origin: str


@dataclass(frozen=True, slots=True)
class Project:
    """The packages and the Python of a workspace."""

    root: Path
    packages: PackageSource = PackageSource.NONE
    locked: bool = False
    requires_python: str = ""
    python_version: str = ""
    extras: frozenset[str] | None = frozenset()
    dependencies: tuple[LocalDependency, ...] = ()
    builds: bool = False


def read_project(root: Path, *, same_machine: bool = False) -> Project:
    """Return the metadata of a workspace.

    Args:
        root: The workspace, as a resolved path.
        same_machine: Whether jobs run on this machine, where absolute paths are valid.

    Raises:
        InvalidRequest: A file cannot be read, or references a dependency by a path that is valid only on this machine.
    """
    version = _python_version(root)
    table = read_toml(root / PROJECT_FILE)
    if table is None or "project" not in table:
        if not (root / REQUIREMENTS_FILE).is_file():
            return Project(root, python_version=version)
        found = tuple(_checked(_from_requirements(root / REQUIREMENTS_FILE), same_machine))
        return Project(root, PackageSource.REQUIREMENTS, python_version=version, dependencies=found)
    tables = {root: table, **_members(root, table)}
    locked = (root / LOCK_FILE).is_file()
    known: dict[Path, dict[str, Any] | None] = dict(tables)
    sources = list(_from_tables(tables, root, known))
    if locked:
        sources = list(_from_lock(root, members=set(tables)))
    return Project(
        root,
        PackageSource.LOCK,
        locked=locked,
        requires_python=str(table["project"].get("requires-python", "")),
        python_version=version,
        extras=_extras(tables.values()),
        dependencies=tuple(_checked(sources, same_machine)),
        builds=any(not _is_static(found) for found in known.values()),
    )


def _python_version(root: Path) -> str:
    path = root / PYTHON_VERSION_FILE
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}") from None
    first = next((line for line in lines if line and not line.startswith("#")), "")
    version = re.sub(r"^(cpython|python)[-@]?(?=\d)", "", first.lower())
    # Version managers write names of environments there, too, which mean nothing elsewhere; uv passes over them, too.
    return version if is_python_request(version) else ""


def _members(root: Path, table: Mapping[str, Any]) -> dict[Path, dict[str, Any]]:
    settings = table.get("tool", {}).get("uv", {}).get("workspace", {})
    excluded = [str(pattern) for pattern in settings.get("exclude", [])]
    found: dict[Path, dict[str, Any]] = {}
    for pattern in settings.get("members", []):
        for path in sorted(root.glob(str(pattern))):
            if any(fnmatch(path.relative_to(root).as_posix(), exclude) for exclude in excluded):
                continue
            member = read_toml(path / PROJECT_FILE)
            if member is not None:
                found[path] = member
    return found


def _extras(tables: Iterable[Mapping[str, Any]]) -> frozenset[str] | None:
    projects = [table.get("project", {}) for table in tables]
    if any("optional-dependencies" in project.get("dynamic", []) for project in projects):
        return None
    return frozenset(normalized(name) for project in projects for name in project.get("optional-dependencies", {}))


def _is_static(table: Mapping[str, Any] | None) -> bool:
    return table is not None and "project" in table and not table["project"].get("dynamic")


def _from_tables(
    tables: Mapping[Path, Mapping[str, Any]], root: Path, known: dict[Path, dict[str, Any] | None]
) -> Iterator[LocalDependency]:
    """Yield the paths referenced in pyproject files, and recursively in those of referenced projects."""
    for directory, table in tables.items():
        origin = os.path.relpath(directory / PROJECT_FILE, root)
        yield from _file_urls(table, origin)
        sources = table.get("tool", {}).get("uv", {}).get("sources", {})
        for name, entries in sources.items():
            for entry in entries if isinstance(entries, list) else [entries]:
                if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
                    continue
                found = _local(name, entry["path"], directory, origin)
                yield found
                if found.target not in known and found.target.is_dir():
                    known[found.target] = inner = read_toml(found.target / PROJECT_FILE)
                    yield from _from_tables({found.target: inner or {}}, root, known)


def _file_urls(table: Mapping[str, Any], origin: str) -> Iterator[LocalDependency]:
    project = table.get("project", {})
    groups = [project.get("dependencies", []), *project.get("optional-dependencies", {}).values()]
    for requirement in (text for group in groups for text in group if isinstance(text, str)):
        if _FILE_URL.search(requirement):
            name, _, url = requirement.partition("@")
            url = url.partition(";")[0].strip()
            yield LocalDependency(name.strip(), url, file_target(url, Path("/")), origin)


def _from_lock(root: Path, members: set[Path]) -> Iterator[LocalDependency]:
    lock = read_toml(root / LOCK_FILE) or {}
    for package in lock.get("package", []):
        source = package.get("source", {})
        written = next((source[key] for key in ("editable", "directory", "virtual", "path") if key in source), None)
        if written is None and "://" not in source.get("registry", "://"):
            written = source["registry"]
        if written is None:
            continue
        found = _local(str(package.get("name", "?")), str(written), root, LOCK_FILE)
        if found.target not in members and found.target != root:
            yield found


def _from_requirements(path: Path) -> Iterator[LocalDependency]:
    for found in named_paths(path):
        yield LocalDependency(found.written, found.written, found.target, found.origin)


def _local(name: str, written: str, directory: Path, origin: str) -> LocalDependency:
    return LocalDependency(name, written, Path(os.path.normpath(directory / written)), origin)


def _checked(dependencies: Iterable[LocalDependency], same_machine: bool) -> Iterator[LocalDependency]:
    seen: set[Path] = set()
    for found in dependencies:
        where = f"{found.name} in {found.origin} is at {found.written!r}"
        if found.written.startswith("~") or (not same_machine and _is_absolute(found.written)):
            raise InvalidRequest(
                f"{where}, which does not exist on other machines: use a path relative to that file, e.g. '../mylib', "
                "so that the job can include it"
            )
        if not found.target.exists():
            raise InvalidRequest(f"{where}, but {found.target} does not exist; the job cannot include it")
        if found.target not in seen:
            seen.add(found.target)
            yield found


def _is_absolute(written: str) -> bool:
    return os.path.isabs(written) or written.lower().startswith("file:")
