"""The trace of a simulation: readable lines, and a digest that is equal for equal runs."""

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

_KEPT: Final = 400


class Trace:
    """Collects lines and keeps the last ones.

    Args:
        show: Called with every line immediately, e.g. `print`.
    """

    def __init__(self, show: Callable[[str], None] | None = None) -> None:
        self.count = 0
        self._show = show
        self._last: deque[str] = deque(maxlen=_KEPT)
        self._digest = hashlib.sha256()

    def note(self, now_s: float, who: str, what: str) -> None:
        """Add a line."""
        line = f"{now_s:10.4f} {who:<14} {what}"
        self.count += 1
        self._last.append(line)
        self._digest.update(line.encode())
        if self._show is not None:
            self._show(line)

    @property
    def digest(self) -> str:
        """Return the digest, equal for equal runs."""
        return self._digest.hexdigest()[:16]

    def tail(self, lines: int) -> list[str]:
        """Return the last lines."""
        return list(self._last)[-lines:]
