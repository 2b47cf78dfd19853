"""`marin`: the group of all commands, and what an error looks like."""

from __future__ import annotations

import io
import logging
import traceback
from collections.abc import Sequence
from typing import Any, Final

import click

from marin.cli import exit_codes
from marin.cli.context import CliContext
from marin.cli.groups import LazyGroup
from marin.cli.output import complain, forget_stdout, say
from rigging.errors import MarinError
from rigging.interrupts import unwrapped_interrupts

# They log the tracebacks of requests that fail, of which we tell in one line.
_STORAGE_LIBRARIES: Final = ("gcsfs", "s3fs", "aiobotocore", "botocore", "google.auth")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
@click.version_option(package_name="marin", prog_name="marin")
@click.pass_obj
def cli(context: CliContext, verbose: bool) -> None:
    """Look into runs of experiments and their steps, as storage has them.

    Names: a RUN is what `marin runs` lists, or an unambiguous beginning of it. A STEP is an output path, absolute or
    below the prefix (`docs/sum-0a1b2c`), or a step's name when one output has it.
    """
    context.verbose = verbose
    if not verbose:
        for name in _STORAGE_LIBRARIES:
            logging.getLogger(name).setLevel(logging.CRITICAL)


def run(argv: Sequence[str], context: CliContext | None = None) -> int:
    """Run one command line; returns the exit code (see `marin.cli.exit_codes`).

    Args:
        argv: The words after `marin`.
        context: What the commands reach; it gets the global options.
    """
    context = CliContext() if context is None else context
    try:
        with unwrapped_interrupts():
            result: Any = cli.main(args=list(argv), prog_name="marin", obj=context, standalone_mode=False)
    except click.ClickException as error:
        words = io.StringIO()
        error.show(words)
        complain(words.getvalue())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return exit_codes.INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        # The latter is how click ends the completion of a word, and a command whose reader went away.
        if isinstance(error, SystemExit) and not error.code:
            return exit_codes.OK
        forget_stdout()
        return exit_codes.BROKEN_PIPE
    except MarinError as error:
        _tell(context, str(error))
        return exit_codes.exit_code_of(error)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _tell(context, f"{place}{error.strerror or error}")
        return exit_codes.FAILURE
    except Exception as error:
        _tell(context, f"internal error: {type(error).__name__}: {error} (run `marin -v ...` for the traceback)")
        return exit_codes.FAILURE
    return result if isinstance(result, int) else exit_codes.OK


def _tell(context: CliContext, text: str) -> None:
    if context.verbose:
        complain(traceback.format_exc())
    say(text)
