"""Compiles the Python files of bundles and environments once, because files that tasks compile are discarded."""

import asyncio
import contextlib
import hashlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from iris.worker.paths import WorkPaths
from iris.worker.prepare.interpreters import ToolRunner
from iris.worker.processes import StartFailed

logger = logging.getLogger(__name__)

_WANTED_BEFORE: Final = 1
"""Number of starts with a directory before it is compiled: many bundles run once."""
_PROGRAM: Final = Path(__file__).with_name("compile_tree.py")


class CompiledTrees:
    """Compiled directories to mount over bundles and environments, created in the background.

    Args:
        base: The variables of the compiler.
    """

    def __init__(self, paths: WorkPaths, tools: ToolRunner, base: Mapping[str, str]) -> None:
        self._paths = paths
        self._tools = tools
        self._base = base
        self._starts: dict[tuple[Path, str], int] = {}
        self._ready: dict[tuple[Path, str], str] = {}
        self._running: set[asyncio.Task[None]] = set()

    def over(self, tree: Path, python: str) -> str:
        """Return the directory with `python`'s compiled files for a bundle or environment; empty if it does not exist
        (yet).
        """
        key = (tree, python)
        if ready := self._ready.get(key):
            return ready
        starts = self._starts[key] = self._starts.get(key, 0) + 1
        if starts == _WANTED_BEFORE + 1:
            task = asyncio.get_running_loop().create_task(self._compile(tree, python))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return ""

    async def close(self) -> None:
        """Stop the running compilations."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _compile(self, tree: Path, python: str) -> None:
        target = self._target(tree, python)
        if not target.is_dir():
            argv = (python, "-I", str(_PROGRAM), str(tree), str(self._paths.compiled / "parts"), str(target))
            with contextlib.suppress(StartFailed):
                succeeded, output = await self._tools.run(argv, self._base, self._paths.scratch)
                if not succeeded:
                    logger.warning("%s cannot be compiled: %s", tree, output[-500:])
        if target.is_dir():
            self._ready[tree, python] = str(target)

    def _target(self, tree: Path, python: str) -> Path:
        name = hashlib.sha256(os.path.realpath(python).encode()).hexdigest()[:16]
        return self._paths.compiled / f"{tree.name}-{name}"
