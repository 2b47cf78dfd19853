"""`marin plot`: curves of a metric, in the terminal or as a picture."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import click

from marin.cli.commands.table import read_rows
from marin.cli.context import CliContext, pass_context
from marin.cli.options import NAME, RUN_OR_STEP, prefix_option, runs_option
from marin.cli.output import echo, say
from marin.recorded.deciding.curves import Curve, svg_chart, text_chart
from marin.recorded.deciding.metric_table import metric_table
from marin.recorded.reading.places import runs_directory, storage_root


@click.command()
@click.argument("names", type=RUN_OR_STEP, metavar="RUN|STEP|GLOB...", nargs=-1, required=True)
@click.option("--metric", type=NAME, metavar="NAME", required=True, help="Draw this metric.")
@click.option("--log", "is_log", is_flag=True, help="Use a logarithmic scale for the values.")
@click.option("--svg", "svg_file", type=NAME, metavar="FILE", help="Write an SVG picture; - for stdout.")
@prefix_option
@runs_option
@pass_context
def plot(
    context: CliContext,
    names: Sequence[str],
    metric: str,
    is_log: bool,
    svg_file: str | None,
    prefix: str | None,
    runs_at: str | None,
) -> None:
    """Draw the curves of a metric: those of a run's steps, or of outputs. `marin table` lists the metrics."""
    del context
    root = storage_root(prefix)
    curves = {row.path: (row, curve) for row, curve in read_rows(names, root, runs_directory(root, runs_at), metric)}
    table = metric_table([row for row, _ in curves.values()], [metric])
    drawn = [Curve(table.label(row), curve) for row in table.rows if (curve := curves[row.path][1])]
    if svg_file is None:
        size = shutil.get_terminal_size()
        for line in text_chart(drawn, size.columns, min(20, max(5, size.lines - 5)), is_log=is_log):
            echo(line)
        return
    picture = svg_chart(drawn, metric, is_log=is_log)
    if svg_file == "-":
        click.echo(picture, nl=False)
        return
    from rigging.filesystem import write_bytes_atomic

    write_bytes_atomic(svg_file, picture.encode("utf-8", "replace"))
    say(f"wrote {svg_file}: {len(drawn)} curves")
