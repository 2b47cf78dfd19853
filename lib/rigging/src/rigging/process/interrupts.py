"""Ctrl-C, as the interpreter hands it on."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def unwrapped_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt as itself where Python 3.11 hands it on as the cause of a RuntimeError.

    That happens to one that arrives while a class is made (in a `__set_name__`, so in the middle of an import): the
    RuntimeError reads "Error calling __set_name__ on ...", and no `except KeyboardInterrupt` sees it.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise
