"""The start of the `iris` command: Ctrl-C while its modules are imported ends it at once and without a traceback."""

import signal
import sys

_FOUND = signal.getsignal(signal.SIGINT)
if _FOUND is signal.default_int_handler:  # not where a shell has it ignored
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """The entry point of the `iris` command."""
    from iris.cli.main import run

    if _FOUND is signal.default_int_handler:
        signal.signal(signal.SIGINT, _FOUND)
    sys.exit(run(sys.argv[1:]))
