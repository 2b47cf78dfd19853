"""`marin show`: a run with its steps, or the output of a step."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from marin.cli.commands.runs import moment, steps_text
from marin.cli.context import CliContext, pass_context
from marin.cli.options import RUN_OR_STEP, json_option, prefix_option, runs_option
from marin.cli.output import Output, say
from marin.execution.lease.status_words import STATUS_RUNNING, STATUS_SUCCESS
from marin.execution.record.code_record import describe_code, read_code_texts
from marin.recorded.deciding.code_diff import uncommitted_files
from marin.recorded.deciding.leases import CLEARABLE, how_held, why_gone
from marin.recorded.deciding.run_names import RunFiles, find_run
from marin.recorded.deciding.run_steps import RunStep, steps_of_run
from marin.recorded.deciding.run_summary import RunState, RunSummary
from marin.recorded.deciding.step_attempts import StepAttempt
from marin.recorded.reading.places import runs_directory, storage_root
from rigging.errors import NotFound
from rigging.text.quantities import format_size
from rigging.text.tables import duration, table

_FIELDS = 60


@click.command()
@click.argument("name", type=RUN_OR_STEP, metavar="[RUN|STEP]", required=False)
@click.option("--latest", is_flag=True, help="Show the newest run; with a name, the newest match.")
@prefix_option
@runs_option
@json_option
@pass_context
def show(
    context: CliContext, name: str | None, latest: bool, prefix: str | None, runs_at: str | None, as_json: bool
) -> None:
    """Show a run with its steps, or everything recorded about a step's output.

    If a name fits several runs or outputs, the newest is shown.
    """
    root = storage_root(prefix)
    directory = runs_directory(root, runs_at)
    if name is None and not latest:
        raise click.UsageError("Missing argument 'RUN|STEP': name a run or a step, or give --latest.")
    found = run_or_step(root, directory, name or "", (lambda _: None) if latest else say)
    if isinstance(found, str):
        _show_step(context, found, directory, as_json)
    else:
        _show_run(context, directory, found, as_json)


def run_or_step(root: str, directory: str, name: str, note: Callable[[str], None]) -> RunFiles | str:
    """Return the run or the output path that a name stands for. Runs take precedence: their names have no slashes."""
    from marin.recorded.reading.runs import list_runs
    from marin.recorded.reading.steps import find_step

    if "/" in name and not name.endswith((".json", ".jsonl")):
        return find_step(root, name, note)
    runs = list_runs(directory)
    if not name and runs:
        return runs[0]
    try:
        return find_run(runs, name, directory, note)
    except NotFound as no_run:
        try:
            return find_step(root, name, note)
        except NotFound as no_step:
            raise NotFound(f"{no_run}; and {no_step}") from None


def _show_run(context: CliContext, directory: str, run: RunFiles, as_json: bool) -> None:
    from marin.recorded.reading.runs import read_events, read_info, summaries

    [summary], now = summaries(directory, [run], context.host), context.now()
    info: dict[str, Any] = {}
    try:
        info = read_info(directory, run)
    except (NotFound, ValueError) as error:
        if run.events is None:
            raise
        say(str(error))
    texts = read_code_texts(directory, summary.code)
    steps = steps_of_run(info, read_events(directory, run), summary.state)
    record = {
        **summary.to_json(),
        "directory": directory,
        "code_texts": texts,
        "info_file": run.info,
        "event_log": run.events,
        "script": info.get("caller_path"),
        "prefix": info.get("prefix"),
        "step_list": [step.to_json() for step in steps],
    }
    facts = [
        ("run", run.id),
        ("state", f"{summary.state}{f': {summary.error}' if summary.error else ''}"),
        ("started", moment(summary)),
        ("took", _took(summary.seconds, run.started if summary.state is RunState.RUNNING else None, now)),
        ("user", summary.user or "-"),
        ("host", summary.host or "-"),
        ("script", summary.command or str(info.get("caller_path", "-"))),
        ("commit", describe_code(summary.code) if summary.code else summary.git_commit or "-"),
        ("description", summary.description or "-"),
        ("steps", steps_text(summary)),
    ]
    files = [f"{name}  {len(text)} characters" for name, text in uncommitted_files(texts).items()]
    Output(as_json).record(
        [*_aligned(facts), *_listed("not committed (--json has the texts)", files), *_step_table(steps, now)], record
    )


def _took(seconds: float | None, running_since: float | None, now: float) -> str:
    return duration(seconds) if running_since is None else f"{duration(max(0.0, now - running_since))} so far"


def _step_table(steps: Sequence[RunStep], now: float) -> list[str]:
    """Return the table of a run's steps, with their resource use where it is recorded."""
    if not steps:
        return []
    heads, rows = (
        ["step", "status", "took"],
        [[step.name, step.status or "-", _took(step.seconds, step.started, now)] for step in steps],
    )
    if any(step.cpu_seconds is not None or step.peak_bytes is not None for step in steps):
        heads += ["cpu", "memory"]
        for step, row in zip(steps, rows, strict=True):
            peak = step.peak_bytes
            row += [duration(step.cpu_seconds), "-" if peak is None else format_size(peak)]
    for step, row in zip(steps, rows, strict=True):
        row.append(step.path)
    return ["", *table((*heads, "path"), rows, [step.note() for step in steps])]


def _show_step(context: CliContext, path: str, directory: str, as_json: bool) -> None:
    from marin.recorded.reading.runs import attempts_at
    from marin.recorded.reading.steps import read_step

    step = read_step(path, context.now())
    lease = step.lease
    gone = why_gone(lease) if step.status == STATUS_RUNNING else None
    info = step.info or {}
    attempts = attempts_at(directory, path, context.host)
    made_by = _made_by(directory, attempts, context.host)
    record = {
        "path": path,
        "status": step.status,
        "holder": None if lease is None else lease.holder,
        "lease": None if lease is None else lease.to_json(),
        "run_is_gone": gone is not None,
        "aside": step.aside,
        "damage": step.damage,
        "name": info.get("name"),
        "function": info.get("fn_name"),
        "config": info.get("config"),
        "version": info.get("version"),
        "unversioned": info.get("unversioned"),
        "source": info.get("source"),
        "dependencies": info.get("dependencies"),
        "made_by": None if made_by is None else {"run": made_by.files.id, "code": dict(made_by.code) or None},
        "attempts": [asdict(attempt) for attempt in attempts],
        "files": step.files,
    }
    if step.damage and not as_json:
        say(f"damaged: {step.damage}")
    facts = [
        ("step", str(info.get("name", "-"))),
        ("path", path),
        ("status", f"{step.status}, but {gone}" if gone else step.status or "-"),
        ("function", str(info.get("fn_name", "-"))),
        *([("held by", how_held(lease))] if lease is not None and lease.state not in CLEARABLE else []),
    ]
    if step.aside is not None:
        end = "the next --force removes it" if step.status == STATUS_SUCCESS else "comes back unless the step succeeds"
        facts.append(("set aside", f"{step.aside}: the earlier output, by --force; {end}"))
    if made_by is not None:
        facts += [("made by", made_by.files.id), ("commit", describe_code(made_by.code))]
    version = info.get("version")
    fields = version.get("config", {}) if isinstance(version, dict) else {}
    lines = _aligned(facts)
    lines += _section("versioned", fields)
    lines += _section("unversioned", info.get("unversioned"))
    lines += _section("config", info.get("config"))
    lines += _listed("dependencies", [str(item) for item in info.get("dependencies") or ()])
    lines += _attempts(attempts)
    lines += _listed("files", [name if size is None else f"{name}  {size} bytes" for name, size in step.files.items()])
    Output(as_json).record(lines, record)
    if as_json and step.damage:
        say(f"damaged: {step.damage}")


def _made_by(directory: str, attempts: Sequence[StepAttempt], host: str) -> RunSummary | None:
    """Return the run that made an output; None if its event log no longer exists."""
    from marin.recorded.reading.runs import list_runs, summaries

    name = next((attempt.run for attempt in attempts if attempt.outcome == "succeeded"), None)
    runs = [run for run in list_runs(directory) if run.id == name]
    return next(iter(summaries(directory, runs, host)), None)


def _aligned(facts: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in facts)
    return [f"{name:<{width}}  {text}" for name, text in facts]


def _section(title: str, value: Any) -> list[str]:
    if not value:
        return []
    if not isinstance(value, Mapping):
        return [f"{title}  {json.dumps(value)}"]
    items = [f"  {name}: {json.dumps(item)}" for name, item in value.items()]
    rest = [f"  ... and {len(items) - _FIELDS} more (--json has all)"] if len(items) > _FIELDS else []
    return [title, *items[:_FIELDS], *rest]


def _listed(title: str, items: list[str]) -> list[str]:
    rest = [f"  ... and {len(items) - _FIELDS} more (--json has all)"] if len(items) > _FIELDS else []
    return [title, *(f"  {item}" for item in items[:_FIELDS]), *rest] if items else []


def _attempts(attempts: list[StepAttempt]) -> list[str]:
    if not attempts:
        return []
    rows = [
        [
            str(attempt.attempt),
            attempt.outcome,
            duration(attempt.seconds),
            duration(attempt.queued_seconds or None),
            duration(attempt.cpu_seconds),
            "-" if attempt.peak_bytes is None else format_size(attempt.peak_bytes),
            attempt.run,
        ]
        for attempt in attempts[:_FIELDS]
    ]
    notes = [(attempt.error or "").partition("\n")[0] for attempt in attempts[:_FIELDS]]
    head = ("attempt", "outcome", "took", "queued", "cpu", "peak", "run")
    rest = [f"  ... and {len(attempts) - _FIELDS} more (--json has all)"] if len(attempts) > _FIELDS else []
    return ["attempts", *(f"  {line}" for line in table(head, rows, notes)), *rest]
