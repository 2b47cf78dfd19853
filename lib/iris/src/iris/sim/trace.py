"""Trace of a simulation, line by line: for people, and as a digest that two equal runs share."""

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

_KEPT: Final = 400


class Trace:
    """Collects lines; the last ones are kept.

    Args:
        show: Called with every line as it comes, e.g. `print`.
    """

    def __init__(self, show: Callable[[str], None] | None = None) -> None:
        self.count = 0
        self._show = show
        self._last: deque[str] = deque(maxlen=_KEPT)
        self._digest = hashlib.sha256()

    def note(self, now_s: float, who: str, what: str) -> None:
        """Write a line."""
        line = f"{now_s:10.4f} {who:<14} {what}"
        self.count += 1
        self._last.append(line)
        self._digest.update(line.encode())
        if self._show is not None:
            self._show(line)

    @property
    def digest(self) -> str:
        """Equal for equal stories."""
        return self._digest.hexdigest()[:16]

    def tail(self, lines: int) -> list[str]:
        """The last lines."""
        return list(self._last)[-lines:]
