"""A connection with a fake controller."""

from collections.abc import Callable, Iterator
from typing import Any

from iris.client.connection.connection import Connection


class PlayedConnection:
    """A connection whose calls have the test's answers: a reply, an error, or a function of the request.

    Attributes:
        asked: The name and the request of each call. options: The time limit of each call, and whether it may be
            retried.
        events: The events of streams: "answer", "reset", "pause", "cancel".
    """

    timeout = 12.0
    metadata = (("k", "v"),)
    lends = False
    address = "h:1"
    ask = Connection.ask
    stream = Connection.stream

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []
        self.options: list[tuple[float | None, bool]] = []
        self.events: list[str] = []
        self.closed = False
        self.jobs = self.cluster = self.access = self.endpoints = self.clients = self
        self._retry = True

    @property
    def requests(self) -> list[Any]:
        """The requests, without the names of calls."""
        return [request for _, request in self.asked]

    def current(self) -> "PlayedConnection":
        return self

    def run(self, call: Callable[["PlayedConnection"], Any], *, retry: bool = True) -> Any:
        self._retry = retry
        return call(self)

    def close(self) -> None:
        self.closed = True

    def note_answer(self) -> None:
        self.events.append("answer")

    def retry_deadline(self) -> "PlayedConnection":
        return self

    def reset(self) -> None:
        self.events.append("reset")

    def pause(self, error: Exception) -> None:
        self.events.append("pause")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def answer(request: Any, *, metadata: Any, timeout: float | None = None) -> Any:
            assert metadata == self.metadata
            self.asked.append((name, request))
            self.options.append((timeout, self._retry))
            found = self.answers[name]
            if isinstance(found, Exception):
                raise found
            return found(request) if callable(found) else found

        return answer

    def streams(self, *streams: list[Any]) -> Callable[[Any], "PlayedStream"]:
        """Return an answer: the n-th call gets the n-th stream, which fails at an error in it."""
        left = list(streams)
        return lambda request: PlayedStream(left.pop(0), self.events)


class PlayedStream:
    """The replies of one streaming call."""

    def __init__(self, items: list[Any], events: list[str]) -> None:
        self._items = items
        self._events = events

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            yield item

    def cancel(self) -> bool:
        self._events.append("cancel")
        return True
