"""`marin diff`: the differences between two runs."""

from __future__ import annotations

import click

from marin.cli import exit_codes
from marin.cli.context import CliContext, pass_context
from marin.cli.options import RUN, json_option, prefix_option, runs_option
from marin.cli.output import echo_json, echo_painted, say
from marin.execution.record.code_record import read_code_texts
from marin.recorded.deciding.code_diff import code_diff_lines, content_diff_lines
from marin.recorded.deciding.run_names import find_run
from marin.recorded.reading.places import runs_directory, storage_root


@click.command()
@click.argument("before", type=RUN, metavar="RUN")
@click.argument("after", type=RUN, metavar="RUN")
@click.option("--exit-code", is_flag=True, help="Exit with 8 if steps differ.")
@prefix_option
@runs_option
@json_option
@pass_context
def diff(
    context: CliContext,
    before: str,
    after: str,
    exit_code: bool,
    prefix: str | None,
    runs_at: str | None,
    as_json: bool,
) -> int:
    """Compare two runs: added and removed steps, versioned fields, other values, and code."""
    from marin.recorded.deciding.run_diff import diff_lines, diff_runs, with_own_code
    from marin.recorded.reading.runs import list_runs, read_info, summaries

    directory = runs_directory(storage_root(prefix), runs_at)
    runs = list_runs(directory)
    one, other = find_run(runs, before, directory, say), find_run(runs, after, directory, say)
    codes = [summary.code for summary in summaries(directory, [one, other], context.host)]
    infos = [with_own_code(read_info(directory, run), code) for run, code in zip((one, other), codes, strict=True)]
    found = diff_runs(*infos)
    code = code_diff_lines(*codes, *(read_code_texts(directory, code) for code in codes))
    code += content_diff_lines(*(read_code_texts(directory, code, "contents") for code in codes))
    if one.stem == other.stem:
        say(f"both runs have the same steps and values ({one.stem}.json)")
    if as_json:
        echo_json({"before": one.id, "after": other.id, **found.to_json(), "code": code})
    else:
        echo_painted([*diff_lines(found), *((line, None) for line in code)])
    return exit_codes.FOUND if exit_code and found.differs else exit_codes.OK
