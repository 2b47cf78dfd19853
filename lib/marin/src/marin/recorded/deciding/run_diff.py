"""The differences between two runs: steps, versioned fields, unversioned values, code."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from marin.execution.record.provenance import source_differences
from marin.execution.version.differences import Difference, differences, value_differences
from marin.recorded.deciding.metric_table import flat

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


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that differs among runs.

    Attributes:
        field: Its dotted name in the config; `step`, `function` or a part of the code for other differences.
        values: The value in each run as text; None where there is none.
    """

    field: str
    values: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class ChangedStep:
    """A step whose own config or code differs among runs.

    Attributes:
        name: Its name.
        parameters: What differs.
        affects: The names of the steps that depend on it, directly or not.
    """

    name: str
    parameters: tuple[Parameter, ...]
    affects: tuple[str, ...]


def changed_steps(infos: Sequence[Mapping[str, Any]]) -> list[ChangedStep]:
    """Return the steps that differ by themselves, not only by their inputs; those that affect most steps come first.

    Args:
        infos: The runs' info files. Steps of one name are compared in order.
    """
    tables = [_by_key(info) for info in infos]
    keys = list(dict.fromkeys(key for table in tables for key in table))
    outputs = {_path(step) for table in tables for step in table.values()}
    users = _users(tables)
    found = []
    for key in keys:
        values = [_own_values(table.get(key), outputs) for table in tables]
        names = dict.fromkeys(name for each in values for name in each)
        rows = [Parameter(name, tuple(each.get(name) for each in values)) for name in names]
        changed = tuple(row for row in rows if len(set(row.values)) > 1)
        if not all(key in table for table in tables):
            changed = (Parameter("step", tuple("present" if key in table else None for table in tables)),)
        if changed:
            found.append(ChangedStep(key[0], changed, tuple(name for name, _ in _below(key, users))))
    return sorted(found, key=lambda step: -len(step.affects))


_Key = tuple[str, int]


def _by_key(info: Mapping[str, Any]) -> dict[_Key, Mapping[str, Any]]:
    counts: dict[str, int] = {}
    found = {}
    for step in _by_path(info).values():
        counts[_name(step)] = counts.get(_name(step), 0) + 1
        found[(_name(step), counts[_name(step)])] = step
    return found


def _users(tables: Sequence[Mapping[_Key, Mapping[str, Any]]]) -> dict[_Key, dict[_Key, None]]:
    users: dict[_Key, dict[_Key, None]] = {}
    for table in tables:
        keys = {_path(step): key for key, step in table.items()}
        for key, step in table.items():
            needs = step.get("dependencies")
            for need in needs if isinstance(needs, list) else ():
                if str(need) in keys:
                    users.setdefault(keys[str(need)], {})[key] = None
    return users


def _below(key: _Key, users: Mapping[_Key, Iterable[_Key]]) -> list[_Key]:
    found: dict[_Key, None] = {}
    pending = [key]
    while pending:
        for user in users.get(pending.pop(), ()):
            if user not in found and user != key:
                found[user] = None
                pending.append(user)
    return list(found)


def _own_values(step: Mapping[str, Any] | None, outputs: Collection[str]) -> dict[str, str]:
    """Return the values of a step's config and code as text, without paths of outputs, which differ by their inputs."""
    if step is None:
        return {}
    config = {name: str(value) for name, value in flat(step.get("config") or {})}
    found = {name: value for name, value in config.items() if not _is_below(value, outputs)}
    source = step.get("source")
    code = {f"code of {part}": str(value) for part, value in source.items()} if isinstance(source, dict) else {}
    return {**found, "function": str(step.get("fn_name", "")), **code}


def _is_below(value: str, outputs: Collection[str]) -> bool:
    while value:
        if value in outputs:
            return True
        value = value.rpartition("/")[0]
    return False
