"""Type checks for arguments of public calls. Errors name the argument and the value."""

from collections.abc import Iterable
from typing import Any, Final

from rigging.errors import InvalidRequest

_SHOWN: Final = 80


def check_type(value: object, kinds: type | tuple[type, ...], what: str, allowed: str) -> None:
    """Raise InvalidRequest unless `value` has one of these types.

    Args:
        value: The argument.
        kinds: The allowed types. A bool does not count as a number.
        what: The argument's name, for the error.
        allowed: The allowed values, for the error, e.g. "a number of cores".
    """
    wanted = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise InvalidRequest(f"{what} must be {allowed}, not {_shown(value)}")


def check_text(value: object, what: str, *, secret: bool = False) -> None:
    """Raise InvalidRequest unless `value` is text that can be sent. The error omits secret values.

    Args:
        value: The argument.
        what: The argument's name, for the error.
        secret: Whether the error must omit the value.
    """
    if not isinstance(value, str):
        raise InvalidRequest(f"{what} must be text, not {type(value).__name__ if secret else _shown(value)}")
    # A lone surrogate stands for a byte that is not UTF-8, as in a name from `os.listdir`.
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        name = what if secret else f"{what} {_shown(value)}"
        raise InvalidRequest(f"{name} cannot be sent: it has a lone surrogate (from a file name that is not UTF-8?)")


def as_list(values: Iterable[Any], what: str, of: str = "text") -> tuple[Any, ...]:
    """Return the values of a list. Raise InvalidRequest for anything else, including a single string.

    Args:
        values: The argument. An iterator is consumed.
        what: The argument's name, for the error.
        of: The kind of the elements, for the error.
    """
    if isinstance(values, str):
        example = f"{what} must be a list, e.g. [{values!r}]"
        raise InvalidRequest(example if of == "text" else _no_list(values, what, of))
    try:
        return tuple(values)
    except TypeError:
        raise InvalidRequest(_no_list(values, what, of)) from None


def as_texts(values: Iterable[str], what: str) -> tuple[str, ...]:
    """Return the strings of a list. Raise InvalidRequest like `as_list` and `check_text`."""
    texts = as_list(values, what)
    for place, text in enumerate(texts):
        check_text(text, f"{what}[{place}]")
    return texts


def _no_list(values: object, what: str, of: str) -> str:
    return f"{what} must be a list of {of}, not {_shown(values)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
