"""Run a command; report its error in one sentence and exit with a documented code."""

import io
from collections.abc import Sequence
from typing import Any, Protocol

import click

from rigging import exit_codes
from rigging.cli.output import complain, forget_stdout, settle_stdout, show_traceback
from rigging.errors import MarinError
from rigging.process.interrupts import unwrapped_interrupts


class Context(Protocol):
    """The context passed to commands.

    Attributes:
        verbose: Whether to show tracebacks. An option of the program may set it.
    """

    verbose: bool


def run_program(program: click.Command, name: str, argv: Sequence[str], context: Context) -> int:
    """Run one command line and return the exit code (see `rigging.exit_codes`). Errors are printed on stderr.

    Args:
        program: The command to run.
        name: Its name on the command line.
        argv: The arguments after the name.
        context: The context passed to the command.
    """
    try:
        with unwrapped_interrupts():
            result: Any = program.main(args=list(argv), prog_name=name, obj=context, standalone_mode=False)
    except click.ClickException as error:
        words = io.StringIO()
        error.show(words)
        complain(words.getvalue())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        complain(f"{name}: interrupted\n")
        return exit_codes.INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        # The latter is how click ends the completion of a word, and a command whose reader went away.
        if isinstance(error, SystemExit) and not error.code:
            return exit_codes.OK
        forget_stdout()
        return exit_codes.BROKEN_PIPE
    except Exception as error:
        if context.verbose:
            show_traceback(error)
        complain(f"{name}: {_sentence(error, name)}\n")
        settle_stdout()
        return exit_codes.exit_code_of(error) if isinstance(error, MarinError) else exit_codes.FAILURE
    return result if isinstance(result, int) else exit_codes.OK


def _sentence(error: Exception, name: str) -> str:
    if isinstance(error, MarinError):
        return str(error)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}"
    return f"internal error: {type(error).__name__}: {error} (run `{name} -v ...` for the traceback)"
