"""The differences between two runs: steps, versioned fields, unversioned values, code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from marin.execution.record.provenance import source_differences
from marin.execution.version.differences import Difference, differences, value_differences

_HEAD: Final = ("caller_path", "git_commit", "branch", "uncommitted", "prefix", "user", "description")
_OF_INPUTS: Final = ("dependency ", "non-blocking dependency ")
_SHOWN_INPUTS: Final = 5


@dataclass(frozen=True, slots=True)
class StepDiff:
    """A step that differs.

    Attributes:
        name: Its name.
        before: Its output path in the earlier run.
        after: Its output path in the later run.
        fields: The differences of its own versioned fields.
        inputs: The differences of its dependencies' versions.
        unversioned: The differences of unversioned values.
        code: The differences of its function's parts.
    """

    name: str
    before: str
    after: str
    fields: tuple[Difference, ...]
    inputs: tuple[Difference, ...]
    unversioned: tuple[Difference, ...]
    code: tuple[Difference, ...]

    @property
    def differs(self) -> bool:
        """Return whether anything differs."""
        return bool(self.before != self.after or self.fields or self.inputs or self.unversioned or self.code)

    def to_json(self) -> dict[str, Any]:
        """Return the step as an entry of `marin diff --json`."""
        found = {name: getattr(self, name) for name in ("fields", "inputs", "unversioned", "code")}
        return {
            "name": self.name,
            "before": self.before,
            "after": self.after,
            **{name: [_as_json(item) for item in items] for name, items in found.items()},
        }

    def lines(self) -> list[str]:
        """Return the differences as readable lines."""
        shown = [f"  {item}" for item in self.fields]
        shown += [f"  {item}" for item in self.inputs[:_SHOWN_INPUTS]]
        if len(self.inputs) > _SHOWN_INPUTS:
            shown.append(f"  and {len(self.inputs) - _SHOWN_INPUTS} more in its dependencies")
        shown += [f"  (not versioned) {item}" for item in self.unversioned]
        shown += [f"  (code) {item}" for item in self.code]
        return shown


@dataclass(frozen=True, slots=True)
class RunDiff:
    """The differences between two runs.

    Attributes:
        head: The differences in machine, time and user.
        added: Name and output path of the steps that only the later run has.
        removed: Name and output path of the steps that only the earlier run has.
        changed: Steps of both runs that differ.
        equal: The number of equal steps.
    """

    head: tuple[Difference, ...]
    added: tuple[tuple[str, str], ...]
    removed: tuple[tuple[str, str], ...]
    changed: tuple[StepDiff, ...]
    equal: int

    @property
    def differs(self) -> bool:
        """Return whether any steps differ."""
        return bool(self.added or self.removed or self.changed)

    def to_json(self) -> dict[str, Any]:
        """Return the differences in the form of `marin diff --json`."""
        return {
            "head": [_as_json(item) for item in self.head],
            "added": [{"name": name, "path": path} for name, path in self.added],
            "removed": [{"name": name, "path": path} for name, path in self.removed],
            "changed": [step.to_json() for step in self.changed],
            "equal": self.equal,
        }


def _as_json(item: Difference) -> dict[str, Any]:
    return {"where": item.where, "before": item.before, "after": item.after}


def diff_runs(before: Mapping[str, Any], after: Mapping[str, Any]) -> RunDiff:
    """Compare two runs by their info files.

    Steps are paired by output path, then by name. Several steps of one name are paired in order.

    Args:
        before: The earlier run's info file.
        after: The later run's info file.
    """
    old, new = _by_path(before), _by_path(after)
    pairs = [(old[path], new[path]) for path in old if path in new]
    gone = [step for path, step in old.items() if path not in new]
    come = [step for path, step in new.items() if path not in old]
    waiting: dict[str, list[Mapping[str, Any]]] = {}
    for step in gone:
        waiting.setdefault(_name(step), []).append(step)
    added = []
    for step in come:
        same_name = waiting.get(_name(step))
        if same_name:
            pairs.append((same_name.pop(0), step))
        else:
            added.append(step)
    compared = [_compare(one, other) for one, other in pairs]
    changed = [step for step in compared if step.differs]
    removed = [step for steps in waiting.values() for step in steps]
    return RunDiff(
        head=tuple(
            Difference(key, _text(before.get(key)), _text(after.get(key)))
            for key in _HEAD
            if before.get(key) != after.get(key)
        ),
        added=tuple((_name(step), _path(step)) for step in added),
        removed=tuple((_name(step), _path(step)) for step in removed),
        changed=tuple(changed),
        equal=len(compared) - len(changed),
    )


def with_own_code(info: Mapping[str, Any], code: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's info file with the code of the run itself: runs of equal steps share the file.

    Args:
        info: The info file.
        code: The `code` of the run's `run_started`; {} if not recorded.
    """
    if not code:
        return dict(info)
    own = {"git_commit": code.get("commit"), "branch": code.get("branch"), "uncommitted": code.get("digest")}
    return {**info, **own}


def _compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> StepDiff:
    one, other = before.get("version"), after.get("version")
    found = differences(one, other) if isinstance(one, dict) and isinstance(other, dict) and one != other else []
    old, new = before.get("unversioned"), after.get("unversioned")
    unversioned = value_differences(old, new) if isinstance(old, dict) and isinstance(new, dict) else []
    source = after.get("source")
    code = source_differences(before, source) if isinstance(source, dict) else []
    if before.get("fn_name") != after.get("fn_name"):
        code = [Difference("function", _text(before.get("fn_name")), _text(after.get("fn_name"))), *code]
    return StepDiff(
        name=_name(after),
        before=_path(before),
        after=_path(after),
        fields=tuple(item for item in found if not item.where.startswith(_OF_INPUTS)),
        inputs=tuple(item for item in found if item.where.startswith(_OF_INPUTS)),
        unversioned=tuple(unversioned),
        code=tuple(code),
    )


def diff_lines(diff: RunDiff) -> list[tuple[str, str | None]]:
    """Return the differences as readable lines with colours."""
    lines: list[tuple[str, str | None]] = [(f"{item}", None) for item in diff.head]
    lines += [(f"+ {name}  {path}", "green") for name, path in diff.added]
    lines += [(f"- {name}  {path}", "red") for name, path in diff.removed]
    for step in diff.changed:
        where = step.after if step.before == step.after else f"{step.before} -> {step.after}"
        lines.append((f"~ {step.name}  {where}", "yellow"))
        lines += [(line, None) for line in step.lines()]
    counts = f"{len(diff.added)} added, {len(diff.removed)} removed, {len(diff.changed)} changed, {diff.equal} equal"
    return [*lines, (counts, None)]


def _by_path(info: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    steps: Sequence[Any] = info.get("steps") or ()
    usable: Iterable[Mapping[str, Any]] = (step for step in steps if isinstance(step, dict))
    return {_path(step): step for step in usable}


def _name(step: Mapping[str, Any]) -> str:
    return str(step.get("name", ""))


def _path(step: Mapping[str, Any]) -> str:
    return str(step.get("output_path", ""))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
