"""`marin rm`: remove the records of a run, and the outputs that only this run names."""

from __future__ import annotations

from collections.abc import Sequence

import click

from marin.cli import exit_codes
from marin.cli.commands.gc import delete_outputs, say_added
from marin.cli.context import CliContext, pass_context
from marin.cli.options import NAME, RUN, json_option, prefix_option
from marin.cli.output import Output, echo_json, say
from marin.execution.record.code_record import texts_path
from marin.recorded.deciding.garbage import Found
from marin.recorded.deciding.run_names import RunFiles, runs_named
from marin.recorded.deciding.run_summary import RunState, RunSummary
from marin.recorded.reading.places import runs_directory, storage_root
from rigging.cli.asking import confirmed
from rigging.errors import Conflict
from rigging.text.quantities import format_size


@click.command()
@click.argument("run", type=RUN)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--runs",
    "runs_at",
    type=NAME,
    multiple=True,
    metavar="DIR",
    help="Another directory of run records besides PREFIX/experiments. Outputs of its runs are kept.",
)
@prefix_option
@json_option
@pass_context
def rm(context: CliContext, run: str, yes: bool, runs_at: tuple[str, ...], prefix: str | None, as_json: bool) -> int:
    """Remove a run and its outputs, after listing them and asking.

    The beginning of a name removes all runs that begin with it, if they are of equal steps. Outputs that another record
    names, or that a step is writing, are kept.
    """
    from marin.recorded.reading.outputs import find_outputs_of_run, remove_files
    from marin.recorded.reading.runs import list_runs, summaries
    from marin.recorded.reading.store import below

    root = storage_root(prefix)
    directory = runs_directory(root, None)
    places = [directory, *(runs_directory(root, place) for place in runs_at)]
    chosen = runs_named(list_runs(directory), run, directory)
    info = below(directory, chosen[0].info or "")

    def others() -> list[RunFiles]:
        return [item for item in list_runs(directory) if item not in chosen]

    def is_last() -> bool:
        return chosen[0].info is not None and all(item.stem != chosen[0].stem for item in others())

    def find() -> Found:
        return find_outputs_of_run(root, places, info) if is_last() else Found([], 0, 0, [])

    told, found = summaries(directory, chosen, context.host), find()
    running = [item.files.id for item in told if item.state is RunState.RUNNING]
    if running:
        raise Conflict(f"{running[0]} is running: stop it first. Nothing was removed")
    if found.damaged:
        raise Conflict(f"{'; '.join(found.damaged)}: repair or remove it first. Nothing was removed")
    _say_what(root, chosen, found, is_last(), as_json)
    confirmed(context, f"remove {len(chosen)} run(s) and {len(found.garbage)} output(s)?", yes)
    deleted, left = delete_outputs(root, find, found.garbage)
    if not left:
        texts = _texts(told)
        texts -= _texts(summaries(directory, others(), context.host)) if texts else set()
        logs = [below(directory, item.events) for item in chosen if item.events is not None]
        logs += [below(directory, item.notes) for item in chosen if item.notes is not None]
        remove_files([*logs, *(texts_path(directory, name) for name in sorted(texts)), *([info] if is_last() else [])])
    if as_json:
        echo_json({"runs": [] if left else [item.id for item in chosen], "deleted": deleted, "left": left})
    return exit_codes.FOUND if left else exit_codes.OK


def _say_what(root: str, chosen: Sequence[RunFiles], found: Found, is_last: bool, as_json: bool) -> None:
    """Print the runs and outputs to remove, and the kept ones with reasons."""
    rows = [["-", item.id] for item in chosen]
    rows += [[format_size(item.output.files.size), f"{root}/{item.output.files.name}"] for item in found.garbage]
    if not as_json:
        Output(False).rows(("size", "run or output"), rows, [])
    for verdict in found.verdicts:
        if verdict.kept is not None:
            say(f"kept: {root}/{verdict.output.files.name}: {verdict.kept}")
    if not is_last:
        say("kept: the outputs: another run of equal steps names them, or its info file is gone")
    say_added(root, found.garbage)


def _texts(runs: Sequence[RunSummary]) -> set[str]:
    return {str(run.code["texts"]) for run in runs if run.code.get("texts")}
