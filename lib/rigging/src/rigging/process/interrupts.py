"""Unwrap a KeyboardInterrupt that the interpreter has wrapped."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def unwrapped_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt itself where Python 3.11 makes it the cause of a RuntimeError.

    This happens if the interrupt hits a `__set_name__`, as a class is created during an import. The RuntimeError reads
    "Error calling __set_name__ on ...", and no `except KeyboardInterrupt` catches it.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise
