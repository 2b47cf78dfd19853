"""Read the log of an Iris job incrementally."""

import contextlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from typing import Final, Protocol, cast

from iris.client import LogLine

_MARGIN_MS: Final = 5000
"""Maximum difference between the clocks of the hosts of one job."""


class ReadsLogs(Protocol):
    """The part of `IrisClient` that this module needs."""

    def read_logs(self, task_id: str, *, since: float) -> Iterator[LogLine]: ...


class NewLines:
    """Find new lines in a job's log, with one request per call.

    Each call re-reads the last seconds and skips known lines by their number.

    Args:
        client: The client to ask.
        job_id: The job.
        most_bytes: Maximum bytes of text that one call of `take` returns.
    """

    def __init__(self, client: ReadsLogs, job_id: str, most_bytes: int = 1 << 20) -> None:
        self._client = client
        self._job_id = job_id
        self._most_bytes = most_bytes
        self._since_ms = 0
        self._read: dict[tuple[str, int], deque[int]] = {}

    def take(self, *, ended: bool = False) -> dict[int | None, str]:
        """Return the output since the last call, by replica. A large output takes several calls.

        Args:
            ended: Whether this is the last call. If so, a note mentions any omitted output.
        """
        texts: dict[int | None, list[str]] = {}
        skipped: dict[tuple[str, int], int] = {}
        room = self._most_bytes
        lines = self._client.read_logs(self._job_id, since=self._since_ms / 1000)
        with contextlib.closing(cast(Generator[LogLine], lines)):
            for line in lines:
                key = (line.task_id, line.attempt)
                read = self._read.setdefault(key, deque())
                if skipped.get(key, 0) < len(read):
                    skipped[key] = skipped.get(key, 0) + 1
                    continue
                room -= len(line.data) + 1
                if room < 0:
                    break
                texts.setdefault(_replica(line.task_id), []).append(_text(line))
                read.append(line.at_ms)
                skipped[key] = len(read)
        if room >= 0 or len(self._read) == 1:
            self._forget_old()
        if room < 0 and ended:
            texts.setdefault(None, []).append(f"[truncated; for all of it: iris job logs {self._job_id}]\n")
        return {replica: "".join(pieces) for replica, pieces in texts.items()}

    def _forget_old(self) -> None:
        newest = max((read[-1] for read in self._read.values() if read), default=0)
        self._since_ms = max(self._since_ms, newest - _MARGIN_MS)
        for key, read in self._read.items():
            self._read[key] = deque(at_ms for at_ms in read if at_ms >= self._since_ms)


def outputs_by_attempt(lines: Iterable[LogLine]) -> dict[tuple[int, int], list[tuple[int, bytes]]]:
    """Return the output of each attempt, in the form of `fray.output.own_output`.

    Args:
        lines: All lines of a job's log.
    """
    found: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
    for line in lines:
        data = b"iris: " + line.data if line.note else line.data
        pieces = found.setdefault((_replica(line.task_id), line.attempt), [])
        pieces.append((2 if line.is_stderr else 1, data if line.partial else data + b"\n"))
    return found


def _replica(task_id: str) -> int:
    return int(task_id.rpartition("/")[2])


def _text(line: LogLine) -> str:
    if line.note:
        return f"iris: {line.text}\n"
    return line.text if line.partial else f"{line.text}\n"
