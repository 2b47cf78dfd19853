"""Workers hear of a commit only once it is off the machine, and of all commits in order."""

import asyncio
from collections.abc import Sequence

from iris.controller.engine.replication_barrier import ReplicationBarrier
from iris.domain.effects import Effect, ForgetAttempt, JobChanged, StartAttempt, StopAttempt
from iris.domain.ids import AttemptId, JobId, WorkerId

W = WorkerId("w")


def start(number: int) -> Effect:
    return StartAttempt(AttemptId(f"/a/b/{number}:0"), W)


class Replicator:
    """Lets each wait through when it is told."""

    def __init__(self) -> None:
        self.waits: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        self.waits.append(asyncio.get_running_loop().create_future())
        await self.waits[-1]


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_effects_for_workers_wait_for_their_commit_and_stay_in_order() -> None:
    replicator, delivered = Replicator(), list[Sequence[Effect]]()
    barrier = ReplicationBarrier(replicator, delivered.append)
    barrier.on_effects([JobChanged(JobId("/a/b"))])
    await turns()
    assert replicator.waits == [], "nobody but workers waits"
    stop, forget = StopAttempt(AttemptId("/a/b/0:0"), W, "x"), ForgetAttempt(AttemptId("/a/b/0:0"), W)
    barrier.on_effects([start(1), JobChanged(JobId("/a/b")), stop, forget])
    await turns()
    barrier.on_effects([start(2)])
    barrier.on_effects([start(3)])
    await turns()
    assert (len(replicator.waits), delivered) == (1, [])
    replicator.waits[0].set_result(None)
    await turns()
    assert delivered == [[start(1), stop, forget]], "what came later has a commit of its own to wait for"
    assert len(replicator.waits) == 2
    replicator.waits[1].set_result(None)
    await turns()
    assert delivered[1:] == [[start(2), start(3)]]
    barrier.on_effects([start(4)])
    await turns()
    replicator.waits[2].set_result(None)
    await turns()
    assert delivered[2:] == [[start(4)]], "after a pause, too"


async def test_nothing_is_delivered_after_the_end() -> None:
    replicator, delivered = Replicator(), list[Sequence[Effect]]()
    barrier = ReplicationBarrier(replicator, delivered.append)
    barrier.close()
    barrier.on_effects([start(1)])
    await turns()
    barrier.close()
    await turns()
    assert replicator.waits[0].cancelled()
    assert delivered == []
