import asyncio

import pytest

from iris.controller.upkeep.idle import IdleWatch
from support.iris.loops import FrozenLoop


@pytest.fixture
def loop() -> FrozenLoop:
    return FrozenLoop()


async def go_on(loop: FrozenLoop, seconds: float) -> None:
    """Let time pass, a tenth of a second at a time."""
    for _ in range(round(seconds * 10)):
        loop.now_s += 0.1
        await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_it_leaves_after_so_long_without_a_call_or_a_live_job(loop: FrozenLoop) -> None:
    left: list[float] = []
    live = [False]
    watch = IdleWatch(10, lambda: live[0], lambda: left.append(loop.now_s))
    watch.start()
    await go_on(loop, 5)
    watch.touch()
    await go_on(loop, 9.5)
    assert left == []
    watch.on_call(True)
    await go_on(loop, 30)
    assert left == [], "a call is under way"
    watch.on_call(False)
    live[0] = True
    await go_on(loop, 50)
    live[0] = False
    assert left == []
    await go_on(loop, 21)
    assert len(left) == 1
    await go_on(loop, 50)
    assert len(left) == 1, "once"


async def test_it_never_leaves_without_a_time_and_not_after_its_end(loop: FrozenLoop) -> None:
    IdleWatch(0, lambda: False, lambda: pytest.fail("left")).start()
    watch = IdleWatch(5, lambda: False, lambda: pytest.fail("left"))
    watch.close()
    watch.start()
    watch.close()
    await go_on(loop, 100)
