"""Find the needs of a project's code in pyproject.toml: pip requirements and PYTHONPATH folders."""

import difflib
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rigging.errors import InvalidRequest

_REQUIREMENT: Final = re.compile(r"\s*(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[(?P<extras>[^\]]*)\])?(?P<rest>.*)")
_VERSION: Final = r"(?:===?|~=|!=|<=?|>=?)\s*[^\s,;()<>=!~][^\s,;()]*"
_AFTER_NAME: Final = re.compile(
    rf"\s*(?:@\s*\S.*|\(?\s*(?:{_VERSION}(?:\s*,\s*{_VERSION})*)?\s*,?\s*\)?\s*(?:;.*)?)", re.DOTALL
)
_SUBMODULES: Final = "submodules"


@dataclass(frozen=True, slots=True)
class ProjectNeeds:
    """The needs of a job that runs a project's code.

    Args:
        requirements: Pip requirements without duplicates, in the order they were found.
        import_paths: Import folders of the project besides its root, relative to it.
        notes: Messages for the user.
    """

    requirements: tuple[str, ...] = ()
    import_paths: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


Tables = Mapping[str, Mapping[str, Any]]
"""pyproject files, by their folder relative to the root ("" for the root)."""


def read_pyprojects(root: Path) -> dict[str, dict[str, Any]]:
    """Return the pyproject files of a project and, in a uv workspace, of its members; empty if there are none.

    Raises:
        InvalidRequest: A file is not valid TOML.
    """
    own = read_toml(root / "pyproject.toml")
    if own is None:
        return {}
    found = {"": own}
    workspace = own.get("tool", {}).get("uv", {}).get("workspace", {})
    excluded = {path for pattern in workspace.get("exclude", []) for path in root.glob(str(pattern))}
    for pattern in workspace.get("members", []):
        for folder in sorted(set(root.glob(str(pattern))) - excluded):
            table = read_toml(folder / "pyproject.toml")
            if table is not None:
                found[folder.relative_to(root).as_posix()] = table
    return found


def project_needs(
    tables: Tables, extras: Sequence[str], files: Iterable[str], *, left_out: Collection[str] = ()
) -> ProjectNeeds:
    """Return the needs of a job.

    Args:
        tables: The result of `read_pyprojects`.
        extras: Extras to install besides the project's own dependencies.
        files: The files that the job receives. They determine which submodules and `src` folders exist.
        left_out: Normalized names of packages of the cluster that must not be replaced.

    Raises:
        InvalidRequest: No project here has the group, or a dependency is outside of the sent files.
    """
    walk = _Walk(tables, left_out)
    walk.project("")
    for extra in extras:
        walk.group(extra)
    paths = dict.fromkeys([*_member_paths(tables, walk.local, set(files)), *_submodule_paths(files)])
    return ProjectNeeds(tuple(walk.requirements), tuple(paths), tuple(dict.fromkeys(walk.notes)))


def group_requirements(tables: Tables, extras: Sequence[str]) -> list[str]:
    """Return only the requirements of extras.

    Raises:
        InvalidRequest: No project here has the group, or a dependency is outside of the sent files.
    """
    walk = _Walk(tables)
    for extra in extras:
        walk.group(extra)
    return list(walk.requirements)


def requirement_name(requirement: str) -> str:
    """Return the normalized package name of a requirement; empty if it has none, such as a path."""
    found = _REQUIREMENT.match(requirement)
    return normalized(found["name"]) if found else ""


def check_requirement(text: str) -> None:
    """Raise InvalidRequest for text that pip would not accept as a package. Options, paths and URLs pass."""
    if text.startswith("-") or "/" in text or text.endswith((".whl", ".zip", ".tar.gz")):
        return
    found = _REQUIREMENT.fullmatch(text)
    if found is None or not _AFTER_NAME.fullmatch(found["rest"]):
        raise InvalidRequest(f"{text!r} is not a package for pip; write e.g. 'name', 'name[extra]' or 'name>=1.2'")


def normalized(name: str) -> str:
    """Return the name of a package or group in the form used for comparisons."""
    return re.sub(r"[-_.]+", "-", name).lower()


def split_requirements(text: str) -> list[str]:
    """Return the requirements in `a,b[x,y],c>=1,<2`. Commas inside brackets and before a version do not separate."""
    parts = re.split(r",(?![^\[]*\])(?!\s*(?:[<>=!~]|$))", text)
    return [part.strip().rstrip(",") for part in parts if part.strip()]


def read_toml(path: Path) -> dict[str, Any] | None:
    """Return the content of a TOML file; None if it does not exist. Raise InvalidRequest if it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}") from None


@dataclass(slots=True)
class _Walk:
    """Collects requirements. For projects of this workspace, it collects their dependencies instead."""

    tables: Tables
    left_out: Collection[str] = ()
    requirements: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    local: dict[str, None] = field(default_factory=dict)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def project(self, folder: str, groups: Iterable[str] = (), *, core: bool = True) -> None:
        """Add a project's dependencies and its groups."""
        table = self.tables.get(folder, {}).get("project", {})
        for group in (*([""] if core else []), *groups):
            if (folder, normalized(group)) in self.seen:
                continue
            self.seen.add((folder, normalized(group)))
            self.local[folder] = None
            known = table.get("optional-dependencies", {})
            wanted = [name for name in known if normalized(name) == normalized(group)]
            texts = [str(text) for name in wanted for text in known[name]] if group else _core(table)
            for requirement in texts:
                self._requirement(requirement, folder)

    def group(self, extra: str) -> None:
        """Add a group from every project that has it."""
        known: dict[str, list[str]] = {}
        for folder, table in self.tables.items():
            for name in table.get("project", {}).get("optional-dependencies", {}):
                known.setdefault(normalized(name), []).append(folder)
        if normalized(extra) not in known:
            near = difflib.get_close_matches(normalized(extra), known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidRequest(
                f"extra {extra!r} is not defined in any pyproject.toml here{hint}; known: {', '.join(known) or 'none'}"
            )
        for folder in known[normalized(extra)]:
            self.project(folder, [extra], core=False)

    def _requirement(self, requirement: str, folder: str) -> None:
        found = _REQUIREMENT.match(requirement)
        name = requirement_name(requirement)
        if name in self.left_out:
            self.notes.append(f"{requirement} is not installed for the job, which uses the cluster's own")
            return
        written = (found["extras"] or "") if found else ""
        groups = [text.strip() for text in written.split(",") if text.strip()]
        home = self._home(name, folder)
        if home is not None:
            self.project(home, groups)
            return
        self.requirements[self._from_source(requirement, name, groups, folder)] = None

    def _home(self, name: str, folder: str) -> str | None:
        """Return the folder of the project of that name, if the job receives it."""
        source = self._source(name, folder)
        if isinstance(source.get("path"), str):
            place = _joined(folder, source["path"])
            if place is None:
                raise InvalidRequest(
                    f"{name} is at {source['path']!r} (tool.uv.sources), outside of the working directory, and cannot "
                    "be sent; run in a folder above both, or pass a released version with --pip_deps"
                )
            return place
        if "git" in source or "url" in source:
            return None
        names = {normalized(str(table.get("project", {}).get("name", ""))): at for at, table in self.tables.items()}
        return names.get(name)

    def _source(self, name: str, folder: str) -> Mapping[str, Any]:
        for place in (folder, ""):
            sources = self.tables.get(place, {}).get("tool", {}).get("uv", {}).get("sources", {})
            for written, source in sources.items():
                if normalized(written) == name and isinstance(source, Mapping):
                    return source
        return {}

    def _from_source(self, requirement: str, name: str, groups: Sequence[str], folder: str) -> str:
        source = self._source(name, folder)
        label = f"{name}[{','.join(groups)}]" if groups else name
        if "url" in source:
            return f"{label} @ {source['url']}"
        if "git" in source:
            at = next((f"@{source[key]}" for key in ("rev", "tag", "branch") if key in source), "")
            sub = f"#subdirectory={source['subdirectory']}" if "subdirectory" in source else ""
            return f"{label} @ git+{source['git']}{at}{sub}"
        return requirement.strip()


def _core(project: Mapping[str, Any]) -> list[str]:
    return [str(text) for text in project.get("dependencies", [])]


def _joined(folder: str, path: str) -> str | None:
    """Return `path` from `folder`, relative to the root; None if it leaves the root."""
    parts: list[str] = []
    for part in [*folder.split("/"), *path.split("/")] if not path.startswith(("/", "~")) else [".."]:
        if part == ".." and not parts:
            return None
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _member_paths(tables: Tables, local: Iterable[str], files: set[str]) -> Iterator[str]:
    folders = {parent for file in files for parent in _parents(file)}
    for folder in dict.fromkeys([*tables, *local]):
        src = f"{folder}/src" if folder else "src"
        if src in folders:
            yield src
        elif folder:
            yield folder


def _submodule_paths(files: Iterable[str]) -> Iterator[str]:
    folders = {parent for file in files for parent in _parents(file) if parent.startswith(f"{_SUBMODULES}/")}
    for folder in sorted(folder for folder in folders if folder.count("/") == 1):
        yield folder
        if f"{folder}/src" in folders:
            yield f"{folder}/src"


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
