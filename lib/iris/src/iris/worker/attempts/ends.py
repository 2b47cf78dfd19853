"""Determines an attempt's outcome from its exit, its error file and the return value of its callable."""

import asyncio
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from iris.domain.states import FailureKind
from iris.worker.attempts.attempt import Attempt
from iris.worker.attempts.contained import take_out
from iris.worker.attempts.machine import Exited
from iris.worker.attempts.rooms import Rooms
from iris.worker.host.oom import OomKills, machine_kills
from iris.worker.processes import Exit
from iris.worker.reports.exit_cause import classify_exit
from iris.worker.reports.result_file import SendBlob, read_small, send_large
from iris.worker.reports.task_file import read_error_file
from iris.worker.types import NO_RESULT
from rigging.text.quantities import format_size

_ENGINE_FAILED: Final = 125
_ENGINE_WORDS: Final = ("Error: ", "docker: ", "See 'docker ")
_INIT_FAILED: Final = re.compile(r"^(?:ERROR \(catatonit:\d+\): failed to exec pid1|\[FATAL tini .*\] exec .*): (.*)")
_KILLED: Final = 128 + signal.SIGKILL

_NOT_RETURNED: Final = "the process exited with code 0 before its function returned"


class EndReader:
    """Determines the outcomes of attempts.

    Args:
        rooms: Hold the files of attempts.
        oom_kills: Counts the kernel's out-of-memory kills.
        send_blob: Uploads large return values to the controller; None to drop them.
        tell: Called with an attempt, its outcome and the time of its end (Unix ms), once its return value is available.
    """

    def __init__(
        self,
        rooms: Rooms,
        oom_kills: OomKills,
        send_blob: SendBlob | None,
        tell: Callable[[Attempt, Exited, int], None],
    ) -> None:
        self._rooms = rooms
        self._oom_kills = oom_kills
        self._send_blob = send_blob
        self._tell = tell
        self._sending: set[asyncio.Task[None]] = set()

    def read(self, attempt: Attempt, exit: Exit) -> None:
        """Report the outcome of an attempt, now or as soon as its return value has been uploaded."""
        paths = self._rooms.at(attempt.room).paths
        if attempt.request.launch.runtime.image:
            take_out(paths, attempt.attempt_id)
        event, path = self._event(attempt, exit), paths.result(attempt.attempt_id)
        if exit.succeeded and attempt.request.launch.payload_digest and not os.path.lexists(path):
            event = replace(event, error=_NOT_RETURNED, failure=FailureKind.USER, returned=False)
        result = read_small(path, paths.uid) if exit.succeeded else NO_RESULT
        if result is None:
            # Its end is told when its value is there, as clients ask for that next.
            task = asyncio.get_running_loop().create_task(self._send(attempt, event, exit.at_ms))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
            return
        attempt.result = result
        self._tell(attempt, event, exit.at_ms)

    def _event(self, attempt: Attempt, exit: Exit) -> Exited:
        kind, error, code = FailureKind.UNSPECIFIED, "", exit.code
        if not exit.succeeded:
            launch, is_member = attempt.request.launch, attempt.is_member
            kind, why = classify_exit(exit, exit.tail, launch.has_accelerator, self._oom_kills.claim, is_member)
            paths = self._rooms.at(attempt.room).paths
            words = read_error_file(paths.error(attempt.attempt_id), paths.uid)
            attempt.exception = words.exception
            if launch.runtime.image:
                kills = machine_kills()
                has_risen = kills is None or kills > attempt.kills_before
                memory_bytes = launch.limits.memory_bytes if has_risen else 0
                kind, why, code = _in_container(exit, memory_bytes) or (kind, why, code)
            error = why or words.text or exit.text()
            if exit.breach is not None and exit.signal != signal.SIGKILL:
                error = f"{why}; {words.text or exit.text()}"  # it ended by itself after it ran into its limit
        return Exited(code, exit.signal, error, kind, exit.fenced, exit.lost)

    async def _send(self, attempt: Attempt, event: Exited, at_ms: int) -> None:
        paths = self._rooms.at(attempt.room).paths
        attempt.result = await send_large(paths.result(attempt.attempt_id), self._send_blob, owner=paths.uid)
        self._tell(attempt, event, at_ms)


def _in_container(exit: Exit, memory_bytes: int) -> tuple[FailureKind, str, int] | None:
    """Return the cause and code of an exit that only a container engine has, or that only it hides.

    Args:
        exit: The exit of the engine's command.
        memory_bytes: The limit; 0 for none, or if the kernel has killed nothing for lack of memory meanwhile.
    """
    line = exit.tail.decode(errors="replace").strip().rpartition("\n")[2]
    if exit.code == _ENGINE_FAILED and line.startswith(_ENGINE_WORDS):
        return FailureKind.START, f"the container did not start: {line}", exit.code
    if exit.code and (found := _INIT_FAILED.search(line)):
        return FailureKind.START, f"the command did not start: {found[1]}", 127 if "No such" in found[1] else 126
    # Podman 4 does not tell kills for lack of memory from others.
    if exit.code == _KILLED and memory_bytes and exit.breach is None:
        text = f"out of memory: killed in a container with a limit of {format_size(memory_bytes)}"
        return FailureKind.OOM, text, exit.code
    return None
