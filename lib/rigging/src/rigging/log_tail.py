"""The end of a log file, for messages about the process that wrote it."""

from pathlib import Path
from typing import Final

_READ_BYTES: Final = 64 * 1024


def log_tail(path: Path, start: int = 0, lines: int = 15) -> list[str]:
    """Return the last non-empty lines of a log; empty if it cannot be read.

    Args:
        path: The log.
        start: Skip this many bytes, unless the log is shorter now.
        lines: Maximum number of lines.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start if start <= size else 0, size - _READ_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-lines:]
