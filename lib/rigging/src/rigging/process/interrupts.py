"""KeyboardInterrupt, where the interpreter wraps it."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def unwrapped_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt itself where Python 3.11 makes it the cause of a RuntimeError.

    That happens to an interrupt during the creation of a class (in a `__set_name__`, so in the middle of an import):
    the RuntimeError reads "Error calling __set_name__ on ...", and no `except KeyboardInterrupt` catches it.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise
