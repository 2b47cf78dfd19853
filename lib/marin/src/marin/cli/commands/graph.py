"""`marin graph`: the steps of a run and their dependencies, as a tree or a picture."""

from __future__ import annotations

import click

from marin.cli.context import CliContext, pass_context
from marin.cli.options import NAME, RUN, json_option, prefix_option, runs_option
from marin.cli.output import echo_json, echo_painted, say
from marin.recorded.deciding.dag import FOLDED, graph_of, tree_lines
from marin.recorded.deciding.run_names import find_run
from marin.recorded.deciding.run_steps import steps_of_run
from marin.recorded.reading.places import runs_directory, storage_root

_COLOURS = {"succeeded": "green", "failed": "red", "lost": "red", "dep_failed": "yellow", "running": "blue"}


@click.command()
@click.argument("run", type=RUN)
@click.option("--svg", "svg_file", type=NAME, metavar="FILE", help="Write an SVG picture; - for stdout.")
@click.option("--expand", is_flag=True, help=f"Show each step (default: {FOLDED} or more similar steps are one node).")
@prefix_option
@runs_option
@json_option
@pass_context
def graph(
    context: CliContext,
    run: str,
    svg_file: str | None,
    expand: bool,
    prefix: str | None,
    runs_at: str | None,
    as_json: bool,
) -> None:
    """Print the steps of a run as a tree, with each step's dependencies below it."""
    from marin.recorded.reading.runs import list_runs, read_events, read_info, summaries

    directory = runs_directory(storage_root(prefix), runs_at)
    found = find_run(list_runs(directory), run, directory, say)
    [summary] = summaries(directory, [found], context.host)
    steps = steps_of_run(read_info(directory, found), read_events(directory, found), summary.state)
    nodes = graph_of(steps, 0 if expand else FOLDED)
    if svg_file is not None:
        from marin.recorded.deciding.svg import svg_of

        picture = svg_of(nodes, f"{found.id}: {len(steps)} steps")
        if svg_file == "-":
            click.echo(picture, nl=False)
            return
        from rigging.filesystem import write_bytes_atomic

        write_bytes_atomic(svg_file, picture.encode())
        say(f"wrote {svg_file}: {len(steps)} steps in {len(nodes)} nodes")
    if as_json:
        echo_json({"run": found.id, "nodes": [node.to_json() for node in nodes]})
    elif svg_file is None:
        echo_painted([(line, _COLOURS.get(status)) for line, status in tree_lines(nodes)])
