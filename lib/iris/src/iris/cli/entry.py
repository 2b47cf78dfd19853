"""The start of the `iris` command: Ctrl-C while its modules are imported ends it at once and without a traceback."""

# What `signal` stands on: that itself imports enum and collections, half of all the time until here.
import _signal  # type: ignore[import-not-found]
import sys

_FOUND = _signal.getsignal(_signal.SIGINT)
if _FOUND is _signal.default_int_handler:  # not where a shell has it ignored
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def main() -> None:
    """The entry point of the `iris` command."""
    from iris.cli.main import run

    if _FOUND is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _FOUND)
    sys.exit(run(sys.argv[1:]))
