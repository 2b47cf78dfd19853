import asyncio

from iris.controller.workers.orders import Farewell, WorkerOrders
from iris.domain.ids import AttemptId, JobId

A = AttemptId("/ann/a/0:0")


async def test_all_that_is_pending_goes_out_at_once() -> None:
    orders = WorkerOrders()
    for index in range(3):
        orders.start(JobId("/ann/a"), index, 0)
    orders.start(JobId("/ann/b"), 0, 2)
    orders.stop(A, "enough")
    orders.forget(AttemptId("/ann/c/0:0"))
    orders.acknowledge_log(A, 7)
    taken = await orders.take(10)
    assert taken is not None
    assert {job: list(attempts) for job, attempts in taken.start.items()} == {
        "/ann/a": [(0, 0), (1, 0), (2, 0)],
        "/ann/b": [(0, 2)],
    }
    assert (taken.stop, list(taken.forget), taken.log_acks) == ({A: "enough"}, ["/ann/c/0:0"], {A: 7})
    assert await orders.take(0.001) is None


async def test_a_slow_reader_costs_no_more_than_its_attempts() -> None:
    orders = WorkerOrders()
    for size in range(1000):
        orders.acknowledge_log(A, size)
        orders.start(JobId("/ann/a"), 0, 0)
        orders.stop(A, "again")
    taken = await orders.take(10)
    assert taken is not None
    assert (taken.log_acks, len(taken.start["/ann/a"]), len(taken.stop)) == ({A: 999}, 1, 1)
    orders.stop(A, "enough")
    orders.forget(A)
    taken = await orders.take(10)
    assert taken is not None
    assert (taken.stop, list(taken.forget)) == ({}, [A]), "what is to be forgotten need not be stopped"


async def test_a_waiting_writer_wakes_for_news_and_for_the_end() -> None:
    orders = WorkerOrders()
    writer = asyncio.ensure_future(orders.take(10))
    await asyncio.sleep(0)
    orders.goodbye("idle", exit=True)
    taken = await writer
    assert taken is not None
    assert taken.goodbye == Farewell("idle", True)
    writer = asyncio.ensure_future(orders.take(10))
    await asyncio.sleep(0)
    orders.close()
    assert await writer is None
    assert orders.closed


async def test_what_ended_attempts_leave_to_be_said_goes_with_the_next_start() -> None:
    orders = WorkerOrders(company_s=3600)
    writer = asyncio.ensure_future(orders.take(10))
    await asyncio.sleep(0)
    orders.forget(A)
    orders.acknowledge_log(A, 7)
    await asyncio.sleep(0)
    assert not writer.done()
    orders.start(JobId("/ann/b"), 0, 0)
    taken = await writer
    assert taken is not None
    assert (list(taken.start), list(taken.forget), taken.log_acks) == (["/ann/b"], [A], {A: 7})
    orders = WorkerOrders()
    orders.forget(A)
    taken = await orders.take(10)
    assert taken is not None, "after a moment it goes by itself"
    assert list(taken.forget) == [A]


async def test_the_highest_beat_is_acknowledged_once() -> None:
    orders = WorkerOrders()
    for beat in (3, 5, 4):
        orders.acknowledge_beat(beat)
    for highest in (5, 1):
        taken = await orders.take(10)
        assert taken is not None
        assert taken.beat_ack == highest
        orders.acknowledge_beat(1)
    orders.close()
    assert await orders.take(10) is None
