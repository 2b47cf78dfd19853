"""Reads the pyproject files of a bundle: members, module directories, names and entry points."""

import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from iris.domain.states import FailureKind
from iris.worker.types import PreparationFailed

_LOCAL_SOURCE: Final = re.compile(rb'source = \{ (?:editable|directory|path|registry) = "((?:(?!://)[^"])*)"')

_ABSOLUTE_SOURCE: Final = re.compile(
    rb'^name = "([^"]*)"\n(?:version = .*\n)?source = \{ (?:editable|directory) = "/', re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Member:
    """One project of the workspace."""

    directory: str
    """Relative to the bundle; "." for the root."""
    name: str
    version: str
    dependencies: tuple[str, ...]
    extras: tuple[str, ...]
    entry_points: Mapping[str, Mapping[str, str]]
    """Group → name → object; scripts are the group "console_scripts"."""
    source_dir: str
    """The directory of its modules, relative to the bundle."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A bundle that contains a Python project."""

    root: Path
    members: tuple[Member, ...]
    has_lock: bool
    settings: str
    """The root's [tool.uv] table, canonical."""

    @property
    def extras(self) -> list[str]:
        return sorted({extra for member in self.members for extra in member.extras})

    def python_path(self) -> list[str]:
        """Return the directories from which the workspace's modules are imported, the root first."""
        found = [str(self.root), *(str(self.root / member.source_dir) for member in self.members)]
        return list(dict.fromkeys(found))

    def lock_fingerprint(self, within: Path | None = None) -> str:
        """Return a digest of all inputs that determine the installed third-party packages; reads files like
        `tree_digest`.
        """
        lock = (self.root / "uv.lock").read_bytes()
        digest = hashlib.sha256(lock)
        digest.update(self.settings.encode())
        for path in (self.root / "uv.toml", *self.local_sources()):
            digest.update(f"{os.path.relpath(path, self.root)}\0{tree_digest(path, within)}\0".encode())
        return digest.hexdigest()

    def local_sources(self) -> list[Path]:
        """Return the bundle's folders and archives in the lock file, except members, because their content also
        determines packages.
        """
        members = {member.directory for member in self.members}
        paths = {path.decode() for path in _LOCAL_SOURCE.findall((self.root / "uv.lock").read_bytes())}
        return [Path(os.path.normpath(self.root / path)) for path in sorted(paths - members)]

    def absolute_sources(self) -> list[str]:
        """Return the names of the packages that the lock file takes from folders outside of the bundle."""
        return [name.decode() for name in _ABSOLUTE_SOURCE.findall((self.root / "uv.lock").read_bytes())]


def tree_digest(path: Path, within: Path | None = None) -> str:
    """Return a digest of a file or a folder's content; empty if it does not exist.

    Args:
        path: The file or folder, without "..".
        within: Files outside this directory are ignored, because the job may not read them.
    """
    if within is not None and not path.is_relative_to(within):
        return ""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    if not path.is_dir():
        return ""
    digest = hashlib.sha256()
    for found in sorted(path.rglob("*")):
        if found.is_symlink():
            digest.update(f"{found.relative_to(path)}\0{os.readlink(found)}\0".encode())
        elif found.is_file():
            content = hashlib.sha256(found.read_bytes()).hexdigest()
            digest.update(f"{found.relative_to(path)}\0{content}\0".encode())
    return digest.hexdigest()


def read_workspace(bundle: Path) -> Workspace | None:
    """Return the workspace in `bundle`; None if it has no pyproject.toml. Raises PreparationFailed (ENVIRONMENT)."""
    root = _load(bundle, ".")
    if root is None:
        return None
    settings = root.get("tool", {}).get("uv", {})
    tables = {".": root}
    for directory in _member_directories(bundle, settings.get("workspace", {})):
        table = _load(bundle, directory)
        if table is not None:
            tables[directory] = table
    members = [_member(bundle, directory, table) for directory, table in tables.items() if "project" in table]
    return Workspace(
        root=bundle,
        members=tuple(members),
        has_lock=(bundle / "uv.lock").exists(),
        settings=json.dumps(settings, sort_keys=True, default=str),
    )


def write_site(workspace: Workspace, target: Path) -> None:
    """Create `target`: metadata that makes the members count as installed, and `bin/` with their commands.

    With `target` on PYTHONPATH, importlib.metadata finds the members' versions and entry points, although their code
    comes from the bundle.
    """
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    (temporary / "bin").mkdir(parents=True)
    try:
        for member in workspace.members:
            _write_dist_info(member, temporary)
            for name, target_object in member.entry_points.get("console_scripts", {}).items():
                _write_command(name, target_object, temporary / "bin" / name)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _load(bundle: Path, directory: str) -> dict[str, Any] | None:
    path = bundle / directory / "pyproject.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        name = path.relative_to(bundle)
        raise PreparationFailed(FailureKind.ENVIRONMENT, f"{name} of the bundle cannot be read: {error}") from error


def _member_directories(bundle: Path, table: Mapping[str, Any]) -> list[str]:
    excluded = [str(pattern) for pattern in table.get("exclude", [])]
    found = []
    for pattern in table.get("members", []):
        if str(pattern).startswith("/") or ".." in str(pattern).split("/"):
            raise _refused(f"the workspace member {str(pattern)!r} leads out of the job's files")
        for path in sorted(bundle.glob(str(pattern))):
            directory = path.relative_to(bundle).as_posix()
            if path.is_dir() and not any(fnmatch(directory, exclude) for exclude in excluded):
                found.append(directory)
    return list(dict.fromkeys(found))


def _member(bundle: Path, directory: str, table: Mapping[str, Any]) -> Member:
    project = table["project"]
    name, version = str(project.get("name", Path(directory).name)), str(project.get("version", "0"))
    entry_points = {group: dict(entries) for group, entries in project.get("entry-points", {}).items()}
    if project.get("scripts"):
        entry_points["console_scripts"] = dict(project["scripts"])
    for word in (name, version, *entry_points.get("console_scripts", ())):
        if "/" in word or "\0" in word or word in (".", ".."):  # these become names of files
            raise _refused(
                f"{directory}/pyproject.toml: {word!r} is not valid as a name, version or script of a project"
            )
    source = Path(directory) / "src"
    return Member(
        directory=directory,
        name=name,
        version=version,
        dependencies=tuple(project.get("dependencies", ())),
        extras=tuple(project.get("optional-dependencies", {})),
        entry_points=entry_points,
        source_dir=source.as_posix() if (bundle / source).is_dir() else directory,
    )


def _refused(why: str) -> PreparationFailed:
    return PreparationFailed(FailureKind.ENVIRONMENT, why)


def _write_dist_info(member: Member, site: Path) -> None:
    name = re.sub(r"[-_.]+", "_", member.name).lower()
    directory = site / f"{name}-{member.version}.dist-info"
    directory.mkdir()
    metadata = ["Metadata-Version: 2.1", f"Name: {member.name}", f"Version: {member.version}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in member.dependencies]
    (directory / "METADATA").write_text("\n".join(metadata) + "\n", encoding="utf-8")
    lines = []
    for group, entries in member.entry_points.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()), ""]
    (directory / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def _write_command(name: str, target_object: str, path: Path) -> None:
    module, _, attribute = target_object.partition("[")[0].strip().partition(":")
    function = attribute.strip() or "main"
    code = (
        f"import sys; sys.path[:1] = []; sys.argv[0] = {name!r}; from importlib import import_module; "
        f"from operator import attrgetter; sys.exit(attrgetter({function!r})(import_module({module.strip()!r}))())"
    )
    path.write_text(f'#!/bin/sh\nexec python -c {shlex.quote(code)} "$@"\n', encoding="utf-8")
    path.chmod(0o555)
