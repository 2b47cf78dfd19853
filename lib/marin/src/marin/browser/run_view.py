"""A run for its page, read from its files and cached until they change."""

from __future__ import annotations

import functools
import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from marin.browser.confined import Confined
from marin.output_files import STATUS_FILE
from marin.recorded.deciding.run_names import RunFiles
from marin.recorded.deciding.run_steps import RunStep, is_own_output, steps_of_run
from marin.recorded.deciding.run_summary import RunState
from rigging.errors import InvalidRequest, MarinError, NotFound

_KEPT: Final = 8
_MOST_INFO_BYTES: Final = 128 << 20


@dataclass(frozen=True)
class RunView:
    """A run.

    Attributes:
        files: Its files.
        head: The run's own fields in its info file; {} if it has none.
        problem: Why the info file cannot be shown, or None.
        steps: Its steps, in the order of the info file.
        position: The number of bytes of its event log that `steps` includes.
        written: When the event log was written, in seconds since the epoch; None without one, or if unknown.
    """

    files: RunFiles
    head: Mapping[str, Any]
    problem: str | None
    steps: Sequence[RunStep]
    position: int
    written: float | None = None

    @functools.cached_property
    def counts(self) -> Counter[str]:
        """Return the number of steps per status; `-` for steps without a status."""
        return Counter(step.status or "-" for step in self.steps)

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """Return the index of each step in `steps`, by output path."""
        return {step.path: number for number, step in enumerate(self.steps)}

    def step(self, path: str) -> RunStep | None:
        """Return the step with an output path."""
        number = self.numbers.get(path)
        return None if number is None else self.steps[number]

    def is_own(self, step: RunStep, output: str, outputs: Confined) -> bool:
        """Return whether an output has the values that a step of this run recorded (see `is_own_output`).

        Args:
            step: The step.
            output: The name of its output.
            outputs: The storage root.
        """
        if self.files.events is None:
            return True
        return is_own_output(step, self.written, lambda: _written(outputs, f"{output}/{STATUS_FILE}"))


class RunViews:
    """Read runs and cache the last ones. Threads may share it.

    Args:
        place: The directory of run records.
    """

    def __init__(self, place: Confined) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], RunView] = OrderedDict()

    def read(self, run: RunFiles, state: RunState | None = None) -> RunView:
        """Return a run from the current content of its files.

        Args:
            run: The run.
            state: Its state: if the run has ended, no step is running. None if only the steps' names and positions
                matter.
        """
        sizes = [self._signature(name) for name in (run.info, run.events)]
        key = (run, state, *sizes)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        view = self._read(run, state)
        with self._lock:
            self._kept[key] = view
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return view

    def _signature(self, name: str | None) -> object:
        if name is None:
            return None
        try:
            entry = self._place.entry(name)
        except NotFound:
            return None
        return (entry.size, entry.modified)

    def _read(self, run: RunFiles, state: RunState | None) -> RunView:
        info, problem = self._info(run)
        content = b"" if run.events is None else self._content(run.events)
        position = content.rfind(b"\n") + 1
        events = parse_events(content[:position])
        # Configs of thousands of steps would fill the memory; the page of a step reads its own.
        head = {key: value for key, value in info.items() if key != "steps"}
        written = None if run.events is None else _written(self._place, run.events)
        return RunView(run, head, problem, steps_of_run(info, events, state), position, written)

    def _content(self, name: str) -> bytes:
        size = self._place.size(name)
        if size is None:
            return b""
        if size > _MOST_INFO_BYTES:
            raise InvalidRequest(f"{name} is larger than {_MOST_INFO_BYTES} bytes; `marin show` reads it")
        return self._place.read(name, 0, size)

    def info(self, run: RunFiles) -> dict[str, Any]:
        """Return a run's info file.

        Raises:
            NotFound: The run has no info file.
            InvalidRequest: The info file is damaged.
        """
        info, problem = self._info(run)
        if problem is not None:
            raise InvalidRequest(problem) if run.info is not None else NotFound(problem)
        return info

    def _info(self, run: RunFiles) -> tuple[dict[str, Any], str | None]:
        if run.info is None:
            return {}, f"its info file {run.stem}.json no longer exists"
        try:
            value = json.loads(self._content(run.info))
        except (ValueError, RecursionError) as error:
            return {}, f"{run.info} is damaged: {error}"
        if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
            return {}, f"{run.info} is damaged: it has no list of steps"
        return value, None


def _written(place: Confined, name: str) -> float | None:
    try:
        return place.entry(name).modified
    except MarinError:
        return None


def parse_events(content: bytes) -> list[dict[str, Any]]:
    """Return the events in whole lines of an event log. Unreadable lines are skipped."""
    found = []
    for line in content.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("path", ""), str):
            found.append(event)
    return found
