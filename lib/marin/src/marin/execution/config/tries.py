"""The retries and timeout of a step: set by its author, and not part of its version."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rigging.errors import InvalidRequest

MOST_RETRIES = 1000


@dataclass(frozen=True, slots=True)
class Tries:
    """The retries and timeout of a step.

    Attributes:
        retries: Number of retries after a failure.
        retry_delay: Seconds between the end of an attempt and the next one.
        timeout: Timeout of the function in one attempt, in seconds; None for no limit.
    """

    retries: int = 0
    retry_delay: float = 0.0
    timeout: float | None = None


ONCE = Tries()


def check_tries(what: str, retries: object, retry_delay: object, timeout: object) -> None:
    """Validate the `retries=`, `retry_delay=` and `timeout=` of a step or a `remote()` function. None means not set.

    Args:
        what: The start of the error, naming the owner of the values.
        retries: A whole number from 0.
        retry_delay: Seconds, at least 0.
        timeout: Seconds, above 0.

    Raises:
        InvalidRequest: A value is wrong. The message begins with `what`.
    """
    if retries is None and retry_delay is None and timeout is None:
        return
    if retries is not None and (type(retries) is not int or not 0 <= retries <= MOST_RETRIES):
        raise InvalidRequest(f"{what}: retries={retries!r} must be a whole number of 0 to {MOST_RETRIES}, or None")
    if retry_delay is not None and not (_is_number(retry_delay) and retry_delay >= 0):  # type: ignore[operator]
        raise InvalidRequest(f"{what}: retry_delay={retry_delay!r} must be a number of seconds of at least 0, or None")
    if timeout is not None and not (_is_number(timeout) and timeout > 0):  # type: ignore[operator]
        raise InvalidRequest(f"{what}: timeout={timeout!r} must be a number of seconds above 0, or None for no limit")


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
