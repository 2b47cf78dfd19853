"""Waiting in tests: on conditions, never for a fixed time."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

_STEP_SECONDS = 0.005


def eventually(
    condition: Callable[[], Found], what: str, timeout: float = 60.0, instead: Callable[[], object] | None = None
) -> Found:
    """Wait until the condition holds; returns what it found, which is true.

    Args:
        condition: Asked again and again; it holds when what it returns is true.
        what: What is awaited, in words: "the worker is back".
        timeout: Seconds.
        instead: Shows how things are when the time is over; None: what the condition returned last.

    Raises:
        AssertionError: It did not hold in time; the message is `what`, and what was there instead.
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
    """Let the loop run until the condition holds; returns what it found, which is true.

    Args:
        condition: Asked again and again; it holds when what it returns is true.
        what: What is awaited, in words.
        timeout: Seconds, by the real clock: tests may have put forward the loop's.

    Raises:
        AssertionError: It did not hold in time; the message is `what`.
    """
    end = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout:g} s: {what}")
        await asyncio.sleep(_STEP_SECONDS / 5)
    return found
