"""Explain which steps a run would execute, and how they differ from the nearest earlier outputs.

An explanation reads storage, but runs and writes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from marin.execution.config.step import ExecutorStep
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_DEP_FAILED, STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS
from marin.execution.plan.rerun_changed import check_tag, move_changed, states_of_steps
from marin.execution.plan.selection import check_steps, matching_steps, select_steps
from marin.execution.record.contents import read_contents, text_changes
from marin.execution.record.info import STEP_INFO_FILE, ExecutorStepInfo
from marin.execution.record.output_state import statuses_of
from marin.execution.record.provenance import parse_info, provenance_differences, report_merged
from marin.execution.run.pipeline import Executor
from marin.execution.version.differences import WHAT_TO_TYPE, Difference, differences
from marin.execution.version.step_version import HASH_DIGITS
from rigging.filesystem import local_path, read_bytes_or_none, url_to_fs
from rigging.process.parallel import map_in_threads

Step = ExecutorStep[Any]

_OUTPUT = re.compile(rf"(?P<stem>.+?)-[0-9a-f]{{{HASH_DIGITS}}}(?:@[\w-]+)?", re.DOTALL)
# At most this many earlier outputs of one name are compared.
MOST_SIBLINGS = 200


class PlannedAction(StrEnum):
    """The action that a run would take for a step."""

    CACHED = "cached"
    RUN = "run"
    WAIT = "wait"
    """Another run is making its output, and this one would wait."""
    FAIL = "fail"
    """It failed previously, and `force_run_failed` is off."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The planned action for one step, and the reason.

    Attributes:
        name: The step's name.
        path: Its output path.
        action: The action.
        reason: The reason.
        nearest: The earlier output of that name with the fewest differences. For a cached step, its own output if it
            differs.
        differences: The differences from `nearest`.
        code: The differences of code as a unified diff, as far as the texts are recorded.
    """

    name: str
    path: str
    action: PlannedAction
    reason: str
    nearest: str | None = None
    differences: list[Difference] = field(default_factory=list)
    code: list[str] = field(default_factory=list)

    @property
    def fate(self) -> PlannedAction:
        """Earlier name of `action`."""
        return self.action

    def lines(self) -> list[str]:
        """Return the explanation as readable lines."""
        lines = [f"{self.action:<6}  {self.name}  {self.path}", f"          {self.reason}"]
        if self.nearest is not None and self.differences:
            lines.append(f"          differs from {self.nearest} in")
            lines += [f"            {difference}" for difference in self.differences]
            lines += [f"              {line}" for line in self.code]
        return lines


def explain_steps(
    executor: Executor,
    steps: Sequence[Step],
    *,
    run_only: Sequence[str] | None = None,
    force_run_failed: bool = True,
    force: Sequence[str] = (),
    show: str | None = None,
    rerun_changed: str | None = None,
) -> list[Explanation]:
    """Explain for every step of an experiment whether a run would run it, and why.

    Args:
        executor: The executor that would run them.
        steps: The requested steps. Their dependencies are included.
        run_only: As in `Executor.run`.
        force_run_failed: As in `Executor.run`.
        force: As in `Executor.run`.
        show: Explain only the steps whose name matches this regex.
        rerun_changed: As in `Executor.run`.

    Raises:
        InvalidRequest: `steps` is not a list of steps; `show` or `run_only` is not a regex, or matches no step.
    """
    wanted = check_steps(steps)
    if rerun_changed is not None:
        check_tag(rerun_changed, dry_run=False)
    executor.plan.move({})
    for step in wanted:
        executor.compute_version(step)
    chosen = select_steps(executor.plan, wanted, run_only)
    report_merged(executor.plan.merged_among(chosen), strict=False)
    if rerun_changed is not None:
        move_changed(executor.plan, chosen, states_of_steps(executor.plan, chosen), rerun_changed)
    if show is not None:
        chosen = matching_steps(chosen, [show], "--step")
    forced = {executor.output_paths[step] for step in matching_steps(chosen, force, "--force")} if force else set()
    paths = [executor.output_paths[step] for step in chosen]
    statuses = statuses_of(states_of_steps(executor.plan, chosen))
    made = [path for path in paths if statuses[path] == STATUS_SUCCESS]
    infos = dict(zip(made, map_in_threads(_read_info, made), strict=True))
    earlier = EarlierOutputs(executor.prefix)
    return [
        Explanation(step.name, path, PlannedAction.RUN, "its output exists, and --force makes it again")
        if path in forced and path in infos
        else _explain(executor, step, statuses[path], infos.get(path), force_run_failed, earlier)
        for step, path in zip(chosen, paths, strict=True)
    ]


def explanation_lines(explanations: Sequence[Explanation]) -> list[str]:
    """Return all explanations as readable lines, one for each cached step."""
    count = sum(explanation.action is not PlannedAction.CACHED for explanation in explanations)
    lines = [f"explain: {len(explanations)} step(s), {count} without a finished output"]
    for explanation in explanations:
        told = explanation.lines()
        is_plain = explanation.action is PlannedAction.CACHED and not explanation.differences
        lines += told[:1] if is_plain else told
    if any(each.differences for each in explanations if each.action is PlannedAction.CACHED):
        lines.append(f"explain: {WHAT_TO_TYPE}")
    return lines


def _explain(
    executor: Executor,
    step: Step,
    status: str | None,
    there: dict[str, Any] | None,
    force_run_failed: bool,
    earlier: EarlierOutputs,
) -> Explanation:
    path = executor.output_paths[step]
    info = executor.plan.info(step)
    version = info.version
    if status == STATUS_SUCCESS:
        return _with_texts(executor, step, _explain_cached(step, path, info, there))
    if status in (STATUS_FAILED, STATUS_RUNNING, STATUS_DEP_FAILED):
        return Explanation(step.name, path, *_unfinished(path, status, force_run_failed))
    own = executor.plan.own_path(step)
    if own != path:
        changed = provenance_differences(_read_info(own) or {}, info)
        reason = "its code, or the code of a dependency, has changed, and --rerun-changed keeps the old output"
        return _with_texts(executor, step, Explanation(step.name, path, PlannedAction.RUN, reason, own, changed))
    found = _compare_with([other for other in earlier.of(step.name) if other != path], version)
    if found is None:
        return Explanation(step.name, path, PlannedAction.RUN, "no output of this name exists yet")
    if not found[1]:
        return Explanation(
            step.name, path, PlannedAction.RUN, f"its output path is pinned; {found[0]} has the same version"
        )
    return Explanation(step.name, path, PlannedAction.RUN, "no output of this version exists yet", *found)


def _explain_cached(step: Step, path: str, info: ExecutorStepInfo, there: dict[str, Any] | None) -> Explanation:
    version = there.get("version") if there is not None else None
    if step.override_output_path is not None and isinstance(version, dict) and version:
        differing = differences(version, info.version)
        if differing:
            reason = "the output at its pinned path exists, but another version made it"
            return Explanation(step.name, path, PlannedAction.CACHED, reason, path, differing)
    found = [] if there is None else provenance_differences(there, info)
    reason = "its output exists" + (", made with other unversioned values or code" if found else "")
    return Explanation(step.name, path, PlannedAction.CACHED, reason, path if found else None, found)


def _with_texts(executor: Executor, step: Step, explained: Explanation) -> Explanation:
    of_code = [item for item in explained.differences if item.where.startswith("source of ")]
    if not of_code:
        return explained
    old = read_contents(executor.executor_info_base_path, {str(item.before) for item in of_code if item.before})
    return replace(
        explained, code=text_changes(of_code, old, executor.plan.own_modules.texts(executor.plan.code_of(step)))
    )


def _unfinished(path: str, status: str, force_run_failed: bool) -> tuple[PlannedAction, str]:
    if StatusFile(path).has_active_lock():
        return PlannedAction.WAIT, f"another run is making its output (status {status})"
    if status == STATUS_FAILED and not force_run_failed:
        return PlannedAction.FAIL, "it failed previously, and force_run_failed is off"
    why = {
        STATUS_FAILED: "it failed in an earlier run",
        STATUS_DEP_FAILED: "an earlier run skipped it, because a dependency failed",
        STATUS_RUNNING: "a run that was making its output ended without finishing it",
    }
    return PlannedAction.RUN, why[status]


class EarlierOutputs:
    """The outputs of all versions of steps, by name. Each directory is listed once, on first use."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._by_stem: dict[str, dict[str, list[str]]] = {}

    def of(self, name: str) -> list[str]:
        """Return the output paths of every version of a step."""
        directory, _, stem = os.path.join(self._prefix, name).rpartition("/")
        if directory not in self._by_stem:
            self._by_stem[directory] = _outputs_in(directory)
        return self._by_stem[directory].get(stem, [])


def _outputs_in(directory: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in sorted(_entries(directory)):
        match = _OUTPUT.fullmatch(entry)
        if match is not None:
            found.setdefault(match["stem"], []).append(f"{directory}/{entry}")
    return found


def _entries(directory: str) -> list[str]:
    """Return the names in a directory; [] if it does not exist."""
    local = local_path(directory)
    try:
        if local is not None:
            return os.listdir(local)
        fs, remote = url_to_fs(directory)
        return [str(path).rstrip("/").rpartition("/")[2] for path in fs.ls(remote, detail=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _compare_with(paths: Sequence[str], version: dict[str, Any]) -> tuple[str, list[Difference]] | None:
    """Return the output with the fewest differences, and the differences; None if no output has a recorded version."""
    some = list(paths)[:MOST_SIBLINGS]
    compared = []
    for path, info in zip(some, map_in_threads(_read_info, some), strict=True):
        if info is not None and isinstance(info.get("version"), dict) and info["version"]:
            compared.append((path, differences(info["version"], version)))
    return min(compared, key=lambda found: (len(found[1]), found[0]), default=None)


def _read_info(path: str) -> dict[str, Any] | None:
    return parse_info(read_bytes_or_none(os.path.join(path, STEP_INFO_FILE)))
