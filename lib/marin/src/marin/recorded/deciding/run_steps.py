"""The steps of a run, from its info file and events."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from marin.recorded.deciding.run_summary import RunState
from rigging.text.tables import duration


@dataclass(frozen=True, slots=True)
class RunStep:
    """One step of a run.

    Attributes:
        name: The step's name.
        path: Its output path.
        dependencies: The output paths of its dependencies.
        status: Its status in the run: its outcome, `queued`, `running` or `retrying`, or `died` or `stopped` if the run
            ended meanwhile; None if not recorded.
        seconds: The duration of its function.
        queued_seconds: The time that its job was queued.
        error: Its error.
        log: The location of its log according to the run.
        attempts: Its attempts in the run with their resource use, as in the event `step_ended`.
        started: The start of a running step, in seconds since the epoch; otherwise None.
        progress: The progress of a running step, in words; "" if not reported.
        began: The start of its first attempt in this run, in seconds since the epoch; None if it did not start.
        ended: Its end, likewise; None if it has not ended.
    """

    name: str
    path: str
    dependencies: tuple[str, ...] = ()
    status: str | None = None
    seconds: float | None = None
    queued_seconds: float | None = None
    error: str | None = None
    log: str | None = None
    attempts: tuple[Mapping[str, Any], ...] = ()
    started: float | None = None
    progress: str = ""
    began: float | None = None
    ended: float | None = None

    @property
    def job(self) -> str:
        """The job of its last attempt; "" if the attempt was not a job. All attempts at an output have the same job
        name.
        """
        log = self.log or ""
        return log.removeprefix("job ") if log.startswith("job ") else ""

    @property
    def cpu_seconds(self) -> float | None:
        """The processor time of all attempts; None if not recorded."""
        known = self._known("cpu_seconds")
        return sum(known) if known else None

    @property
    def peak_bytes(self) -> int | None:
        """The highest memory of an attempt; None if not recorded."""
        known = self._known("peak_bytes")
        return int(max(known)) if known else None

    def _known(self, key: str) -> list[float]:
        values = (attempt.get(key) for attempt in self.attempts)
        return [float(value) for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]

    def note(self) -> str:
        """Return a note to show below the step: its error, and its attempts if there were several."""
        lines = [(self.error or "").partition("\n")[0], self.progress]
        if len(self.attempts) > 1:
            lines.append("; ".join(f"attempt {n} {_outcome(each)}" for n, each in enumerate(self.attempts, 1)))
        return " - ".join(filter(None, lines))

    def to_json(self) -> dict[str, Any]:
        """Return the step as an entry of `marin show --json`."""
        return {
            "name": self.name,
            "path": self.path,
            "dependencies": list(self.dependencies),
            "status": self.status,
            "seconds": self.seconds,
            "queued_seconds": self.queued_seconds,
            "error": self.error,
            "log": self.log,
            "started": self.started,
            "progress": self.progress or None,
            "attempts": [dict(attempt) for attempt in self.attempts],
        }


_STATUS_OF_EVENT = {
    "step_queued": "queued",
    "step_job_queued": "queued",
    "step_started": "running",
    "step_retrying": "retrying",
}


_OPEN = ("queued", "running", "retrying")
#: Ends after which no step that needs this one begins.
FAILED = ("failed", "dep_failed", "lost")
_GOOD = ("succeeded", "cached")
_CLOCKS_SECONDS = 5.0  # between a host's clock and its storage's
# What becomes of a step that has not ended when its run has; one that was not begun has no status.
_ENDED_WITH = {RunState.DIED: "died", RunState.STOPPED: "stopped"}


def steps_of_run(
    info: Mapping[str, Any], events: Iterable[Mapping[str, Any]], state: RunState | None = None
) -> list[RunStep]:
    """Return the steps of a run in the order of its info file, followed by steps that only its events name.

    Args:
        info: The run's info file; {} if it is lost.
        events: The readable events.
        state: The run's state, if known.
    """
    after = None if state is None else _ENDED_WITH.get(state)
    last: dict[str, dict[str, Any]] = {}
    began: dict[str, Any] = {}
    for event in events:
        path = event.get("path")
        if isinstance(path, str):
            if event.get("event") == "step_started":
                began.setdefault(path, event.get("time"))
            status = event.get("status") or _STATUS_OF_EVENT.get(str(event.get("event")))
            if event.get("event") == "step_progressed" and path in last:
                last[path]["progress"] = progress_note(event)
            if status is not None:
                is_begun = event.get("event") != "step_queued"
                ended = after if is_begun else None
                last[path] = {**event, "status": ended if after is not None and status in _OPEN else status}
                last[path]["began"] = began.get(path)
    found: dict[str, RunStep] = {}
    for step in info.get("steps") or ():
        path = step.get("output_path") if isinstance(step, dict) else None
        if isinstance(path, str):
            waits = step.get("dependencies")
            dependencies = tuple(dict.fromkeys(str(item) for item in waits)) if isinstance(waits, list) else ()
            found[path] = _step(str(step.get("name", "")), path, dependencies, last.pop(path, {}))
    for path, event in last.items():
        found[path] = _step(str(event.get("name", "")), path, (), event)
    skip_after_failures(found)
    return list(found.values())


def is_own_output(step: RunStep, run_written: float | None, output_written: Callable[[], float | None]) -> bool:
    """Return whether an output has the values that a step of this run recorded, rather than those of a later run.

    Args:
        step: The step, of a run with events.
        run_written: When the run's last event was written; None if unknown.
        output_written: Returns when the output's status was written; None if unknown.
    """
    if step.status in _GOOD:
        return True
    if step.began is None or step.status == "lost":
        return False
    until, at = step.ended or run_written, output_written()
    return step.status in _OPEN or until is None or at is None or at <= until + _CLOCKS_SECONDS


def skip_after_failures(steps: dict[str, RunStep]) -> None:
    """Set the status of queued steps below failed ones, which the run reports only when all their inputs have ended."""
    users: dict[str, list[str]] = {}
    for step in steps.values():
        for need in step.dependencies if step.status == "queued" else ():
            users.setdefault(need, []).append(step.path)
    failed = [path for path in users if path in steps and steps[path].status in FAILED]
    while failed:
        for path in users.pop(failed.pop(), ()):
            if steps[path].status == "queued":
                steps[path] = replace(steps[path], status="dep_failed")
                failed.append(path)


def _step(name: str, path: str, dependencies: tuple[str, ...], event: Mapping[str, Any]) -> RunStep:
    return RunStep(
        name=name,
        path=path,
        dependencies=dependencies,
        status=_text(event.get("status")),
        seconds=_number(event.get("seconds")),
        queued_seconds=_number(event.get("queued_seconds")),
        error=_text(event.get("error")),
        log=_text(event.get("log")),
        attempts=_attempts(event.get("attempts")),
        started=_number(event.get("time")) if event.get("status") == "running" else None,
        progress=str(event.get("progress", "")) if event.get("status") == "running" else "",
        began=_number(event.get("began")),
        ended=_number(event.get("time")) if event.get("event") == "step_ended" else None,
    )


def progress_note(event: Mapping[str, Any]) -> str:
    """Return the progress in an event `step_progressed`: `120/500 (24 %)`; "" if unreadable."""
    done, total = _number(event.get("done")), _number(event.get("total"))
    return f"{done:g}/{total:g} ({100 * done / total:.0f} %)" if done is not None and total and total > 0 else ""


def _attempts(recorded: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple(each for each in recorded if isinstance(each, dict)) if isinstance(recorded, list) else ()


def _outcome(attempt: Mapping[str, Any]) -> str:
    """Describe the end of an attempt: `failed after 2 s: ValueError: no cheese`."""
    error = attempt.get("error")
    reason = f": {error.partition(chr(10))[0]}" if isinstance(error, str) and error else ""
    seconds = attempt.get("seconds")
    took = f" after {duration(seconds)}" if isinstance(seconds, (int, float)) else ""
    return f"{attempt.get('outcome', 'ended')}{took}{reason}"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    return value if type(value) in (int, float) and math.isfinite(value) else None
