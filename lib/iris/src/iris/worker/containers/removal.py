"""Removes the containers of attempts."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from iris.worker.containers.engine import Engine, container_name

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 60.0
_PAUSES_S: Final = (0.0, 1.0, 5.0)


class Containers:
    """Removes containers after their attempts, and only those of one worker. Call it from the running loop.

    Args:
        engine: The engine.
        work_dir: The worker's directory.
    """

    def __init__(self, engine: Engine, work_dir: Path) -> None:
        self.engine = engine
        self._work_dir = work_dir
        self._removals: set[asyncio.Task[None]] = set()

    def inside(self, attempt_id: str) -> tuple[str, ...]:
        """Return the words that run the command after them in an attempt's container."""
        return self.engine.inside(container_name(self._work_dir, attempt_id))

    def exec(self, attempt_id: str, is_terminal: bool, env: Mapping[str, str]) -> tuple[str, ...]:
        """Return the words that run the command after them in an attempt's container, as `Engine.exec`."""
        return self.engine.exec(container_name(self._work_dir, attempt_id), is_terminal, env)

    def ended(self, attempt_id: str) -> None:
        """Remove what is left of an attempt's container."""
        self._later(self._remove([container_name(self._work_dir, attempt_id)]))

    def keep_only(self, live: Callable[[], Iterable[str]]) -> None:
        """Remove this worker's containers, except those of live attempts.

        Args:
            live: Returns the live attempts. Called after the containers are listed, so that later ones stay.
        """
        self._later(self._remove_others(live))

    async def close(self, timeout_s: float = 10.0) -> None:
        """Wait for all removals, at most this time. The next worker in this directory removes the rest."""
        for task in (await asyncio.wait(self._removals, timeout=timeout_s))[1] if self._removals else ():
            task.cancel()
            await asyncio.wait((task,))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    async def _remove_others(self, live: Callable[[], Iterable[str]]) -> None:
        found = await self._call(self.engine.list_all(str(self._work_dir)))
        kept = {container_name(self._work_dir, name) for name in live()}
        if others := sorted(set((found or "").split()) - kept):
            logger.info("removing containers of earlier attempts: %s", ", ".join(others))
            await self._remove(others)

    async def _remove(self, names: list[str]) -> None:
        for pause_s in _PAUSES_S:  # podman fails once if the container's monitor was killed
            await asyncio.sleep(pause_s)
            if await self._call(self.engine.remove(names)) is not None:
                return

    async def _call(self, words: tuple[str, ...]) -> str | None:
        """Run the engine; return its output, or None if it failed."""
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            logger.warning("%s: %s", words[0], error)
            return None
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                out, errors = await process.communicate()
        except TimeoutError:
            logger.warning("%s did not end within %g s", " ".join(words), _TIMEOUT_S)
            return None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode and b"No such container" not in errors:
            logger.warning("%s: %s", " ".join(words), errors.decode(errors="replace").strip())
            return None
        return out.decode(errors="replace")
