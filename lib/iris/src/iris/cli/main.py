"""`iris`: the global options, the nouns, and the printing of errors."""

import sys
from collections.abc import Sequence
from typing import Final

import click

from iris.cli.context import CliContext
from iris.cli.params import CLUSTER, NAME
from rigging.cli.groups import LazyGroup
from rigging.cli.running import run_program

# Module, attribute and one line of help of each noun; imported only when it is used.
_NOUNS: Final = {
    "cluster": ("iris.cli.cluster.commands", "cluster", "Start, inspect and stop clusters."),
    "user": ("iris.cli.user", "user", "Set users' budgets and create their tokens."),
    "task": ("iris.cli.task.commands", "task", "Watch tasks, and run commands inside them."),
    "process": ("iris.cli.process", "process", "Look at the processes of tasks, workers and the controller."),
    "doctor": ("iris.cli.doctor", "doctor", "Check this machine and the cluster, with remedies."),
    "completion": ("iris.cli.completion", "completion", "Print a shell's completion script."),
    "usage": ("iris.cli.ledger", "usage", "Show what cores and chips were used for, by user, job or group."),
    "query": ("iris.cli.query", "query", "Query the controller's database in SQL."),
    "worker": ("iris.cli.worker.commands", "worker", "Run a worker; admit and revoke hosts."),
    "job": ("iris.cli.job.commands", "job", "Run commands as jobs; list, follow and stop them."),
}


@click.group(cls=LazyGroup, places=_NOUNS)
@click.option(
    "--cluster", type=CLUSTER, metavar="NAME", help="Cluster to use: 'local', or the name of a cluster config."
)
@click.option("--config", type=NAME, metavar="FILE", help="Cluster config file to use.")
@click.option("--controller-url", type=NAME, metavar="HOST:PORT", help="Controller to use.")
@click.option("--token-file", type=NAME, metavar="FILE", help="File with your token.  [default: IRIS_TOKEN_FILE]")
@click.option("--insecure", is_flag=True, help="Send the token unencrypted, on a network that you trust.")
@click.option("-v", "--verbose", is_flag=True, help="Print more, and show tracebacks.")
@click.option("--traceback", is_flag=True, help="Show tracebacks.")
@click.version_option(package_name="marin-iris", prog_name="iris")
@click.pass_obj
def cli(
    context: CliContext,
    cluster: str | None,
    config: str | None,
    controller_url: str | None,
    token_file: str | None,
    insecure: bool,
    verbose: bool,
    traceback: bool,
) -> None:
    """Run jobs on a cluster.

    The default cluster is that of the calling job, or else your own local cluster on this machine, which starts by
    itself and exits when idle. Choose another with --cluster, --config or --controller-url.
    """
    context.cluster, context.config, context.controller_url = cluster, config, controller_url
    context.token_file, context.insecure = token_file, insecure
    context.verbose = verbose or traceback


def run(argv: Sequence[str], context: CliContext | None = None, program: click.Command = cli) -> int:
    """Run one command line and return the exit code (see `iris.cli.exit_codes`).

    Args:
        argv: The arguments after `iris`.
        context: The context of the commands, which receives the global options.
        program: The command to run.
    """
    return run_program(program, "iris", argv, CliContext() if context is None else context)


def main() -> None:
    """The entry point of the `iris` command."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
