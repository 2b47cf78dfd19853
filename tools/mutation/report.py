"""The results of a run, as JSON and as text."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.mutation.sites import changed_lines
from tools.mutation.trial import Trial, Verdict


def summary(trials: Sequence[Trial], seed: int) -> dict[str, object]:
    """Return the share of detected mistakes, and every mistake with the test that detected it."""
    noticed = _noticed(trials)
    return {
        "seed": seed,
        "count": len(trials),
        "noticed_share": round(noticed / max(len(trials), 1), 4),
        "standard_error": round(_standard_error(noticed, len(trials)), 4),
        "verdicts": dict(Counter(trial.verdict for trial in trials)),
        "trials": [json.loads(trial.to_json()) for trial in trials],
    }


def text(trials: Sequence[Trial]) -> str:
    """Return the survivors with their diffs, and the shares by package, as text."""
    lines = []
    for trial in trials:
        if trial.verdict is Verdict.SURVIVED:
            lines.append(f"survived {trial.tried} tests: {trial.file}:{trial.line} {trial.function}")
            lines.append(indented(trial.diff))
    for package in sorted({_package(trial) for trial in trials}):
        lines.append(f"{package}: {_share([trial for trial in trials if _package(trial) == package])}")
    return "\n".join([*lines, f"all: {_share(trials)}"])


def lost_text(before: Sequence[Mapping[str, str]], trials: Sequence[Trial]) -> str:
    """Return the mistakes that an earlier report detected and this one does not, with the tests that detected them."""
    noticed = {_place(item["function"], item["operator"], item["diff"]): item for item in before}
    noticed = {place: item for place, item in noticed.items() if item["verdict"] != Verdict.SURVIVED}
    lines = []
    for trial in trials:
        earlier = noticed.get(_place(trial.function, trial.operator, trial.diff))
        if trial.verdict is Verdict.SURVIVED and earlier is not None:
            lines.append(f"no longer detected: {trial.file}:{trial.line} {trial.function}, before by {earlier['test']}")
            lines.append(indented(trial.diff))
    return "\n".join(lines) or "all earlier detections still hold"


def _place(function: str, operator: str, diff: str) -> tuple[str, ...]:
    return (function, operator, *changed_lines(diff))


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _package(trial: Trial) -> str:
    return Path(trial.file).parts[1]


def _noticed(trials: Sequence[Trial]) -> int:
    return sum(trial.verdict is not Verdict.SURVIVED for trial in trials)


def _standard_error(hits: int, count: int) -> float:
    share = hits / max(count, 1)
    return math.sqrt(share * (1 - share) / max(count, 1))


def _share(trials: Sequence[Trial]) -> str:
    noticed = _noticed(trials)
    error = 100 * _standard_error(noticed, len(trials))
    return f"{noticed} of {len(trials)} noticed, {100 * noticed / max(len(trials), 1):.0f} % ± {error:.0f}"
