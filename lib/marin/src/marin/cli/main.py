"""`marin`: the command group, and how errors are printed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import click

from marin.cli.context import CliContext
from rigging.cli.groups import LazyGroup
from rigging.cli.running import run_program

# Module, attribute and one line of help of each command.
COMMANDS: Final = {
    "runs": ("marin.cli.commands.runs", "runs", "List runs, newest first."),
    "tag": ("marin.cli.commands.runs", "tag", "Tag a run, or give it a note."),
    "show": ("marin.cli.commands.show", "show", "Show a run, or a step's output: config, version, status, files."),
    "usage": ("marin.cli.commands.usage", "usage", "Show what a run's jobs used cores and chips for."),
    "table": ("marin.cli.commands.table", "table", "Show steps' metrics beside the values that differ."),
    "plot": ("marin.cli.commands.table", "plot", "Draw the curves of a metric, here or as SVG."),
    "logs": ("marin.cli.commands.logs", "logs", "Print a step's log and its error; -f follows it."),
    "graph": ("marin.cli.commands.graph", "graph", "Show the steps of a run as a tree, or draw them."),
    "doctor": ("marin.cli.commands.doctor", "doctor", "Check this machine and its storage, with remedies."),
    "diff": ("marin.cli.commands.diff", "diff", "Compare two runs: steps, values, code."),
    "attest": ("marin.cli.commands.attest", "attest", "Record the provenance of a run's outputs, with digests."),
    "verify": ("marin.cli.commands.verify", "verify", "Rerun attested steps and compare their outputs."),
    "browser": ("marin.cli.commands.browser", "browser", "Serve pages with runs, steps, logs and files."),
    "completion": ("marin.cli.commands.completion", "completion", "Print a shell's completion script."),
    "locks": ("marin.cli.commands.locks", "locks", "List leases of steps; clear abandoned ones."),
    "rm": ("marin.cli.commands.rm", "rm", "Remove a run: its records, and its unshared outputs."),
    "gc": ("marin.cli.commands.gc", "gc", "List outputs that no run refers to; --delete removes them."),
    "init": ("marin.cli.commands.init", "init", "Create a project that runs immediately."),
    "lint": (
        "marin.cli.commands.lint",
        "lint",
        "Find values in a script's steps that are not versioned, or name a region.",
    ),
}

# They log the tracebacks of requests that fail, of which we tell in one line.
_STORAGE_LIBRARIES: Final = ("gcsfs", "s3fs", "aiobotocore", "botocore", "google.auth")


@click.group(cls=LazyGroup, places=COMMANDS)
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
@click.version_option(package_name="marin", prog_name="marin")
@click.pass_obj
def cli(context: CliContext, verbose: bool) -> None:
    """Inspect recorded runs of experiments and their steps.

    RUN is a name from `marin runs`, or the beginning of one. STEP is an output path, absolute or below the
    prefix (`docs/sum-0a1b2c`), or the name of a step with exactly one output.
    """
    context.verbose = verbose
    if not verbose:
        for name in _STORAGE_LIBRARIES:
            logging.getLogger(name).setLevel(logging.CRITICAL)


def run(argv: Sequence[str], context: CliContext | None = None) -> int:
    """Run one command line and return the exit code (see `marin.cli.exit_codes`).

    Args:
        argv: The arguments after `marin`.
        context: The context of the commands. It receives the global options.
    """
    return run_program(cli, "marin", argv, CliContext() if context is None else context)
