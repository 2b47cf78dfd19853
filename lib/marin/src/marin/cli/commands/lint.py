"""`marin lint`: values in a script's steps that are not versioned, or that name a region."""

from __future__ import annotations

import click

from marin.cli import exit_codes
from marin.cli.context import CliContext, pass_context
from marin.cli.options import json_option
from marin.cli.output import Output, say


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("script", type=click.STRING)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
@click.option(
    "--ignore", "ignored", multiple=True, metavar="GLOB", help="Skip matching fields, or STEP:FIELD. Repeatable."
)
@json_option
@pass_context
def lint(context: CliContext, script: str, arguments: tuple[str, ...], ignored: tuple[str, ...], as_json: bool) -> int:
    """Find values in the steps of SCRIPT that are neither versioned nor inputs, and values bound to one region.

    SCRIPT is a path or the dotted name of a module; ARGUMENTS are passed to it. The module is loaded, but no step runs
    and no storage is read. Options of this command go before SCRIPT.
    """
    del context
    from marin.cli.deciding.lint import lint_steps
    from marin.cli.reading.script import steps_of_script

    steps = steps_of_script(script, arguments)
    found = lint_steps(steps, ignored)
    rows = [[item.rule, item.step, item.field, item.value] for item in found]
    # The advice on plain values is the same for all.
    notes = ["" if item.rule == "unversioned" else item.advice for item in found]
    Output(as_json).rows(("rule", "step", "field", "value"), rows, [item.to_json() for item in found], notes)
    if not steps:
        say(f"{script} passes no steps to executor_main")
    say(f"{len(found)} finding(s) in {len(steps)} step(s)")
    return exit_codes.FOUND if found else exit_codes.OK
