"""`marin runs`: a list of runs, newest first."""

from __future__ import annotations

import time

import click

from marin.cli.context import CliContext, pass_context
from marin.cli.options import NAME, json_option, runs_option
from marin.cli.output import Output, say
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
@runs_option
@json_option
@pass_context
def runs(
    context: CliContext,
    prefix: str | None,
    limit: int,
    show_all: bool,
    states: tuple[str, ...],
    runs_at: str | None,
    as_json: bool,
) -> None:
    """List the runs recorded below PREFIX (default: MARIN_PREFIX), newest first."""
    from marin.recorded.reading.runs import list_runs, summaries

    directory = runs_directory(storage_root(prefix), runs_at)
    found = list_runs(directory)
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
        say(f"no runs in {directory}")
    elif rest > 0:
        say(f"{rest} more; --all lists them")


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
