"""Wait for conditions in tests."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

_STEP_SECONDS = 0.005


def eventually(
    condition: Callable[[], Found], what: str, timeout: float = 60.0, instead: Callable[[], object] | None = None
) -> Found:
    """Wait until the condition holds and return its true value.

    Args:
        condition: Called repeatedly; it holds once it returns a true value.
        what: What the test waits for, in words: "the worker is back".
        timeout: Seconds.
        instead: Describes the state at the timeout; None for the condition's last value.

    Raises:
        AssertionError: The condition did not hold in time. The message is `what` and the state at that time.
    """
    end = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > end:
            if instead is not None:
                raise AssertionError(f"not within {timeout:g} s: {what}, but {instead()!r}")
            shown = "" if found is None or found is False else f", but {found!r}"
            raise AssertionError(f"not within {timeout:g} s: {what}{shown}")
        time.sleep(_STEP_SECONDS)
    return found


async def eventually_async(condition: Callable[[], Found], what: str, timeout: float = 60.0) -> Found:
    """Run the event loop until the condition holds and return its true value.

    Args:
        condition: Called repeatedly; it holds once it returns a true value.
        what: What the test waits for, in words.
        timeout: Seconds of real time: tests may advance the loop's clock.

    Raises:
        AssertionError: The condition did not hold in time. The message is `what`.
    """
    end = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout:g} s: {what}")
        await asyncio.sleep(_STEP_SECONDS / 5)
    return found
