"""The trace of a simulation (readable lines, and a digest that is equal for equal runs) and its report."""

import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rigging.errors import MarinError

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


class SimulationFailed(MarinError, AssertionError):
    """An invariant was violated. The message lists the violations and the command to reproduce them."""


@dataclass
class SeedReport:
    """The result of a seed; `violations` is empty if every invariant held."""

    seed: int
    violations: list[str] = field(default_factory=list)
    jobs: int = 0
    starts: int = 0
    overlaps: int = 0
    lives: int = 0
    commits: int = 0
    checks: int = 0
    steps: int = 0
    end_s: float = 0.0
    digest: str = ""
    tail: list[str] = field(default_factory=list)
    notices: Mapping[str, int] = field(default_factory=dict)
    is_announced: bool = False

    @property
    def command(self) -> str:
        """Return the command that repeats the run with its whole trace."""
        story = " --preemptions" if self.is_announced else ""
        return f"uv run python -m iris.sim replay --seed {self.seed}{story} --trace"

    def check(self) -> None:
        """Raise SimulationFailed if an invariant was violated."""
        if self.violations:
            what = "\n  ".join(self.violations[:20])
            raise SimulationFailed(f"seed {self.seed}:\n  {what}\nreplay: {self.command}")
