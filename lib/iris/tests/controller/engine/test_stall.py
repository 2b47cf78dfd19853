import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iris.controller.engine.stall import Stall
from iris.core.state.batch import Batch
from iris.domain.errors import StorageUnavailable
from rigging.errors import Unavailable


def stall(*futures: Any) -> Stall:
    return Stall(Batch(), [(future, None) for future in futures], StorageUnavailable("disk full"), 5000)


def test_a_refused_batch_is_tried_again_ever_more_seldom() -> None:
    found = stall()
    assert [round(found.next_pause_s(), 3) for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert found.reason(7600).startswith("the controller cannot write its database since 3 s (disk full); what runs")
    assert "since 0 s" in found.reason(4000)


async def test_who_waited_for_it_is_told_that_it_was_not_stored() -> None:
    waits, gone = (asyncio.get_running_loop().create_future() for _ in range(2))
    gone.cancel()
    cancelled: list[bool] = []
    found = stall(waits, gone)
    found.give_up()
    with pytest.raises(Unavailable, match="the change could not be stored: disk full"):
        await waits
    found = stall()
    found.timer = cast(asyncio.TimerHandle, SimpleNamespace(cancel=lambda: cancelled.append(True)))
    found.give_up()
    assert cancelled == [True]
