"""Finds the Python interpreter that a job requests on this host."""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from iris.domain.python_version import fits
from iris.domain.states import FailureKind
from iris.python_tools.programs import python_programs
from iris.python_tools.uv import uv_program
from iris.worker.types import PreparationFailed

_PROBE: Final = (
    "import json, site, sys; print(json.dumps({'version': '.'.join(map(str, sys.version_info[:3])), "
    "'identity': sys.version + sys.base_prefix, 'packages': site.getsitepackages()}))"
)


class ToolRunner(Protocol):
    """Runs a program to completion."""

    async def run(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> tuple[bool, str]:
        """Run the program; return whether it succeeded, and the tail of its output. Kill it if the caller is cancelled.

        Args:
            argv: The program and its arguments.
            env: Its complete environment.
            cwd: Its working directory.
        """
        ...


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python interpreter of this host.

    Args:
        version: "3.12.4".
        identity: Interpreters with equal identities can share environments.
        packages: Directory of its own packages.
    """

    program: str
    version: str
    identity: str
    packages: tuple[str, ...] = ()


def own_interpreter() -> Interpreter:
    """Return the interpreter of this process."""
    import site

    version = ".".join(map(str, sys.version_info[:3]))
    return Interpreter(sys.executable, version, sys.version + sys.base_prefix, tuple(site.getsitepackages()))


class Interpreters:
    """Finds interpreters and caches them.

    Args:
        base: The environment variables for the programs.
        cwd: Their working directory.
    """

    def __init__(self, tools: ToolRunner, base: Mapping[str, str], cwd: Path) -> None:
        self._tools = tools
        self._base = base
        self._cwd = cwd
        self._own = own_interpreter()
        self._found: dict[tuple[str, str], Interpreter] = {}

    async def find(self, request: str, hint: str = "") -> Interpreter:
        """Return an interpreter that satisfies `request` ("3.12", ">=3.11,<3.13"; empty for any).

        Try in order: the worker's own interpreter, `hint`, interpreters that uv installed or finds on the PATH,
        version-named programs on the PATH, and those next to the worker's own installation.

        Raises:
            PreparationFailed: No interpreter satisfies the request (ENVIRONMENT); the message lists the available
                versions.
        """
        if fits(self._own.version, request):
            return self._own
        known = self._found.get((request, hint))
        if known is not None and await asyncio.to_thread(os.path.exists, known.program):
            return known
        others = {self._own.version}
        others_here = await asyncio.to_thread(python_programs, request, self._base.get("PATH", ""))
        for program in dict.fromkeys([hint, await self._ask_uv(request), *others_here]):
            found = await self.probe(program) if program else None
            if found is None:
                continue
            if fits(found.version, request):
                self._found[request, hint] = found
                return found
            others.add(found.version)
        raise PreparationFailed(
            FailureKind.ENVIRONMENT,
            f"the job needs Python {request}, but this worker has only {', '.join(sorted(others))}: install it on the "
            f"worker's host (e.g. `uv python install {shlex.quote(request)}`), or ask for another: a workspace does by "
            "its .python-version or requires-python, a callable by the Python that submits it",
        )

    async def probe(self, program: str) -> Interpreter | None:
        """Return an interpreter's version and paths; None if it does not run."""
        if not os.access(program, os.X_OK):
            return None
        succeeded, output = await self._tools.run((program, "-I", "-c", _PROBE), self._base, self._cwd)
        if not succeeded:
            return None
        try:
            said = json.loads(output.strip().splitlines()[-1])
            return Interpreter(program, str(said["version"]), str(said["identity"]), tuple(said["packages"]))
        except (ValueError, KeyError, IndexError, TypeError):
            return None

    async def _ask_uv(self, request: str) -> str:
        try:
            command = (uv_program(), "python", "find", "--no-project", "--no-config", request)
        except FileNotFoundError:
            return ""
        succeeded, output = await self._tools.run(command, {**self._base, "NO_COLOR": "1"}, self._cwd)
        return next((line for line in output.splitlines() if line.startswith("/")), "") if succeeded else ""
