"""Calls that wait for storage or a server, many at once."""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(fn: Callable[[T], R], items: Collection[T], most: int = 64) -> list[R]:
    """Return what `fn` returns for each item, in their order; a single one is called in this thread.

    Args:
        fn: Called in threads of its own.
        items: Its arguments.
        most: The most calls at a time.

    Raises:
        Exception: What the first of the items that fails has raised, once all that had begun have ended.
    """
    if len(items) < 2:
        return [fn(item) for item in items]
    with ThreadPoolExecutor(min(most, len(items)), thread_name_prefix="marin-map") as pool:
        return list(pool.map(fn, items))
