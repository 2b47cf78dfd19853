"""One line format for the stderr of every marin process, redacted."""

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import TextIO

from rigging.errors import InvalidRequest
from rigging.log_buffer import BufferedLogRecord, LogRingBuffer, get_global_buffer
from rigging.redaction import redact_string
from rigging.text.printable import printable

_FORMAT = "%(asctime)s.%(msecs)03d %(levelname).1s %(name)s: %(message)s"
#: Set to anything, it keeps `install_fault_handler` from doing anything.
FAULTHANDLER_DISABLE_ENV = "RIGGING_DISABLE_FAULTHANDLER"
_DATE_FORMAT = "%Y-%m-%d %H:%M:%S"


__all__ = [
    "BufferedLogRecord",
    "LogRingBuffer",
    "MarinLogHandler",
    "RedactingFormatter",
    "configure_logging",
    "get_global_buffer",
    "install_fault_handler",
    "slow_log",
]


class RedactingFormatter(logging.Formatter):
    """Format a record with its arguments and traceback, and redact secrets in the result.

    Terminal control characters are escaped. A `logging.Filter` could not do this, because it sees neither the traceback
    nor the formatted arguments.
    """

    def format(self, record: logging.LogRecord) -> str:
        return printable(redact_string(super().format(record)))


class MarinLogHandler(logging.StreamHandler[TextIO]):
    """Write to the current `sys.stderr` and to `get_global_buffer()`."""

    def __init__(self) -> None:
        # Not StreamHandler's constructor, which would keep today's stderr.
        logging.Handler.__init__(self)
        self.setFormatter(RedactingFormatter(_FORMAT, _DATE_FORMAT))

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        get_global_buffer().add(record, text)
        return text

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def configure_logging(level: int | str = logging.INFO) -> LogRingBuffer:
    """Log to stderr from `level` on, like "2024-01-31 12:00:00.123 I rigging.lease: text", with secrets redacted.

    Call it again to change the level. Handlers installed by others stay.

    Args:
        level: A `logging` level number, or a name such as "debug".

    Returns:
        The buffer with the last records, `get_global_buffer()`.

    Raises:
        InvalidRequest: The level does not exist.
    """
    if isinstance(level, str):
        number = logging.getLevelNamesMapping().get(level.strip().upper())
        if number is None:
            raise InvalidRequest(f"log level {level!r} is unknown; use one of debug, info, warning, error, critical")
        level = number
    root = logging.getLogger()
    root.setLevel(level)
    if not any(isinstance(handler, MarinLogHandler) for handler in root.handlers):
        root.addHandler(MarinLogHandler())
    return get_global_buffer()


@contextlib.contextmanager
def slow_log(log: logging.Logger, operation: str, threshold_ms: int = 100) -> Iterator[None]:
    """Log a warning if the block takes `threshold_ms` or longer, and nothing if it is faster or raises.

    Args:
        log: The logger.
        operation: The name of the block in the warning.
        threshold_ms: Milliseconds.
    """
    started = time.monotonic()
    yield
    elapsed_ms = int((time.monotonic() - started) * 1000)
    if elapsed_ms >= threshold_ms:
        log.warning("slow: %s took %d ms (threshold: %d ms)", operation, elapsed_ms, threshold_ms)


def install_fault_handler(*, sigusr_dump: bool = True) -> bool:
    """Write Python's stack to stderr when a signal such as SIGSEGV kills this process. May be called again.

    Args:
        sigusr_dump: Also write the stacks of all threads on SIGUSR1, unless the program handles that signal itself.

    Returns:
        False if RIGGING_DISABLE_FAULTHANDLER is set, and nothing is done.
    """
    import faulthandler  # needed by few, and at the start only

    if os.environ.get(FAULTHANDLER_DISABLE_ENV):
        return False
    # Of the process's own stderr: what stands in its place, as in tests, often has no descriptor.
    stderr = sys.__stderr__ or sys.stderr
    faulthandler.enable(file=stderr, all_threads=True)
    if sigusr_dump and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        faulthandler.register(signal.SIGUSR1, file=stderr, all_threads=True)
    return True
