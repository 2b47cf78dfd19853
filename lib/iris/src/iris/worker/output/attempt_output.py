"""The output of one attempt: its log, its last bytes for the worker, and lines from iris."""

from iris.worker.output.log_writer import LogWriter
from iris.worker.processes import ProcessSpec


class AttemptOutput:
    """Writes an attempt's log, if it has one, and keeps the end of stderr (of all output if it has no log).

    Args:
        spec: The requested process.
    """

    __slots__ = ("_met", "_spec", "_writer", "tail")

    def __init__(self, spec: ProcessSpec) -> None:
        self._spec = spec
        self._writer: LogWriter | None = None  # until there is something to write
        self._met: tuple[str, ...] = ()
        self.tail = b""

    @property
    def size(self) -> int:
        """Size of the log in bytes."""
        return 0 if self._writer is None else self._writer.size

    @property
    def lost(self) -> str:
        """How much output is missing from the log, and why; empty if none is."""
        return "" if self._writer is None else self._writer.lost

    @property
    def unmarked(self) -> str:
        """The part of `lost` that the log does not mention for lack of space."""
        return "" if self._writer is None else self._writer.unmarked

    @property
    def has_rest(self) -> bool:
        """Whether a line is unfinished."""
        return self._writer is not None and self._writer.has_rest

    def feed(self, is_stderr: bool, data: bytes, now_ms: int) -> bool:
        """Add output; return whether the log grew."""
        spec = self._spec
        if spec.tail_bytes and (is_stderr or not spec.log):
            self.tail = (self.tail + data)[-spec.tail_bytes :]
        if not spec.log:
            return False
        (self._writer or self._open()).feed(is_stderr, data, now_ms)
        return True

    def note(self, text: str, now_ms: int) -> bool:
        """Add a line from iris; return whether there is a log."""
        if not self._spec.log:
            return False
        (self._writer or self._open()).note(text, now_ms)
        return True

    def mark_met(self, what: str) -> None:
        """Record that the log mentions this limit."""
        self._met = (*self._met, what)

    def has_met(self, what: str) -> bool:
        """Return whether the log mentions this limit."""
        return what in self._met

    def flush(self, now_ms: int) -> bool:
        """Store unfinished lines, because a reader may wait for a prompt. Return whether there is a log."""
        if self._writer is None:
            return False
        self._writer.flush(now_ms)
        return True

    def finish(self, now_ms: int) -> None:
        """Close the log."""
        if self._writer is not None:
            self._writer.finish(now_ms)

    def _open(self) -> LogWriter:
        self._writer = LogWriter(self._spec.log, self._spec.log_limit)
        return self._writer
