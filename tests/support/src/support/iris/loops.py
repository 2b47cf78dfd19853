"""Event loops with a clock under the test's control."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar


class ShiftedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock is `ahead_s` seconds ahead of the real one. Timers due by then run in its next turns."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        super().__init__()

    def time(self) -> float:
        return super().time() + self.ahead_s


class FrozenLoop(asyncio.SelectorEventLoop):
    """A loop whose clock is frozen at `now_s`. Timers due by then run in its next turns."""

    def __init__(self) -> None:
        self.now_s = time.monotonic()
        super().__init__()

    def time(self) -> float:
        return self.now_s


LoopType = TypeVar("LoopType", bound=asyncio.AbstractEventLoop)


def run_in(loop: LoopType, scenario: Callable[[LoopType], Coroutine[Any, Any, None]]) -> None:
    """Run `scenario(loop)` to its end in the loop, and close it."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario(loop))
