"""The output of one attempt: its log, the last bytes for the worker, and lines of iris's own."""

from iris.worker.output.log_writer import LogWriter
from iris.worker.processes import ProcessSpec


class AttemptOutput:
    """Writes an attempt's log, if it has one, and keeps the end of stderr (of all it writes, where it has no log).

    Args:
        spec: Its process as it was asked for.
    """

    __slots__ = ("_met", "_spec", "_writer", "tail")

    def __init__(self, spec: ProcessSpec) -> None:
        self._spec = spec
        self._writer: LogWriter | None = None  # until there is something to write
        self._met: tuple[str, ...] = ()
        self.tail = b""

    @property
    def size(self) -> int:
        """Bytes of the log."""
        return 0 if self._writer is None else self._writer.size

    @property
    def lost(self) -> str:
        """How much output the log does not have, and why; empty: it has all."""
        return "" if self._writer is None else self._writer.lost

    @property
    def unmarked(self) -> str:
        """What the log does not say of lost bytes, as there was no room for it."""
        return "" if self._writer is None else self._writer.unmarked

    @property
    def has_rest(self) -> bool:
        """Whether an unfinished line waits for its end."""
        return self._writer is not None and self._writer.has_rest

    def feed(self, is_stderr: bool, data: bytes, now_ms: int) -> bool:
        """Take output; return whether the log grew."""
        spec = self._spec
        if spec.tail_bytes and (is_stderr or not spec.log):
            self.tail = (self.tail + data)[-spec.tail_bytes :]
        if not spec.log:
            return False
        (self._writer or self._open()).feed(is_stderr, data, now_ms)
        return True

    def note(self, text: str, now_ms: int) -> bool:
        """Add a line of iris's own; return whether there is a log to add it to."""
        if not self._spec.log:
            return False
        (self._writer or self._open()).note(text, now_ms)
        return True

    def mark_met(self, what: str) -> None:
        """Remember that the log says that the attempt ran into this limit."""
        self._met = (*self._met, what)

    def has_met(self, what: str) -> bool:
        """Whether the log says so."""
        return what in self._met

    def flush(self, now_ms: int) -> bool:
        """Store unfinished lines, too: a reader may be waiting for a prompt. Return whether there is a log."""
        if self._writer is None:
            return False
        self._writer.flush(now_ms)
        return True

    def finish(self, now_ms: int) -> None:
        """End the log."""
        if self._writer is not None:
            self._writer.finish(now_ms)

    def _open(self) -> LogWriter:
        self._writer = LogWriter(self._spec.log, self._spec.log_limit)
        return self._writer
