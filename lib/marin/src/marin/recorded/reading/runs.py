"""Read runs from their info files and event logs."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from marin.recorded.deciding.run_names import RunFiles, runs_of
from marin.recorded.deciding.run_notes import RunNotes, parse_notes
from marin.recorded.deciding.run_summary import (
    EventsRead,
    ProcessState,
    RunSummary,
    host_of,
    info_head,
    start_of,
    summarize,
)
from marin.recorded.deciding.step_attempts import OPEN_OUTCOMES, StepAttempt, attempts_in
from marin.recorded.reading.store import below, each, read_ends
from marin.stored_files import names_in
from rigging.errors import InvalidRequest, MarinError, NotFound
from rigging.filesystem import read_bytes_or_none
from rigging.lease.identity import PROCESSES

# Of an event log, so much of either end is read; a log that is not longer is read whole.
_EVENTS_BYTES = 1 << 15
_HEAD_BYTES = 1 << 12
# Each is read whole when somebody asks for the attempts at a step.
MOST_RUNS = 200


def list_runs(directory: str) -> list[RunFiles]:
    """Return the runs recorded in a directory, newest first."""
    return runs_of(names_in(directory))


def summaries(directory: str, runs: Sequence[RunFiles], host: str) -> list[RunSummary]:
    """Return the summaries of runs. A damaged file is mentioned in its run's summary.

    Args:
        directory: The directory of run records.
        runs: The runs.
        host: This machine's name.
    """
    infos = sorted({run.info for run in runs if run.info is not None})
    heads = dict(zip(infos, each(functools.partial(_head, directory), infos, directory), strict=True))
    return each(lambda run: _summary(directory, run, heads, host), runs, directory)


def _summary(
    directory: str, run: RunFiles, heads: dict[str, tuple[dict[str, Any] | None, str | None]], host: str
) -> RunSummary:
    head, damage = heads[run.info] if run.info is not None else (None, None)
    events: EventsRead | None = None
    if run.events is not None:
        try:
            read = read_ends(below(directory, run.events), _EVENTS_BYTES)
        except (OSError, MarinError) as error:
            read, damage = None, f"{run.events}: {error}"
        if read is not None:
            events = EventsRead(read[0], read[1], read[2] <= _EVENTS_BYTES)
    return summarize(run, events, head, _process(run, host_of(run, start_of(events), head), host), damage)


def _head(directory: str, name: str) -> tuple[dict[str, Any] | None, str | None]:
    """Return the run's own fields in an info file, or the file's problem."""
    path = below(directory, name)
    try:
        read = read_ends(path, _HEAD_BYTES)
        head = None if read is None else info_head(read[0])
        if head is None and read is not None and read[2] > _HEAD_BYTES:
            head = info_head(read_bytes_or_none(path) or b"")
    except (OSError, MarinError) as error:
        return None, f"{name}: {error}"
    return head, f"{name}: not the JSON of a run" if head is None and read is not None else None


def _process(run: RunFiles, began_on: str | None, host: str) -> ProcessState:
    """Return whether the process of a run is running; unknown if it is not on this machine."""
    if began_on != host or run.pid is None or run.started is None:
        return ProcessState.UNKNOWN
    return process_state(run.pid, run.started)


def process_state(pid: int, before: float) -> ProcessState:
    """Return whether a process of this machine that started before a time (seconds since the epoch) is still
    running.
    """
    found = PROCESSES.status(pid)
    boot = _boot_time()
    if boot is None:
        return ProcessState.UNKNOWN
    if found is None or found.ended:
        return ProcessState.GONE
    began = boot + found.started / os.sysconf("SC_CLK_TCK")
    # The clock may have been set by a little since boot; another process has the id when it began later.
    return ProcessState.RUNS if began <= before + 2 else ProcessState.GONE


@functools.cache
def _boot_time() -> float | None:
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return next((float(line.split()[1]) for line in file if line.startswith("btime")), None)
    except OSError:
        return None


def read_info(directory: str, run: RunFiles) -> dict[str, Any]:
    """Return the content of a run's info file.

    Raises:
        NotFound: The run has no info file.
        InvalidRequest: The info file is damaged.
    """
    if run.info is None:
        raise NotFound(f"run {run.id}: its info file {run.stem}.json is no longer in {directory}")
    info, damage = read_json(below(directory, run.info))
    if info is None:
        raise NotFound(f"run {run.id}: {damage}") if damage is None else InvalidRequest(f"run {run.id}: {damage}")
    if not isinstance(info.get("steps"), list):
        raise InvalidRequest(f"run {run.id}: {run.info} has no list of steps")
    return info


def read_notes(directory: str, run: RunFiles) -> RunNotes:
    """Return the tags and the note of a run; none if their file is damaged."""
    return RunNotes() if run.notes is None else parse_notes(read_bytes_or_none(below(directory, run.notes)))


def read_json(path: str) -> tuple[dict[str, Any] | None, str | None]:
    """Return the JSON object in a file, or the file's problem; (None, None) if the file does not exist."""
    content = read_bytes_or_none(path)
    if content is None:
        return None, None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        return None, f"{path} is damaged: {error}"
    return (value, None) if isinstance(value, dict) else (None, f"{path} is damaged: it is not a JSON object")


def read_events(directory: str, run: RunFiles) -> list[dict[str, Any]]:
    """Return a run's events, without unreadable lines; [] without an event log."""
    content = None if run.events is None else read_bytes_or_none(below(directory, run.events))
    events = [_parsed(line) for line in (content or b"").splitlines()]
    return [event for event in events if event is not None]


def attempts_at(directory: str, path: str, host: str, *, most_runs: int = MOST_RUNS) -> list[StepAttempt]:
    """Return the attempts of a step in the last runs, newest run first.

    Args:
        directory: The directory of run records.
        path: The step's output path.
        host: This machine's name.
        most_runs: Maximum number of runs to check, newest first.
    """
    runs = [run for run in list_runs(directory) if run.events is not None][:most_runs]
    found = each(functools.partial(_attempts_in, directory, path, host), runs, directory)
    return [attempt for attempts in found for attempt in attempts]


def _attempts_in(directory: str, path: str, host: str, run: RunFiles) -> list[StepAttempt]:
    content = read_bytes_or_none(below(directory, run.events or "")) or b""
    # The names of paths are ASCII, or written out so: most logs need no further reading.
    quoted = json.dumps(path).encode()
    events = [_parsed(line) for line in content.splitlines() if quoted in line]
    found = attempts_in(run.id, [event for event in events if event is not None], path)
    if not found or found[-1].outcome not in OPEN_OUTCOMES:
        return found
    first, last = (_parsed(content[:end].rpartition(b"\n")[2]) or {} for end in (content.find(b"\n"), -1))
    if last.get("event") == "run_ended":
        return [*found[:-1], replace(found[-1], outcome="was stopped")]
    if _process(run, host_of(run, first, None), host) is ProcessState.GONE:
        return [*found[:-1], replace(found[-1], outcome="died")]
    return found


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None
