"""Builds the virtual environments of tasks with uv, once per key."""

import asyncio
import contextlib
import hashlib
import importlib.metadata
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.domain.python_version import minor
from iris.domain.states import FailureKind
from iris.python_tools.requirements import named_paths
from iris.python_tools.uv import cause_of, is_network_failure, uv_program
from iris.worker.host.removal import move_away, remove_tree
from iris.worker.isolation.seals import Seals, own_tree
from iris.worker.paths import WorkPaths
from iris.worker.prepare.interpreters import Interpreter, Interpreters, ToolRunner
from iris.worker.prepare.single_flight import SingleFlight
from iris.worker.prepare.workspace import Workspace, tree_digest
from iris.worker.types import PreparationFailed
from rigging.errors import InvalidRequest

_MARKER: Final = ".ready"
_ERROR_BYTES: Final = 4096
_WRITE: Final = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
_FORMAT: Final = 2
"""Part of every key; increment it when the build process changes."""

_NO_VERSION: Final = re.compile(r"there (?:is|are) no versions? of\s+([A-Za-z0-9][A-Za-z0-9._-]*)")

REQUIREMENTS_FILE: Final = "requirements.txt"


@dataclass(frozen=True, slots=True)
class _Recipe:
    """The uv commands that build an environment, run in `directory`."""

    directory: Path
    commands: tuple[tuple[str, ...], ...]
    hint: str = ""
    over: Interpreter | None = None
    """The environment whose packages are also visible."""
    copied: Path | None = None
    """Sources to copy before the build, because a build may write next to its sources; contains `directory`."""


class EnvironmentStore:
    """Environments below `paths.envs`; an environment is complete if its marker file exists.

    Args:
        base: The environment variables for uv (`task_env.base_variables`).
        seals: Detect changed environments, if tasks can change them; changed environments are rebuilt.
        compiles: Whether to compile installed packages, because neither tasks nor `CompiledTrees` can compile them
            later.
        owner: The uid that runs `tools` and owns environments; 0 for this process's.
        unwanted_s: How long a build continues after the last waiting attempt is cancelled.
        limit_s: Timeout of one uv command.
    """

    def __init__(
        self,
        paths: WorkPaths,
        tools: ToolRunner,
        base: Mapping[str, str],
        seals: Seals | None = None,
        compiles: bool = False,
        owner: int = 0,
        unwanted_s: float = 60.0,
        limit_s: float = 3600.0,
    ) -> None:
        self._limit_s = limit_s
        self._owner = owner
        self.interpreters = Interpreters(tools, base, paths.root)
        self._paths = paths
        self._tools = tools
        self._base = base
        self._seals = seals
        self._compiles = compiles
        self._flights: SingleFlight[Path] = SingleFlight(unwanted_s)
        self._uv_version = importlib.metadata.version("uv")

    def locked_key(
        self, workspace: Workspace, extras: Sequence[str], packages: Sequence[str], python: Interpreter
    ) -> str:
        """Return the key of a locked workspace's environment; environments with equal keys have equal third-party
        packages.

        Args:
            workspace: The workspace, with its lock file.
            extras: Extras of the project.
            packages: Requirements for pip.
            python: The interpreter.
        """
        return self._key(workspace.lock_fingerprint(self._readable(workspace.root)), extras, packages, python)

    async def locked(
        self,
        key: str,
        workspace: Workspace,
        bundle: Path,
        extras: Sequence[str],
        packages: Sequence[str],
        python: Interpreter,
    ) -> Path:
        """Return the environment of a locked workspace, built if necessary.

        Args:
            key: As returned by `locked_key`.
            workspace: The workspace in the bundle.
            bundle: The unpacked bundle.
            extras: Extras of the workspace.
            packages: Further requirements in pip's format.
            python: The interpreter.

        Raises:
            PreparationFailed: The build failed (ENVIRONMENT); the message is uv's.
        """
        sync = ["sync", "--frozen", "--no-install-workspace", "--all-packages", "--no-default-groups", "--no-editable"]
        for extra in sorted(set(extras)):
            sync += ["--extra", extra]
        # uv's cache knows such a folder by its path: it would install what was there at first.
        for name in workspace.absolute_sources():
            sync.append(f"--refresh-package={name}")
        recipe = _Recipe(
            workspace.root,
            ((*sync, "--python", python.program), *_install(self._paths.envs / key, packages)),
            f"extras of this workspace: {', '.join(workspace.extras) or 'none'}" if extras else "",
            copied=bundle if workspace.local_sources() else None,
        )
        return await self._ready(key, recipe)

    def required_key(self, root: Path, packages: Sequence[str], python: Interpreter) -> str:
        """Return the key of the environment of `root`'s requirements.txt. Raises PreparationFailed.

        Args:
            root: The directory.
            packages: Requirements for pip.
            python: The interpreter.
        """
        digest = hashlib.sha256()
        try:
            within = self._readable(root)
            named = [found.target for found in named_paths(root / REQUIREMENTS_FILE, within)]
            # The last two may hold settings of uv.
            for path in (root / REQUIREMENTS_FILE, *named, root / "pyproject.toml", root / "uv.toml"):
                digest.update(f"{os.path.relpath(path, root)}\0{tree_digest(path, within)}\0".encode())
        except (InvalidRequest, OSError) as error:
            raise PreparationFailed(FailureKind.ENVIRONMENT, f"the job's requirements: {error}") from error
        return self._key(f"required {digest.hexdigest()} {self._settings()}", (), packages, python)

    async def required(self, key: str, root: Path, bundle: Path, packages: Sequence[str], python: Interpreter) -> Path:
        """Return the environment of `root`'s requirements.txt, built if necessary.

        Args:
            key: As returned by `required_key`.
            root: The project.
            bundle: The unpacked bundle.
            packages: Further requirements in pip's format.
            python: The interpreter.

        Raises:
            PreparationFailed: The build failed (ENVIRONMENT); the message is uv's.
        """
        path = self._paths.envs / key
        install = ("pip", "install", "--python", str(path / "bin" / "python"), "--no-editable")
        recipe = _Recipe(
            root,
            (
                _venv(path, python),
                (*install, "--requirements", REQUIREMENTS_FILE, "--", *sorted(set(packages))),
            ),
            copied=bundle,
        )
        return await self._ready(key, recipe)

    async def plain(self, packages: Sequence[str], python: Interpreter, *, over: Interpreter | None = None) -> Path:
        """Return an environment with `packages` only, built if necessary.

        Args:
            packages: Requirements in pip's format.
            python: The interpreter.
            over: Another environment whose packages are also visible.

        Raises:
            PreparationFailed: The build failed (ENVIRONMENT); the message is uv's.
        """
        below = f"{over.program} {over.identity}" if over else ""
        key = self._key(f"plain {below} {self._settings() if packages else ''}", (), packages, python)
        path = self._paths.envs / key
        recipe = _Recipe(self._paths.envs, (_venv(path, python), *_install(path, packages)), over=over)
        return await self._ready(key, recipe)

    async def close(self) -> None:
        """Cancel the running builds."""
        await self._flights.close()

    def _key(self, prepared: str, extras: Sequence[str], packages: Sequence[str], python: Interpreter) -> str:
        parts = [_FORMAT, prepared, sorted(set(extras)), sorted(set(packages)), python.identity]
        return hashlib.sha256(json.dumps([*parts, self._uv_version]).encode()).hexdigest()[:32]

    def _readable(self, project: Path) -> Path | None:
        """Return the directory that this process may read for a project: everything, or only its bundle if the job has
        another uid.
        """
        return self._paths.bundle_of(project) if self._owner else None

    def _settings(self) -> str:
        """Return a digest of the variables that determine uv's sources of unlocked packages."""
        chosen = sorted((name, value) for name, value in self._base.items() if name.startswith(("UV_", "PIP_")))
        return hashlib.sha256(json.dumps(chosen).encode()).hexdigest()

    async def _ready(self, key: str, recipe: _Recipe) -> Path:
        path = self._paths.envs / key
        if (path / _MARKER).exists() and (self._seals is None or await asyncio.to_thread(self._seals.is_intact, path)):
            return path
        return await self._flights.run(key, lambda: self._build(path, recipe))

    async def _build(self, path: Path, recipe: _Recipe) -> Path:
        try:
            await asyncio.to_thread(self._discard, path)
            if self._owner:
                # Made here, as nobody else may: so it is never a link to something of others.
                os.mkdir(path, 0o755)
                os.chown(path, self._owner, self._owner)
            with _working_copy(path, recipe) as place:
                directory = recipe.directory
                if recipe.copied is not None:
                    await asyncio.to_thread(shutil.copytree, recipe.copied, place, symlinks=True)
                    await asyncio.to_thread(_make_writable, place)
                    if self._owner:
                        await asyncio.to_thread(own_tree, place, self._owner)
                    directory = place / directory.relative_to(recipe.copied)
                for command in recipe.commands:
                    await self._uv(command, path, directory, recipe.hint)
                    if command[0] == "venv" and recipe.over is not None:
                        await self._add_packages(path, recipe.over)
            _mark(path / _MARKER)
            if self._seals is not None:
                await asyncio.to_thread(self._seals.seal, path)
        except BaseException:
            self._discard(path)
            raise
        return path

    def _discard(self, path: Path) -> None:
        """Rename an environment, even while a process still writes to it, and remove it."""
        target = str(self._paths.trash / secrets.token_hex(8))
        with contextlib.suppress(FileNotFoundError):
            move_away(str(path), target)
            remove_tree(target)

    async def _uv(self, arguments: tuple[str, ...], path: Path, cwd: Path, hint: str) -> None:
        env = {**self._base, "UV_PROJECT_ENVIRONMENT": str(path), "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
        if self._compiles:
            env.setdefault("UV_COMPILE_BYTECODE", "1")
        if self._seals is not None:
            env["UV_LINK_MODE"] = "copy"  # what a task writes must not go through a link into uv's cache
        program = _program()
        shown = " ".join(["uv", *arguments[:2]])
        try:
            async with asyncio.timeout(self._limit_s):
                succeeded, output = await self._tools.run((program, *arguments), env, cwd)
        except TimeoutError:
            minutes = f"{self._limit_s / 60:g} minutes"
            text = f"the environment could not be built ({shown}): the build took more than {minutes}"
            raise PreparationFailed(FailureKind.ENVIRONMENT, text) from None
        if not succeeded and is_network_failure(output):
            # What is in uv's cache may be enough.
            succeeded, _ = await self._tools.run((program, "--offline", *arguments), env, cwd)
        if succeeded:
            return
        words = output.strip()[-_ERROR_BYTES:]
        cause = cause_of(output) or "no error message"
        text = f"the environment could not be built ({shown}): {cause}"
        hint = hint or await self._newest(output, path, cwd, env)
        told = words if words != cause else ""
        raise PreparationFailed(FailureKind.ENVIRONMENT, f"{text}\n{hint}" if hint else text, told)

    async def _add_packages(self, path: Path, over: Interpreter) -> None:
        # A .pth entry comes after the environment's own packages, so what the job asked for wins.
        place = path / "lib" / f"python{minor(over.version)}" / "site-packages" / "_iris_below.pth"
        lines = [f"import site; site.addsitedir({directory!r})\n" for directory in dict.fromkeys(over.packages)]
        argv = (str(path / "bin" / "python"), "-I", "-S", "-c", _WRITE, str(place), "".join(lines))
        succeeded, output = await self._tools.run(argv, self._base, self._paths.envs)  # whose uid owns the directory
        if not succeeded:
            raise PreparationFailed(FailureKind.ENVIRONMENT, f"the environment could not be built: {output.strip()}")

    async def _newest(self, output: str, path: Path, cwd: Path, env: Mapping[str, str]) -> str:
        """Return a hint with a package's newest version if the requested version does not exist; empty for other
        failures.
        """
        match = _NO_VERSION.search(output)
        if match is None or not (path / "bin" / "python").exists():
            return ""
        ask = ("pip", "install", "--dry-run", "--no-deps", "--python", str(path / "bin" / "python"), "--", match[1])
        succeeded, said = await self._tools.run((_program(), *ask), env, cwd)
        newest = re.search(rf"\+ ({re.escape(match[1])}==\S+)", said)
        return f"the newest version is {newest[1]}" if succeeded and newest else ""


def _mark(path: Path) -> None:
    """Create the marker. Raises OSError, or PreparationFailed if the build created a file in its place."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    except FileExistsError:
        reason = f"the environment could not be built: an installed package has created a file {path.name}"
        raise PreparationFailed(FailureKind.ENVIRONMENT, reason) from None


@contextlib.contextmanager
def _working_copy(path: Path, recipe: _Recipe) -> Iterator[Path]:
    """Context manager: a directory for a copy of the sources, removed afterwards."""
    place = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield place
    finally:
        if recipe.copied is not None:
            shutil.rmtree(place, ignore_errors=True)


def _make_writable(place: Path) -> None:
    for folder, _, names in os.walk(place):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            if not os.path.islink(path):
                os.chmod(path, os.stat(path).st_mode | 0o200)


def _venv(path: Path, python: Interpreter) -> tuple[str, ...]:
    return ("venv", "--no-project", "--python", python.program, str(path))


def _install(path: Path, packages: Sequence[str]) -> list[tuple[str, ...]]:
    if not packages:
        return []
    return [("pip", "install", "--python", str(path / "bin" / "python"), "--", *sorted(set(packages)))]


def _program() -> str:
    try:
        return uv_program()
    except FileNotFoundError as error:
        raise PreparationFailed(FailureKind.WORKER, f"the worker's uv program is missing: {error}") from error
