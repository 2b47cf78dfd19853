"""One line format for every marin process, on stderr, without secrets."""

import logging
import sys
from typing import TextIO

from rigging.errors import InvalidRequest
from rigging.printable import printable
from rigging.redaction import redact_string

_FORMAT = "%(asctime)s.%(msecs)03d %(levelname).1s %(name)s: %(message)s"
_DATE_FORMAT = "%Y-%m-%d %H:%M:%S"


class RedactingFormatter(logging.Formatter):
    """Formats a record, its arguments and its traceback, and takes the secrets out of the result.

    What a terminal would obey is escaped. Done here and not in a `logging.Filter`, which sees neither the traceback
    nor the text the arguments become.
    """

    def format(self, record: logging.LogRecord) -> str:
        return printable(redact_string(super().format(record)))


class MarinLogHandler(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is at the time of the record."""

    def __init__(self) -> None:
        # Not StreamHandler's constructor, which would keep today's stderr.
        logging.Handler.__init__(self)
        self.setFormatter(RedactingFormatter(_FORMAT, _DATE_FORMAT))

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def configure_logging(level: int | str = logging.INFO) -> None:
    """Log to stderr from `level` on, as "2024-01-31 12:00:00.123 I rigging.lease: text"; secrets are redacted.

    May be called again, to change the level. Handlers that others installed stay.

    Args:
        level: A number of `logging`, or a name such as "debug".

    Raises:
        InvalidRequest: There is no such level.
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
