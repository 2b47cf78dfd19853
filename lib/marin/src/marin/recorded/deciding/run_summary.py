"""The summary of a run from its files: time, user, outcome."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from marin.recorded.deciding.run_names import RunFiles

#: The ends of steps (`marin.execution.report.events.StepEnd`), in the order in which they are shown.
STEP_ENDS: Final = ("succeeded", "cached", "failed", "dep_failed", "lost")
_BAD_ENDS: Final = ("failed", "dep_failed", "lost")
_COUNTED: Final = {end: f'"status": "{end}", "seconds"'.encode() for end in STEP_ENDS}
_STEPS_KEY: Final = b'\n  "steps": ['


class RunState(StrEnum):
    """The state of a run."""

    RUNNING = "running"
    """Its process runs on this machine."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Steps failed, were skipped because others failed, or lost their leases."""
    STOPPED = "stopped"
    """The run was interrupted, or failed itself; its error says why."""
    DIED = "died"
    """Its process has ended without recording an end: it was killed, or its machine went down."""
    UNFINISHED = "unfinished"
    """No end is recorded, and its process is not visible from here: it runs elsewhere, or died."""
    ENDED = "ended"
    """The run ended, but the part of its event log that was read does not include the steps' outcomes."""
    RECORDED = "recorded"
    """Only the run's steps are recorded: it has no event log."""


#: Of these states a run's summary does not change any more.
ENDED: Final = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED, RunState.ENDED})


class ProcessState(StrEnum):
    """The state of a run's process, if known."""

    RUNS = "runs"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class EventsRead:
    """The read parts of an event log.

    Attributes:
        head: Its beginning, including the first line unless that is very long.
        tail: Its end, including the last line unless that is very long.
        is_whole: Whether `head` is the whole log.
    """

    head: bytes
    tail: bytes
    is_whole: bool


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The summary of a run.

    Attributes:
        files: Its files.
        state: Its state.
        seconds: Its duration; None if it has not ended, or is not recorded.
        steps: The number of its steps; None if not recorded.
        ends: The number of its steps per outcome; None if unknown.
        user: Its user; None if unknown.
        host: Its machine; None if unknown.
        description: Its purpose.
        created: When its info file was written, ISO 8601; None if a later run of equal steps has replaced it.
        git_commit: Its commit; None if unknown.
        error: The error that ended it early.
        damage: Its unreadable files, and the reasons.
        command: The script and its arguments; None if not recorded.
        code: The code it ran (`marin.execution.record.code_record`); {} if not recorded.
        job: The Iris job in which it ran; None for none.
        seen: When a run without a recorded end wrote its last event, in seconds since the epoch; None if unknown.
    """

    files: RunFiles
    state: RunState
    seconds: float | None = None
    steps: int | None = None
    ends: Mapping[str, int] | None = None
    user: str | None = None
    host: str | None = None
    description: str | None = None
    created: str | None = None
    git_commit: str | None = None
    error: str | None = None
    damage: str | None = None
    command: str | None = None
    code: Mapping[str, Any] = field(default_factory=dict)
    job: str | None = None
    seen: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the run as an entry of `marin runs --json`."""
        return {
            "run": self.files.id,
            "steps_id": self.files.stem,
            "started": self.files.started,
            "state": str(self.state),
            "seconds": self.seconds,
            "steps": self.steps,
            "ends": None if self.ends is None else {end: self.ends.get(end, 0) for end in STEP_ENDS},
            "user": self.user,
            "host": self.host,
            "description": self.description,
            "git_commit": self.git_commit,
            "error": self.error,
            "damage": self.damage,
            "command": self.command,
            "code": dict(self.code) or None,
            "job": self.job,
        }


def info_head(content: bytes) -> dict[str, Any] | None:
    """Return the run's own fields at the beginning of its info file; None if they are missing or damaged.

    Args:
        content: The file, or its beginning.
    """
    before, found, _ = content.partition(_STEPS_KEY)
    text = before.rstrip().rstrip(b",") + b"}" if found else content
    try:
        head = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return head if isinstance(head, dict) else None


def start_of(events: EventsRead | None) -> dict[str, Any]:
    """Return the event `run_started` of an event log; {} if unreadable."""
    return {} if events is None else _event(events.head.partition(b"\n")[0])


def own_head(files: RunFiles, head: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the fields of a run's own info file; {} if a later run of equal steps has replaced it."""
    worker = str((head or {}).get("worker_id", "")).rsplit("-", 2)
    is_own = files.pid is None or (len(worker) == 3 and worker[1] == str(files.pid))
    return head if head is not None and is_own else {}


def host_of(files: RunFiles, started: Mapping[str, Any], head: Mapping[str, Any] | None) -> str | None:
    """Return the machine where a run started; None if not recorded.

    Args:
        files: The run's files.
        started: The run's first event.
        head: The fields of its info file, or None.
    """
    worker = _text(own_head(files, head).get("worker_id"))
    return _text(started.get("host")) or (worker.rsplit("-", 2)[0] if worker is not None else None)


def summarize(
    files: RunFiles,
    events: EventsRead | None,
    head: Mapping[str, Any] | None,
    process: ProcessState,
    damage: str | None,
) -> RunSummary:
    """Return the summary of a run.

    Args:
        files: Its files.
        events: Its event log; None if it is missing or unreadable.
        head: The fields of its info file; None likewise.
        process: The state of its process.
        damage: Its unreadable files, and the reasons.
    """
    said, started = own_head(files, head), start_of(events)
    code = started.get("code")
    code = code if isinstance(code, dict) else {}
    last = _event(events.tail.rstrip(b"\n").rpartition(b"\n")[2]) if events is not None else {}
    ended = last if last.get("event") == "run_ended" else None
    ends = _ends(events, ended)
    return RunSummary(
        files=files,
        state=_state(files, ended, ends, process),
        seconds=_number(ended.get("seconds")) if ended else None,
        steps=_count(started.get("steps")),
        ends=ends,
        user=_text(started.get("user")) or _text(said.get("user")),
        host=host_of(files, started, head),
        description=_text(started.get("description")) or _text(said.get("description")),
        created=_text(said.get("created_date")),
        git_commit=_text(code.get("commit")) or _text(said.get("git_commit")),
        error=_text(ended.get("error")) if ended else None,
        damage=damage,
        command=_text(started.get("command")),
        code=code,
        job=_text(started.get("job")),
        seen=None if ended else _number(last.get("time")),
    )


def _state(
    files: RunFiles, ended: Mapping[str, Any] | None, ends: Mapping[str, int] | None, process: ProcessState
) -> RunState:
    if files.events is None:
        return RunState.RECORDED
    if ended is None:
        known = {ProcessState.RUNS: RunState.RUNNING, ProcessState.GONE: RunState.DIED}
        return known.get(process, RunState.UNFINISHED)
    if ended.get("error"):
        return RunState.STOPPED
    if ends is None:
        return RunState.ENDED
    return RunState.FAILED if any(ends.get(end) for end in _BAD_ENDS) else RunState.SUCCEEDED


def _ends(events: EventsRead | None, ended: Mapping[str, Any] | None) -> dict[str, int] | None:
    """Return the steps' outcomes: from the run's end, else counted in a completely read log."""
    told = (ended or {}).get("ends")
    if isinstance(told, dict):
        return {end: count for end, count in told.items() if end in _COUNTED and type(count) is int}
    if events is None or not events.is_whole:
        return None
    return {end: events.head.count(mark) for end, mark in _COUNTED.items()}


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}  # the writer is within this line, or the line is longer than what was read
    return event if isinstance(event, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
