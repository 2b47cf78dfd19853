"""Call Hugging Face, with retries when it is busy. `datasets` is imported on use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from rigging.timing import ExponentialBackoff, retry_with_backoff

logger = logging.getLogger(__name__)

T = TypeVar("T")

_TOO_MANY_REQUESTS: Final = 429
_FIRST_SERVER_ERROR: Final = 500
#: What clients write into errors that have no status.
_PASSING_WORDS: Final = (
    "too many requests",
    "rate limit",
    "timed out",
    "timeout",
    "connection reset",
    "temporarily unavailable",
)
#: Errors of `requests` and `httpx`, by name: these libraries are not imported for it.
_PASSING_ERRORS: Final = frozenset({"ConnectionError", "ConnectError", "Timeout", "TimeoutException", "TransportError"})


def is_passing(error: BaseException) -> bool:
    """Return whether the same call may succeed later: rate limits, server errors, timeouts and broken connections."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is None:
        status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return status == _TOO_MANY_REQUESTS or status >= _FIRST_SERVER_ERROR
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    if any(kind.__name__ in _PASSING_ERRORS for kind in type(error).__mro__):
        return True
    return any(word in str(error).lower() for word in _PASSING_WORDS)


def call_with_hf_backoff(
    fn: Callable[[], T], *, context: str, max_attempts: int = 6, initial_delay: float = 2.0, max_delay: float = 60.0
) -> T:
    """Call `fn`, retrying transient errors, and return its result.

    Args:
        fn: The function to call.
        context: The subject of log messages.
        max_attempts: Maximum number of calls.
        initial_delay: First delay in seconds. It doubles with every retry.
        max_delay: Longest delay in seconds.
    """
    return retry_with_backoff(
        fn,
        retryable=is_passing,
        max_attempts=max_attempts,
        backoff=ExponentialBackoff(min(initial_delay, max_delay), max_delay, factor=2.0, jitter=0.5),
        on_retry=lambda error, attempt: logger.warning(
            "Hugging Face, %s: attempt %d of %d failed: %s", context, attempt + 1, max_attempts, error
        ),
        operation=context,
    )


def load_dataset_with_backoff(
    *,
    context: str,
    max_attempts: int = 6,
    initial_delay: float = 2.0,
    max_delay: float = 120.0,
    **dataset_kwargs: Any,
) -> Any:
    """Return `datasets.load_dataset(**dataset_kwargs)`, retrying on rate limits, 5xx, timeouts and lost connections.

    Args:
        context: The subject of log messages.
        max_attempts: Maximum number of calls.
        initial_delay: First delay in seconds. It doubles with every retry.
        max_delay: Longest delay in seconds.
        **dataset_kwargs: Arguments of `load_dataset`.
    """
    import datasets

    return call_with_hf_backoff(
        lambda: datasets.load_dataset(**dataset_kwargs),
        context=context,
        max_attempts=max_attempts,
        initial_delay=initial_delay,
        max_delay=max_delay,
    )
