"""A process that looks through logs for a controller: `python -m iris.controller.logs.search_process`.

What a regular expression costs is up to who wrote it, and the remote storage answers when it likes; neither may hold up
the controller, so both are waited for here. Lines of JSON come in: first a `Task`, then one for each round. Frames go
out: the number of a log among the round's keys and the length of what follows (both 4 bytes), then records of it.
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

from iris.controller.logs.read_ahead import ReadAhead
from iris.controller.logs.remote import RemotePieces
from iris.controller.logs.search import Line, Search
from iris.controller.logs.store import LogKey, LogStore
from iris.rpc.logfilter import LineChoice
from iris.rpc.logformat import encode

FRAME: Final = struct.Struct("<iI")
ROUND_ENDED: Final = -1
FAILED: Final = -3

_FRAME_BYTES: Final = 256 * 1024
_NICE: Final = 5


@dataclass(frozen=True, slots=True)
class Task:
    """The lines to look for, and where.

    Args:
        root: Directory of the logs. remote: URL of the remote state; empty: there is none.
    """

    root: str
    remote: str
    choice: LineChoice
    since_ms: int = 0
    max_lines: int = 0
    from_start: bool = False

    def to_json(self) -> str:
        """One line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, line: str) -> "Task":
        """The reverse of `to_json`."""
        fields: dict[str, Any] = json.loads(line)
        return cls(**{**fields, "choice": LineChoice(**fields["choice"])})


class FrameWriter:
    """Writes lines as frames; lines of one log that follow each other share one."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._number = ROUND_ENDED
        self._records: list[bytes] = []
        self._size = 0

    def write(self, number: int, line: Line) -> None:
        """Add a line of the log of that number."""
        if number != self._number or self._size >= _FRAME_BYTES:
            self.flush()
            self._number = number
        record = line[1]
        self._records.append(encode(record.is_stderr, record.at_ms, record.data, record.partial, record.note))
        self._size += len(self._records[-1])

    def flush(self) -> None:
        """Send what is gathered."""
        if self._records:
            self.send(self._number, b"".join(self._records))
            self._records, self._size = [], 0

    def send(self, number: int, data: bytes = b"") -> None:
        """Send one frame at once."""
        self._out.write(FRAME.pack(number, len(data)) + data)
        self._out.flush()


def serve(requests: Iterator[str], writer: FrameWriter) -> None:
    """Do a task, round by round, until no more are asked for."""
    task = Task.from_json(next(requests))
    if not task.remote:
        _serve(task, LogStore(Path(task.root)), requests, writer)
        return
    ahead = ReadAhead(RemotePieces(task.remote).get)
    try:
        _serve(task, LogStore(Path(task.root), fetch=ahead.get, announce=ahead.expect), requests, writer)
    finally:
        ahead.close()


def _serve(task: Task, store: LogStore, requests: Iterator[str], writer: FrameWriter) -> None:
    search = Search(store, task.choice, task.since_ms, task.max_lines, task.from_start)
    for request in requests:
        asked = json.loads(request)
        keys: list[LogKey] = [(job_id, index, attempt) for job_id, index, attempt, _ in asked["keys"]]
        positions = {key: given[3] for key, given in zip(keys, asked["keys"], strict=True)}
        numbers = {key: number for number, key in enumerate(keys)}
        for line in search.round(keys, positions, asked["last"]):
            writer.write(numbers[line[0]], line)
        writer.flush()
        writer.send(ROUND_ENDED)


def main() -> None:
    """Serve the controller at the other end of stdin and stdout."""
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the controller ends this when it ends
    writer = FrameWriter(sys.stdout.buffer)
    try:
        serve(iter(sys.stdin.readline, ""), writer)
    except BrokenPipeError:
        os._exit(0)
    # Whatever goes wrong here is told to the one who asked, in one sentence.
    except Exception as error:
        writer.flush()
        writer.send(FAILED, f"{type(error).__name__}: {error}".encode()[:4096])


if __name__ == "__main__":
    main()
