"""`iris`: global options, the nouns, and what an error looks like."""

import importlib
import io
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from iris.cli import exit_codes
from iris.cli.context import CliContext
from iris.cli.groups import SuggestingGroup
from iris.cli.output import complain, forget_stdout, say, settle_stdout, show_traceback
from iris.cli.params import NAME
from rigging.errors import MarinError
from rigging.interrupts import unwrapped_interrupts

# Module, attribute and one line of help of each noun; imported only when it is used.
_NOUNS: Final = {
    "cluster": ("iris.cli.cluster.commands", "cluster", "Start, look at and stop clusters."),
    "user": ("iris.cli.user", "user", "Budgets of users, and the tokens by which a cluster knows them."),
    "task": ("iris.cli.task.commands", "task", "Watch what tasks use."),
    "query": ("iris.cli.query", "query", "Ask the controller's database in SQL."),
    "worker": ("iris.cli.worker.commands", "worker", "Be a worker of a cluster; let hosts in and out."),
    "job": ("iris.cli.job.commands", "job", "Run commands as jobs; list, follow and stop them."),
}


class LazyGroup(SuggestingGroup):
    """The nouns, imported one by one as they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(_NOUNS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in _NOUNS:
            return None
        module, attribute, _ = _NOUNS[name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in sorted(_NOUNS.items())])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--cluster", type=NAME, metavar="NAME", help="Cluster to use: 'local', or the name of a cluster config.")
@click.option("--config", type=NAME, metavar="FILE", help="Cluster config file to use.")
@click.option("--controller-url", type=NAME, metavar="HOST:PORT", help="Controller to use.")
@click.option("--token-file", type=NAME, metavar="FILE", help="Your token for it.  [default: IRIS_TOKEN_FILE]")
@click.option("--insecure", is_flag=True, help="Send the token unencrypted, on a network that you trust.")
@click.option("-v", "--verbose", is_flag=True, help="Say more, and show tracebacks.")
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

    Without --cluster, --config or --controller-url this is the cluster of the job that calls, or else your own local
    cluster on this machine, which starts by itself and leaves when it is idle.
    """
    context.cluster, context.config, context.controller_url = cluster, config, controller_url
    context.token_file, context.insecure = token_file, insecure
    context.verbose = verbose or traceback


def run(argv: Sequence[str], context: CliContext | None = None, program: click.Command = cli) -> int:
    """Run one command line; returns the exit code (see `iris.cli.exit_codes`).

    Args:
        argv: The words after `iris`.
        context: What the commands reach; it gets the global options.
        program: The command that is given the words.
    """
    context = CliContext() if context is None else context
    try:
        with unwrapped_interrupts():
            result: Any = program.main(args=list(argv), prog_name="iris", obj=context, standalone_mode=False)
    except click.ClickException as error:
        words = io.StringIO()
        error.show(words)
        complain(words.getvalue())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return exit_codes.INTERRUPTED
    except (BrokenPipeError, SystemExit):  # the latter is how click ends a command whose reader went away
        forget_stdout()
        return exit_codes.BROKEN_PIPE
    except MarinError as error:
        _explain(error, context.verbose)
        return exit_codes.exit_code_of(error)
    except OSError as error:
        say(_description(error))
        settle_stdout()
        if context.verbose:
            raise
        return exit_codes.FAILURE
    except Exception as error:
        say(f"internal error: {type(error).__name__}: {error} (run `iris -v ...` for the traceback)")
        if context.verbose:
            show_traceback(error)
        return exit_codes.FAILURE
    return result if isinstance(result, int) else exit_codes.OK


def _description(error: OSError) -> str:
    """Return what the system refused."""
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"


def _explain(error: MarinError, verbose: bool) -> None:
    if verbose:
        show_traceback(error)
    say(str(error))


def main() -> None:
    """The entry point of the `iris` command."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
