"""Concurrent calls that wait for storage or a server."""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(fn: Callable[[T], R], items: Collection[T], most: int = 64) -> list[R]:
    """Return `fn(item)` for each item, in order. A single item is processed in this thread.

    Args:
        fn: Called in separate threads.
        items: Its arguments.
        most: Maximum number of concurrent calls.

    Raises:
        Exception: Raised by the first failing item, after all started calls have ended.
    """
    if len(items) < 2:
        return [fn(item) for item in items]
    with ThreadPoolExecutor(min(most, len(items)), thread_name_prefix="marin-map") as pool:
        return list(pool.map(fn, items))
