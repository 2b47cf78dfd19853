"""`marin gc`: list and remove outputs that no run refers to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from marin.cli import exit_codes
from marin.cli.context import CliContext, pass_context
from marin.cli.options import NAME, SPAN, json_option, prefix_option
from marin.cli.output import Output, echo_json, say
from marin.recorded.deciding.garbage import Found, Verdict
from marin.recorded.reading.places import runs_directory, storage_root
from marin.stored_files import shown_names
from rigging.cli.asking import confirmed
from rigging.errors import Conflict, InvalidRequest
from rigging.text.quantities import format_size

_DAY = 86_400.0


@click.command()
@click.option("--dry-run", is_flag=True, help="List only (the default).")
@click.option("--delete", is_flag=True, help="Delete them, after asking.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--older-than", type=SPAN, default=_DAY, metavar="SPAN", help="Keep younger outputs.  [default: 1d]")
@click.option("--runs-older-than", type=SPAN, metavar="SPAN", help="Ignore runs recorded longer ago.  [default: none]")
@click.option("--kept", is_flag=True, help="Also list kept outputs, and why.")
@click.option(
    "--runs",
    "runs_at",
    type=NAME,
    multiple=True,
    metavar="DIR",
    help="Another directory of run records besides PREFIX/experiments.",
)
@prefix_option
@json_option
@pass_context
def gc(
    context: CliContext,
    dry_run: bool,
    delete: bool,
    yes: bool,
    older_than: float,
    runs_older_than: float | None,
    kept: bool,
    runs_at: tuple[str, ...],
    prefix: str | None,
    as_json: bool,
) -> int:
    """List the outputs below the prefix that no recorded run refers to, with their sizes.

    With --runs, name every other directory of run records whose runs may use these outputs. Temporary data and files
    that no recorded experiment made are never listed.
    """
    if dry_run and delete:
        raise InvalidRequest("--dry-run and --delete exclude each other")
    from marin.recorded.reading.outputs import find_garbage

    root = storage_root(prefix)
    places = [runs_directory(root, None), *(runs_directory(root, place) for place in runs_at)]

    def find() -> Found:
        age = runs_older_than
        return find_garbage(root, places, context.now() - older_than, None if age is None else context.now() - age)

    found = find()
    if found.verdicts and not found.runs:
        raise InvalidRequest(
            f"no run is recorded in {', '.join(places)}: every output would be listed; name the place with --runs"
        )
    shown = found.verdicts if kept else found.garbage
    rows = [_cells(root, verdict, kept) for verdict in shown]
    if not (as_json and delete):
        columns = ("size", "output", *(("kept",) if kept else ()))
        Output(as_json).rows(columns, rows, [item.to_json(root) for item in shown])
    for problem in found.damaged:
        say(f"damaged: {problem}; its references are unknown")
    total = sum(verdict.output.files.size for verdict in found.garbage)
    aged = f"; {found.aged} older one(s) do not count" if found.aged else ""
    counts = f"{len(found.garbage)} of {len(found.verdicts)} output(s), {format_size(total)}"
    say(f"{counts}, are not referenced by any of {found.runs - found.aged} run file(s){aged}")
    say_added(root, found.garbage)
    if not delete or not found.garbage:
        return exit_codes.OK
    if found.damaged:
        raise Conflict("nothing was deleted: run files are damaged, so references are unknown; repair or remove them")
    confirmed(context, f"delete {len(found.garbage)} output(s), {format_size(total)}, below {root}?", yes)
    deleted, left = delete_outputs(root, find, found.garbage)
    if as_json:
        echo_json({"deleted": deleted, "left": left})
    return exit_codes.FOUND if left else exit_codes.OK


def say_added(root: str, garbage: Sequence[Verdict]) -> None:
    """Print the files of outputs that no step wrote."""
    for verdict in garbage:
        if verdict.added:
            say(f"{root}/{verdict.output.files.name}: changed after its step ended: {shown_names(verdict.added)}")


def delete_outputs(
    root: str, find: Callable[[], Found], agreed: Sequence[Verdict]
) -> tuple[list[str], list[dict[str, str]]]:
    """Delete the outputs that still have no reference. Return their paths, and `path` and `reason` of each kept one.

    Args:
        root: The storage root.
        find: Looks again for outputs without references.
        agreed: The outputs that may be deleted.
    """
    from marin.recorded.reading.outputs import remove_output

    # Runs may have begun while the question stood.
    again = find()
    still = set() if again.damaged else {verdict.output.files.name for verdict in again.garbage}
    deleted = list[str]()
    left = list[dict[str, str]]()
    for verdict in agreed:
        path = f"{root}/{verdict.output.files.name}"
        problem = remove_output(path) if verdict.output.files.name in still else "a run refers to it now"
        if problem is None:
            deleted.append(path)
        else:
            left.append({"path": path, "reason": problem})
            say(f"kept: {path}: {problem}")
    say(f"{len(deleted)} output(s) deleted, {len(left)} kept")
    return deleted, left


def _cells(root: str, verdict: Verdict, kept: bool) -> list[str]:
    files = verdict.output.files
    return [format_size(files.size), f"{root}/{files.name}", *([verdict.kept or "-"] if kept else [])]
