"""Ctrl-C in the terminal of a cluster's process: the first ends the process gracefully, the second exits at once."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from rigging.exit_codes import INTERRUPTED


def stop_on_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, still: Callable[[], str]) -> None:
    """Set an event at SIGTERM or Ctrl-C; exit at once at a further Ctrl-C.

    Args:
        loop: The loop of the process.
        stop: The event that ends the process gracefully.
        still: Returns a description of the processes that continue.
    """

    def interrupted() -> None:
        if stop.is_set():
            leave_at_once(still())
        _say("stopping; Ctrl-C again leaves at once")
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, interrupted)


@contextlib.contextmanager
def leaving_at_interrupt(still: str) -> Iterator[None]:
    """Context manager: Ctrl-C exits at once and names the processes that continue."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        del number, frame
        leave_at_once(still)

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def leave_at_once(still: str) -> NoReturn:
    """End this process without cleanup.

    Args:
        still: A description of the processes that continue.
    """
    _say(f"left at once: {still}")
    os._exit(INTERRUPTED)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"iris: {text}", file=sys.stderr, flush=True)
