"""Exceptions in parts: pickle cannot make one whole whose constructor takes other arguments than it keeps."""

from typing import NamedTuple


class ExceptionParts(NamedTuple):
    """What an exception is made of.

    Args:
        native: The nearest class of it that is Python's own; `args` and `state` are what that class keeps.
    """

    kind: type[BaseException]
    native: type[BaseException]
    args: tuple[object, ...]
    state: dict[str, object] | None


def take_apart(error: BaseException) -> ExceptionParts:
    """The parts of which `put_together` makes it again."""
    kind = type(error)
    native = next(base for base in kind.__mro__ if base.__module__ == "builtins" and issubclass(base, BaseException))
    reduced = native.__reduce__(error)
    assert isinstance(reduced, tuple)
    return ExceptionParts(kind, native, reduced[1], reduced[2] if len(reduced) > 2 else None)


def put_together(
    kind: type[BaseException], native: type[BaseException], args: tuple[object, ...], state: dict[str, object] | None
) -> BaseException:
    """Make an exception without calling its own constructor."""
    error = native.__new__(kind, *args)
    # Built-in exceptions keep more than `args`; they take it from their own constructor.
    native.__init__(error, *args)
    if state:
        error.__setstate__(state)
    return error
