"""`marin runs`: a list of runs, newest first. `marin tag`: their tags and notes."""

from __future__ import annotations

import json
import time

import click

from marin.cli.context import CliContext, pass_context
from marin.cli.options import NAME, RUN, json_option, prefix_option, runs_option
from marin.cli.output import Output, say
from marin.recorded.deciding.run_names import find_run, notes_file
from marin.recorded.deciding.run_notes import change_notes
from marin.recorded.deciding.run_summary import STEP_ENDS, RunState, RunSummary
from marin.recorded.reading.places import runs_directory, storage_root
from rigging.text.tables import duration

_NEWEST = 50


@click.command()
@click.argument("prefix", type=NAME, required=False)
@click.option(
    "-n", "limit", type=click.IntRange(min=1), default=_NEWEST, show_default=True, help="Maximum number of runs."
)
@click.option("--all", "show_all", is_flag=True, help="List all runs.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([str(state) for state in RunState]),
    help="Only runs in this state. Repeatable.",
)
@click.option("--tag", "tags", multiple=True, type=NAME, metavar="TAG", help="Only runs with this tag. Repeatable.")
@runs_option
@json_option
@pass_context
def runs(
    context: CliContext,
    prefix: str | None,
    limit: int,
    show_all: bool,
    states: tuple[str, ...],
    tags: tuple[str, ...],
    runs_at: str | None,
    as_json: bool,
) -> None:
    """List the runs recorded below PREFIX (default: MARIN_PREFIX), newest first."""
    from marin.recorded.reading.runs import list_runs, read_notes, summaries
    from marin.recorded.reading.store import each

    directory = runs_directory(storage_root(prefix), runs_at)
    found = list_runs(directory)
    if tags:
        tagged = [run for run in found if run.notes is not None]
        known = each(lambda run: read_notes(directory, run), tagged, directory)
        found = [run for run, notes in zip(tagged, known, strict=True) if set(tags) <= set(notes.tags)]
    # A state is known only when a run's files are read.
    wanted = found if show_all or states else found[:limit]
    shown = summaries(directory, wanted, context.host)
    if states:
        shown = [run for run in shown if run.state in states]
    cut = shown if show_all else shown[:limit]
    Output(as_json).rows(
        ("run", "started", "took", "state", "steps", "user", "description"),
        [_cells(run) for run in cut],
        [run.to_json() for run in cut],
    )
    for run in cut:
        if run.damage:
            say(f"damaged: {run.damage}")
    rest = (len(shown) if states else len(found)) - len(cut)
    if not found:
        say(f"no runs in {directory}" + (f" have {', '.join(tags)}; `marin tag RUN +TAG` tags them" if tags else ""))
    elif rest > 0:
        say(f"{rest} more; --all lists them")


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.argument("run", type=RUN)
@click.argument("changes", nargs=-1, type=click.UNPROCESSED, metavar="[TAG]...")
@click.option("--note", metavar="TEXT", help="A note; an empty one removes it.")
@prefix_option
@runs_option
@json_option
@pass_context
def tag(
    context: CliContext,
    run: str,
    changes: tuple[str, ...],
    note: str | None,
    prefix: str | None,
    runs_at: str | None,
    as_json: bool,
) -> None:
    """Add tags (+TAG), remove tags (-TAG), or set its note: `marin tag tiny-0a1b2c +best -draft --note "x"`.

    Without changes it prints them. `marin runs --tag` and the experiment pages filter by tags.
    """
    from marin.recorded.reading.runs import list_runs, read_notes
    from marin.recorded.reading.store import below
    from rigging.filesystem import write_bytes_atomic

    del context
    directory = runs_directory(storage_root(prefix), runs_at)
    found = find_run(list_runs(directory), run, directory, say)
    known = read_notes(directory, found)
    changed = change_notes(known, changes, note)
    if changed != known:
        write_bytes_atomic(below(directory, notes_file(found.id)), json.dumps(changed.to_json()).encode())
    rows = [(found.id, ", ".join(changed.tags) or "-", changed.note or "-")]
    Output(as_json).rows(("run", "tags", "note"), rows, [{"run": found.id, **changed.to_json()}])


def _cells(run: RunSummary) -> list[str]:
    return [
        run.files.id,
        moment(run),
        duration(run.seconds),
        run.state,
        steps_text(run),
        run.user or "-",
        run.description or "",
    ]


def moment(run: RunSummary) -> str:
    """Return the local start time of a run; without an event log, the time of its info file."""
    if run.files.started is not None:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.files.started))
    return (run.created or "-")[:19].replace("T", " ")


def steps_text(run: RunSummary) -> str:
    """Return the number of steps in a run and their outcomes: `3: 1 succeeded, 2 cached`."""
    total = "-" if run.steps is None else str(run.steps)
    ended = [f"{run.ends[end]} {end}" for end in STEP_ENDS if run.ends and run.ends.get(end)]
    return f"{total}: {', '.join(ended)}" if ended else total
