import asyncio

from iris.controller.workers.orders import Farewell, WorkerOrders
from iris.domain.ids import AttemptId, JobId

A = AttemptId("/ann/a/0:0")


def test_all_that_is_pending_goes_out_at_once() -> None:
    async def main() -> None:
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

    asyncio.run(main())


def test_a_slow_reader_costs_no_more_than_its_attempts() -> None:
    async def main() -> None:
        orders = WorkerOrders()
        for size in range(10_000):
            orders.acknowledge_log(A, size)
            orders.start(JobId("/ann/a"), 0, 0)
            orders.stop(A, "again")
        taken = await orders.take(10)
        assert taken is not None
        assert (taken.log_acks, len(taken.start["/ann/a"]), len(taken.stop)) == ({A: 9999}, 1, 1)

    asyncio.run(main())


def test_what_is_to_be_forgotten_need_not_be_stopped() -> None:
    async def main() -> None:
        orders = WorkerOrders()
        orders.stop(A, "enough")
        orders.forget(A)
        taken = await orders.take(10)
        assert taken is not None
        assert (taken.stop, list(taken.forget)) == ({}, [A])

    asyncio.run(main())


def test_a_waiting_writer_wakes_for_news_and_for_the_end() -> None:
    async def main() -> None:
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

    asyncio.run(main())


def test_what_ended_attempts_leave_to_be_said_goes_with_the_next_start() -> None:
    async def main() -> None:
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

    asyncio.run(main())


def test_it_goes_by_itself_after_a_moment() -> None:
    async def main() -> None:
        orders = WorkerOrders()
        orders.forget(A)
        taken = await orders.take(10)
        assert taken is not None
        assert list(taken.forget) == [A]

    asyncio.run(main())
