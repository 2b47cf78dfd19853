"""`marin table` and `marin plot`: the values that differ between steps, beside their final metrics, and curves."""

from __future__ import annotations

import csv
import fnmatch
import shutil
import sys
from collections.abc import Sequence
from functools import partial

import click

from marin.cli.commands.show import run_or_step
from marin.cli.context import CliContext, pass_context
from marin.cli.options import NAME, RUN_OR_STEP, json_option, prefix_option, runs_option
from marin.cli.output import Output, echo, say
from marin.output_files import INFO_FILE, STATUS_FILE, TARGET_CONFIG_FILE
from marin.recorded.deciding.curves import Curve, svg_chart, text_chart
from marin.recorded.deciding.metric_table import MetricRow, flat, metric_table
from marin.recorded.deciding.run_steps import is_own_output, steps_of_run
from marin.recorded.deciding.step_names import split_word
from marin.recorded.deciding.thinning import Points
from marin.recorded.reading.places import runs_directory, storage_root
from marin.stored_files import names_in
from rigging.errors import InvalidRequest
from rigging.filesystem import MARIN_CROSS_REGION_OVERRIDE_ENV
from rigging.text.printable import printable_line


@click.command()
@click.argument("names", type=RUN_OR_STEP, metavar="RUN|STEP|GLOB...", nargs=-1, required=True)
@click.option("--metric", "shown", type=NAME, multiple=True, metavar="NAME", help="Show this metric; repeatable.")
@click.option("--sort", type=NAME, metavar="NAME", help="Sort by a metric or a value of the config.")
@click.option("--descending", is_flag=True, help="Sort the largest first.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@prefix_option
@runs_option
@json_option
@pass_context
def table(
    context: CliContext,
    names: Sequence[str],
    shown: Sequence[str],
    sort: str | None,
    descending: bool,
    as_csv: bool,
    prefix: str | None,
    runs_at: str | None,
    as_json: bool,
) -> None:
    """Show the steps of runs, or outputs, that have metrics: the values of their configs that differ, and each metric's
    last value.

    Metrics are what a step records with `marin.metrics.log`, returns as a number or a dict of numbers, or writes as
    numbers to *.jsonl and *.csv files, TensorBoard's event files, or an offline run of W&B. GLOB is a pattern of
    output paths below the prefix, such as 'train/*'.
    """
    del context
    if as_csv and as_json:
        raise InvalidRequest("--csv and --json: choose one")
    root = storage_root(prefix)
    rows = [row for row, _ in read_rows(names, root, runs_directory(root, runs_at))]
    found = metric_table(rows, shown, sort or "", descending=descending)
    if not found.rows:
        say(f"none of {len(rows)} outputs has metrics; a step records them with marin.metrics.log(loss=...)")
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        for line in [found.columns, *map(found.cells, found.rows)]:
            writer.writerow(map(printable_line, line))
        return
    Output(as_json).rows(found.columns, [*map(found.cells, found.rows)], [*map(found.record, found.rows)])


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
    drawn = [Curve(table.label(row), curve) for row in table.rows if (curve := curves[row.path][1])[0]]
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


def read_rows(names: Sequence[str], root: str, directory: str, metric: str = "") -> list[tuple[MetricRow, Points]]:
    """Return the outputs that names stand for, with their final metrics and the curve of one metric.

    Args:
        names: Runs, steps and patterns.
        root: The storage root.
        directory: The directory of runs.
        metric: The metric.
    """
    paths = list(dict.fromkeys(path for name in names for path in _outputs(root, directory, name)))
    return _rows(_near(paths, root), root, metric)


def _outputs(root: str, directory: str, name: str) -> list[str]:
    """Return the output paths that a name stands for; of a run, those with the values that its own steps recorded."""
    from marin.recorded.reading.runs import read_events, read_info
    from marin.recorded.reading.steps import is_output

    if any(sign in name for sign in "*?["):
        above, pattern = split_word(name, root)
        if any(sign in above for sign in "*?["):
            raise InvalidRequest(f"{name!r}: only the last part of a pattern may have *, ? or [")
        matching = sorted(other for other in names_in(above) if fnmatch.fnmatchcase(other, pattern))
        return [path for path in (f"{above}/{other}" for other in matching) if is_output(path)]
    found = run_or_step(root, directory, name, say)
    if isinstance(found, str):
        return [found]
    events = read_events(directory, found)
    steps = steps_of_run(read_info(directory, found), events)
    return [step.path for step in steps if not events or is_own_output(step, None, partial(_written, step.path))]


def _written(path: str) -> float | None:
    from marin.recorded.reading.store import below, modified_at

    return modified_at(below(path, STATUS_FILE))


def _near(paths: Sequence[str], root: str) -> list[str]:
    """Return the paths in this region, after a note about others."""
    from marin.recorded.reading.store import each, is_in_another_region

    far = [path for path, is_far in zip(paths, each(is_in_another_region, paths, root), strict=True) if is_far]
    if far:
        say(
            f"{len(far)} outputs are in another region, such as {far[0]}, and are not read: run this command there, or "
            f"set {MARIN_CROSS_REGION_OVERRIDE_ENV} to the name of who pays"
        )
    return [path for path in paths if path not in far]


def _rows(paths: Sequence[str], root: str, metric: str) -> list[tuple[MetricRow, Points]]:
    from marin.recorded.reading.metrics import StoredFiles, read_metrics
    from marin.recorded.reading.runs import read_json
    from marin.recorded.reading.store import below, each

    def row(path: str) -> tuple[MetricRow, Points]:
        info = read_json(below(path, INFO_FILE))[0] or {}
        name = info.get("name")
        config = info.get("config") if info else (read_json(below(path, TARGET_CONFIG_FILE))[0] or {}).get("values")
        shown = name if isinstance(name, str) else path.removeprefix(f"{root}/")
        curves, finals = read_metrics(StoredFiles(path))
        single = ([0], [finals[metric]]) if metric in finals else ([], [])
        return MetricRow(shown, path, dict(flat(config or {})), finals), curves.get(metric, single)

    return each(row, paths, root)
