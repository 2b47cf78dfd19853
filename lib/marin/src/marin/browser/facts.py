"""Values of runs for columns of their list: fields of configs and final metrics, cached in memory."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from marin.browser.confined import Confined, ConfinedFiles
from marin.browser.run_view import RunView, RunViews
from marin.output_files import ARTIFACT_FILE, METRICS_FILE
from marin.recorded.deciding.metric_table import flat
from marin.recorded.deciding.run_names import RunFiles
from marin.recorded.deciding.run_summary import ENDED, RunState, RunSummary
from marin.recorded.reading.metrics import last_values
from marin.recorded.reading.store import each, is_in_another_region
from rigging.errors import MarinError

_MOST_STEPS: Final = 50
_MOST_VALUES: Final = 100
_LONGEST: Final = 100
_MOST_INFO_BYTES: Final = 2 << 20


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The values of a run. Of equal names, the value of the last step counts.

    Attributes:
        metrics: The final metrics that its steps recorded or returned, by name, without those of later runs.
        config: The values of its steps' configs, by dotted name, without those that are paths below the prefix.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        """Return the value of a column; None without one."""
        return self.metrics.get(name, self.config.get(name))


class FactStore:
    """Read the values of runs. Those of runs that ended or died are read once. Threads may share it.

    Args:
        runs: The directory of run records.
        outputs: The storage root.
        views: Reads the runs.
    """

    def __init__(self, runs: Confined, outputs: Confined, views: RunViews) -> None:
        self._runs = runs
        self._views = views
        self._outputs = outputs
        self._lock = threading.Lock()
        self._known: dict[str, RunFacts] = {}

    def read(self, runs: Sequence[RunSummary], seconds: float = float("inf")) -> list[RunFacts | None]:
        """Return the values of runs; None for those that there was no time to read.

        Args:
            runs: The runs.
            seconds: Read no further ones after this time.
        """
        with self._lock:
            found = {run.files.id: self._known.get(run.files.id) for run in runs}
        deadline = time.monotonic() + seconds
        missing = [run for run in runs if found[run.files.id] is None]
        if missing and not is_in_another_region(self._outputs.root):
            batch = 64 if not self._outputs.is_local else 8
            for start in range(0, len(missing), batch):
                if time.monotonic() > deadline:
                    break
                part = missing[start : start + batch]
                for run, facts in zip(part, each(self._read, part, self._outputs.root), strict=True):
                    found[run.files.id] = facts
        return [found[run.files.id] for run in runs]

    def _read(self, run: RunSummary) -> RunFacts:
        facts = self._facts(run)
        if run.state in (*ENDED, RunState.DIED):
            with self._lock:
                self._known[run.files.id] = facts
        return facts

    def _facts(self, run: RunSummary) -> RunFacts:
        metrics: dict[str, float] = {}
        config: dict[str, Any] = {}
        steps = self._steps(run.files)[:_MOST_STEPS]
        view = self._view(run) if steps and run.state not in (RunState.SUCCEEDED, RunState.RECORDED) else None
        for step in steps:
            output = self._outputs.name_of(path := str(step.get("output_path", "")))
            if output is None:
                continue
            known = None if view is None else view.step(path)
            finals: Mapping[str, float] = {}
            if view is None or known is None or view.is_own(known, output, self._outputs):
                files = ConfinedFiles(self._outputs, output)
                finals = last_values(files.end(METRICS_FILE), files.end(ARTIFACT_FILE))
            metrics.update((sys.intern(name), value) for name, value in finals.items() if len(metrics) < _MOST_VALUES)
            for name, value in flat(step.get("config") or {}):
                if len(config) < _MOST_VALUES and not str(value).startswith(self._outputs.root):
                    config[sys.intern(name)] = value[:_LONGEST] if isinstance(value, str) else value
        return RunFacts(metrics, config)

    def _view(self, run: RunSummary) -> RunView | None:
        try:
            return self._views.read(run.files, run.state)
        except MarinError:
            return None

    def _steps(self, run: RunFiles) -> list[dict[str, Any]]:
        try:
            content = b"" if run.info is None else self._runs.read(run.info, 0, _MOST_INFO_BYTES + 1)
            info = json.loads(content) if 0 < len(content) <= _MOST_INFO_BYTES else {}
        except (MarinError, ValueError, RecursionError):
            return []
        steps = info.get("steps") if isinstance(info, dict) else None
        return [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
