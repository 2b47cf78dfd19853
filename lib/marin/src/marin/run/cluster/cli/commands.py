"""The command line of `python -m marin.run.cluster`, for the files and operation of Ray clusters."""

import sys
from collections.abc import Sequence
from typing import Final

import click

from marin.run.cluster.cli.dashboard import dashboard
from marin.run.cluster.cli.generate import generate
from marin.run.cluster.cli.jobs import jobs, restart, stop_job
from marin.run.cluster.cli.operate import (
    add_worker,
    down,
    execute,
    list_clusters,
    monitor,
    ssh,
    status,
    submit,
    up,
    update,
)
from rigging.errors import MarinError
from rigging.exit_codes import exit_code_of
from rigging.process.interrupts import unwrapped_interrupts

_HELP: Final = "Ray clusters on Google Cloud: their files, and their operation."


@click.group(
    "cluster",
    help=_HELP,
    context_settings={
        "token_normalize_func": lambda text: text.replace("_", "-"),
        "help_option_names": ["-h", "--help"],
    },
)
def command_line() -> None:
    """The group of all commands."""


for each in (
    add_worker,
    dashboard,
    down,
    execute,
    generate,
    jobs,
    list_clusters,
    monitor,
    restart,
    ssh,
    status,
    stop_job,
    submit,
    up,
    update,
):
    command_line.add_command(each)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code."""
    try:
        with unwrapped_interrupts():
            code = command_line.main(argv, "python -m marin.run.cluster", standalone_mode=False)
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except MarinError as error:
        sys.stderr.write(f"cluster: {error}\n")
        return exit_code_of(error)
    return code if isinstance(code, int) else 0
