"""Replace the standard streams of the run's process while steps run. Their text goes through a collector."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TextIO


class Collector(Protocol):
    """Collects the text of steps and passes on other text."""

    def write(self, stream: TextIO, text: str) -> None:
        """Take text written to a stream."""
        ...

    def write_bytes(self, stream: TextIO, raw: bytes) -> None:
        """Take bytes written to a stream."""
        ...

    def flush(self, stream: TextIO) -> None:
        """Pass on a stream's buffered text."""
        ...


def replace_streams(made: Callable[[TextIO], Any]) -> Callable[[], None]:
    """Replace the standard streams, also in log handlers that refer to them. Return a function that restores them.

    Args:
        made: Returns the replacement of a stream; None keeps the stream.
    """
    replaced: list[tuple[str, TextIO, Any]] = []
    for name in ("stdout", "stderr"):
        # A stream that was closed before the program began is None, which print() accepts.
        stream = getattr(sys, name)
        other = None if stream is None else made(stream)
        if other is not None:
            setattr(sys, name, other)
            replaced.append((name, stream, other))
    # Those that keep a stream of their own would write log records past the steps' logs, or over a view.
    handlers = [
        (handler, handler.setStream(other))
        for handler in logging.getLogger().handlers
        for _, stream, other in replaced
        if type(handler) is logging.StreamHandler and handler.stream is stream
    ]

    def put_back() -> None:
        for handler, original in handlers:
            if original is not None:
                handler.setStream(original)
        for name, stream, other in replaced:
            # A stream that other code has put there meanwhile stays.
            if getattr(sys, name) is other:
                setattr(sys, name, stream)

    return put_back


class Routed:
    """A standard stream whose text goes through the collector of its run."""

    def __init__(
        self, stream: TextIO, collector: Callable[[], Collector | None], is_in_step: Callable[[], bool]
    ) -> None:
        self._stream = stream
        self._collector = collector
        self._is_in_step = is_in_step

    @property
    def buffer(self) -> Any:
        return _RoutedBytes(self._stream, self._collector, self._stream.buffer)

    def write(self, text: str) -> int:
        output = self._collector()
        if output is None:
            return self._stream.write(text)
        output.write(self._stream, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        output = self._collector()
        if output is None:
            self._stream.flush()
        else:
            output.flush(self._stream)

    def close(self) -> None:
        # The stream is that of all steps and of the run.
        if self._is_in_step():
            self.flush()
        else:
            self._stream.close()

    def __enter__(self) -> Routed:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _RoutedBytes(io.BufferedIOBase):
    """The `buffer` of a standard stream. Closing it, or a text stream around it, leaves the standard stream open."""

    def __init__(self, stream: TextIO, collector: Callable[[], Collector | None], buffer: Any) -> None:
        self._stream = stream
        self._collector = collector
        self._buffer = buffer

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        output = self._collector()
        raw = bytes(data)
        if output is None:
            self._buffer.write(raw)
        else:
            output.write_bytes(self._stream, raw)
        return len(raw)

    def flush(self) -> None:
        output = self._collector()
        if output is None:
            self._buffer.flush()
        else:
            output.flush(self._stream)

    def fileno(self) -> int:
        return int(self._buffer.fileno())

    def isatty(self) -> bool:
        return bool(self._buffer.isatty())
