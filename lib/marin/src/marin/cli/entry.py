"""Start of the `marin` command. Ctrl-C during imports ends it at once, without a traceback."""

import signal
import sys


def main() -> None:
    """The entry point of the `marin` command."""
    found = signal.getsignal(signal.SIGINT)
    is_default = found is signal.default_int_handler  # not where a shell has it ignored
    if is_default:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from marin.cli.main import run

    if is_default:
        signal.signal(signal.SIGINT, found)
    sys.exit(run(sys.argv[1:]))
