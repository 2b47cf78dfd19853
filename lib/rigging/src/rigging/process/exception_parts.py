"""Split exceptions into parts that pickle can restore, whatever arguments their constructors take."""

from collections.abc import Callable
from typing import NamedTuple


class ExceptionParts(NamedTuple):
    """The parts needed to restore an exception.

    Args:
        native: The exception's nearest builtin base class. `args` and `state` belong to that class.
    """

    kind: type[BaseException]
    native: type[BaseException]
    args: tuple[object, ...]
    state: dict[str, object] | None


def take_apart(error: BaseException, is_remade: Callable[[BaseException], bool]) -> ExceptionParts:
    """Return the parts from which `put_together` restores an exception.

    Args:
        error: The exception.
        is_remade: Returns whether pickle restores a member of a group faithfully. Other members are split, too.
    """
    kind = type(error)
    native = next(base for base in kind.__mro__ if base.__module__ == "builtins" and issubclass(base, BaseException))
    reduced = native.__reduce__(error)
    assert isinstance(reduced, tuple)
    args: tuple[object, ...] = reduced[1]
    if isinstance(error, BaseExceptionGroup):
        members = [member if is_remade(member) else take_apart(member, is_remade) for member in error.exceptions]
        args = (error.message, members)
    return ExceptionParts(kind, native, args, reduced[2] if len(reduced) > 2 else None)


def put_together(
    kind: type[BaseException], native: type[BaseException], args: tuple[object, ...], state: dict[str, object] | None
) -> BaseException:
    """Restore an exception without calling its own constructor.

    Args:
        kind: Its class.
        native: As in `ExceptionParts`.
        args: As in `ExceptionParts`. Members of a group may be in parts.
        state: As in `ExceptionParts`.
    """
    if issubclass(native, BaseExceptionGroup):
        message, members = args
        assert isinstance(members, list)
        args = (message, [item if isinstance(item, BaseException) else put_together(*item) for item in members])
    error = native.__new__(kind, *args)
    # Built-in exceptions keep more than `args`; they take it from their own constructor.
    native.__init__(error, *args)
    if state:
        error.__setstate__(state)
    return error


def title_of(error: BaseException) -> str:
    """Return an exception's type and text, even if its class cannot format itself."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # its class's own `__str__` may fail
        return type(error).__name__
