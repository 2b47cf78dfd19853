"""A run's events as a file of JSON lines beside its info file, for programs that follow or study runs.

`{info file without .json}-{time}-{process id}.events.jsonl`; one object per line, with `event` (`run_started`,
`step_queued`, `step_job_queued`, `step_started`, `step_retrying`, `step_ended`, `run_ended`) and the fields of that
event in `marin.execution.report.events`. `run_started` also has `host`, `user`, `command` (the script and its
arguments) and `code` (`marin.execution.record.code_record`); `run_ended` has `ends`, the number of steps per outcome,
so that a list of runs need not read whole logs.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from queue import Empty, SimpleQueue

from marin.execution.report.events import (
    AttemptUse,
    RunEnded,
    RunEvent,
    RunStarted,
    StepEnded,
    StepJobQueued,
    StepProgressed,
    StepQueued,
    StepRetrying,
    StepStarted,
)
from marin.execution.report.shell import script_command
from rigging.errors import MarinError
from rigging.filesystem import local_path, write_bytes_atomic
from rigging.user import user_name

logger = logging.getLogger(__name__)

# An object store has no append: the whole file is written again, so not for every event.
UPLOAD_SECONDS = 30.0

# On a local disk, how long events are gathered before they are written.
_GATHER_SECONDS = 0.02

_quoted = json.encoder.encode_basestring_ascii

_NAMES: dict[type[object], str] = {
    RunStarted: "run_started",
    StepQueued: "step_queued",
    StepJobQueued: "step_job_queued",
    StepStarted: "step_started",
    StepProgressed: "step_progressed",
    StepRetrying: "step_retrying",
    StepEnded: "step_ended",
    RunEnded: "run_ended",
}


def event_line(event: RunEvent, **further: object) -> str:
    """Return an event as a line of JSON without the newline. A run's start and end get `further` fields."""
    more = "".join(f", {_quoted(name)}: {_text(value)}" for name, value in further.items())
    return f'{{"event": "{_NAMES[type(event)]}", {_fields(event)}{more}}}'


def _fields(value: RunEvent | AttemptUse) -> str:
    return ", ".join([f'"{name}": {_text(getattr(value, name))}' for name in type(value).__slots__ if name != "code"])


def _text(value: object) -> str:
    """Return a value as JSON, three times faster than `json.dumps` for the commonest types."""
    if isinstance(value, str):
        return _quoted(value)
    if value is None:
        return "null"
    if type(value) is float:
        return repr(value)
    if type(value) is tuple:
        return f"[{', '.join(map(_text, value))}]"
    return f"{{{_fields(value)}}}" if isinstance(value, AttemptUse) else json.dumps(value)


def event_log_path(info_path: str, started: float, process_id: int) -> str:
    """Return the path of a run's event log, beside its info file.

    Args:
        info_path: The info file, which runs of equal steps share.
        started: The start of the run, in seconds since the epoch.
        process_id: The process id of the run.
    """
    stem = info_path.removesuffix(".json")
    when = datetime.datetime.fromtimestamp(started, datetime.UTC)
    return f"{stem}-{when:%Y%m%dT%H%M%S}.{when.microsecond:06d}Z-{process_id}.events.jsonl"


class EventLog:
    """Write a run's events to its event log. A run without an info file has no event log.

    On a local disk each event appears within moments. In an object store the file is complete at the run's end, and
    before that at most `upload_seconds` behind. A write error is reported once, and the run continues.

    Args:
        upload_seconds: Minimum time between two uploads.
        upload: Writes a whole file to an object store.

    Attributes:
        path: The file; None before the run has started.
    """

    def __init__(
        self, upload_seconds: float = UPLOAD_SECONDS, upload: Callable[[str, bytes], object] = write_bytes_atomic
    ) -> None:
        self.path: str | None = None
        self._upload = upload
        self._upload_seconds = upload_seconds
        self._events: SimpleQueue[RunEvent] = SimpleQueue()
        self._ended = threading.Event()
        self._writer: threading.Thread | None = None
        self._ends: Counter[str] = Counter()

    def on_event(self, event: RunEvent) -> None:
        """Pass an event to the writing thread. At the run's end, wait until all events are written."""
        if isinstance(event, RunStarted) and event.info_path is not None:
            self.path = event_log_path(event.info_path, event.time, os.getpid())
            self._ended.clear()
            self._ends.clear()
            self._writer = threading.Thread(target=self._write, args=(self.path,), name="marin-event-log", daemon=True)
            self._writer.start()
        if self._writer is None:
            return
        self._events.put(event)
        if isinstance(event, RunEnded):
            self._ended.set()
            self._writer.join()
            self._writer = None

    def _write(self, path: str) -> None:
        try:
            local = local_path(path)
            if local is not None:
                self._append_to(local)
            else:
                self._upload_to(path)
        # Storage libraries raise errors of many types; none of them may end the run.
        except Exception as error:
            logger.warning("the event log %s cannot be written: %s", path, error)

    def _append_to(self, path: str) -> None:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            ended = False
            while not ended:
                lines, ended = self._next_lines(None)
                file.write("".join(lines))
                file.flush()

    def _upload_to(self, path: str) -> None:
        written: list[str] = []
        due = time.monotonic() + self._upload_seconds
        ended = False
        while not ended:
            lines, ended = self._next_lines(max(0.0, due - time.monotonic()))
            written += lines
            if ended or time.monotonic() >= due:
                try:
                    self._upload(path, "".join(written).encode())
                except (OSError, MarinError) as error:
                    if ended:
                        raise
                    logger.warning("the event log %s could not be written, retrying: %s", path, error)
                due = time.monotonic() + self._upload_seconds

    def _next_lines(self, timeout: float | None) -> tuple[list[str], bool]:
        """Wait for an event. Return the lines of all pending events, and whether the run has ended."""
        lines: list[str] = []
        try:
            event = self._events.get(timeout=timeout)
            # Waking up for each event would cost a run of many short steps more than writing the events.
            self._ended.wait(_GATHER_SECONDS)
            while True:
                lines.append(self._line(event) + "\n")
                if isinstance(event, RunEnded):
                    return lines, True
                event = self._events.get_nowait()
        except Empty:
            return lines, False

    def _line(self, event: RunEvent) -> str:
        if isinstance(event, StepEnded):
            self._ends[event.status] += 1
        elif isinstance(event, RunStarted):
            code = None if event.code is None else event.code()
            further = {"host": os.uname().nodename, "user": user_name(), "command": script_command(), "code": code}
            return event_line(event, **further, job=os.environ.get("IRIS_JOB_ID"))
        elif isinstance(event, RunEnded):
            return event_line(event, ends=dict(self._ends))
        return event_line(event)
