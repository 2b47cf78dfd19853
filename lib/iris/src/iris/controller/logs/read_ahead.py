"""Fetches pieces of logs from the remote state before they are asked for, a few at a time."""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from iris.controller.logs.pieces import Fetch

AHEAD: Final = 4
"""Pieces of one log that are expected at a time; with 50 ms an answer of the storage that is three times as fast."""
_MOST_KEPT: Final = 16


class ReadAhead:
    """Fetches objects, those that were announced before they are asked for. Used by one thread.

    What is announced when many are fetched or wait to be taken is fetched when it is asked for.

    Args:
        fetch: Gives an object by its name; called in several threads at once.
        width: Objects that are fetched at a time.
        most: Objects that were fetched, or are being fetched, and not asked for yet.
    """

    def __init__(self, fetch: Fetch, width: int = AHEAD, most: int = _MOST_KEPT) -> None:
        self._fetch = fetch
        self._most = most
        self._coming: dict[str, Future[bytes | None]] = {}
        self._threads = ThreadPoolExecutor(width, thread_name_prefix="log-pieces")

    def expect(self, names: Iterable[str]) -> None:
        """Begin to fetch objects that will be asked for soon, in this order."""
        for name in names:
            if name not in self._coming and len(self._coming) < self._most:
                self._coming[name] = self._threads.submit(self._fetch, name)

    def get(self, name: str) -> bytes | None:
        """The content of an object; None: there is none. Waits for it. Raises what `fetch` raises."""
        coming = self._coming.pop(name, None)
        return self._fetch(name) if coming is None else coming.result()

    def close(self) -> None:
        """Fetch nothing more; does not wait for what is being fetched."""
        self._threads.shutdown(wait=False, cancel_futures=True)
