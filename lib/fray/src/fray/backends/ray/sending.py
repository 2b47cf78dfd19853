"""Pickling by Ray's own copy of cloudpickle, like Ray's calls and results.

A class sent by value is registered in the copy that sends it. Another copy would create a second class.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from ray import cloudpickle

from fray.sending import pickling
from rigging.results import pack_result

_PLAIN: Final = frozenset({int, float, bool, str, bytes, type(None)})


def dumps(value: Any, what: str) -> bytes:
    """Pickle a value, by value for modules that Ray's workers cannot import.

    Args:
        value: A callable and its arguments, or anything else.
        what: The value's name in errors.

    Raises:
        InvalidRequest: The value cannot be pickled.
    """
    return pickling.dumps(value, what, pickler=cloudpickle)


def pack_returned(value: Any) -> bytes:
    """Pack a callable's result, by value for modules that Ray's workers cannot import."""
    with sent_as_by_dumps((value,), {}):
        return pack_result(value, cloudpickle)


def sent_as_by_dumps(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Within the context, Ray pickles values of these modules like `dumps`."""
    if _PLAIN.issuperset(map(type, args)) and _PLAIN.issuperset(map(type, kwargs.values())):
        return nullcontext()
    return pickling.sent_by_value((), cloudpickle)
