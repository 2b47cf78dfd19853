"""The start of the `iris` command. Ctrl-C during imports ends the command at once, without a traceback."""

# What `signal` stands on: that itself imports enum and collections, half of all the time until here.
import _signal  # type: ignore[import-not-found]
import sys

_FOUND = _signal.getsignal(_signal.SIGINT)
if _FOUND is _signal.default_int_handler:  # not where a shell has it ignored
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def _fill_closed_streams() -> None:
    """Open standard streams that the caller closed (`>&-`): otherwise the next socket would become stdout."""
    import os

    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def main() -> None:
    """The entry point of the `iris` command."""
    _fill_closed_streams()
    from iris.cli.main import run

    if _FOUND is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _FOUND)
    sys.exit(run(sys.argv[1:]))
