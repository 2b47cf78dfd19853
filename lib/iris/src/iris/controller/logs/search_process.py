"""A process that searches logs for a controller: `python -m iris.controller.logs.search_process`.

A costly regular expression or a slow remote storage must not block the controller, so this process handles both. Input
is lines of JSON: first a `Task`, then one line per round. Output is frames: the index of a log among the round's keys
and the length of the data (4 bytes each), then its records.
"""

import dataclasses
import json
import os
import signal
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from iris.controller.logs.remote import ReadAhead, RemotePieces
from iris.controller.logs.search import Search
from iris.controller.logs.store import LogKey, LogStore
from iris.rpc.logfilter import LineChoice

FRAME: Final = struct.Struct("<iI")
ROUND_ENDED: Final = -1
FAILED: Final = -3
HAS_ALL: Final = b"all"
"""Sent at the end of a round if all requested lines were found."""

_NICE: Final = 5


@dataclass(frozen=True, slots=True)
class Task:
    """The requested lines and their location.

    Args:
        root: The directory of the logs. remote: The URL of the remote state; empty for none.
    """

    root: str
    remote: str
    choice: LineChoice
    since_ms: int = 0
    max_lines: int = 0
    from_start: bool = False

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, line: str) -> "Task":
        """Return the task in the result of `to_json`."""
        fields: dict[str, Any] = json.loads(line)
        return cls(**{**fields, "choice": LineChoice(**fields["choice"])})


def send(out: BinaryIO, number: int, data: bytes = b"") -> None:
    """Send one frame immediately."""
    out.write(FRAME.pack(number, len(data)) + data)
    out.flush()


def serve(requests: Iterator[str], out: BinaryIO) -> None:
    """Run a task, one round per request."""
    task = Task.from_json(next(requests))
    if not task.remote:
        _serve(task, LogStore(Path(task.root)), requests, out)
        return
    ahead = ReadAhead(RemotePieces(task.remote).get)
    try:
        _serve(task, LogStore(Path(task.root), fetch=ahead.get, announce=ahead.expect), requests, out)
    finally:
        ahead.close()


def _serve(task: Task, store: LogStore, requests: Iterator[str], out: BinaryIO) -> None:
    search = Search(store, task.choice, task.since_ms, task.max_lines, task.from_start)
    for request in requests:
        asked = json.loads(request)
        keys: list[LogKey] = [(job_id, index, attempt) for job_id, index, attempt, _ in asked["keys"]]
        positions = {key: given[3] for key, given in zip(keys, asked["keys"], strict=True)}
        numbers = {key: number for number, key in enumerate(keys)}
        for key, data in search.round(keys, positions, asked["last"]):
            send(out, numbers[key], data)
        send(out, ROUND_ENDED, HAS_ALL if search.has_all else b"")


def main() -> None:
    """Serve the controller on stdin and stdout."""
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the controller ends this when it ends
    out = sys.stdout.buffer
    try:
        serve(iter(sys.stdin.readline, ""), out)
    except BrokenPipeError:
        os._exit(0)
    # Whatever goes wrong here is told to the one who asked, in one sentence.
    except Exception as error:
        send(out, FAILED, f"{type(error).__name__}: {error}".encode()[:4096])


if __name__ == "__main__":
    main()
