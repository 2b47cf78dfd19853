"""What a client's session holds back, bounds and tells, without gRPC."""

import asyncio

import pytest

from iris.controller.clients.sessions import MAX_CALLS, ClientSessions, ConnectedClient, News, StoppedJobs, Submitted
from iris.core.state.view import ClusterView
from iris.domain.effects import JobSettled
from iris.domain.ids import JobId
from rigging.errors import NotFound
from support.iris.scheduling import InMemoryCluster

A, B = JobId("/ann/a"), JobId("/ann/b")


async def test_a_session_tells_at_once_what_somebody_waits_for_and_else_soon() -> None:
    session = ConnectedClient()
    session.ended(A)
    assert await session.take() == News([], [A], []), "after a moment"
    session.ended(B)
    session.waiting = True
    assert session.waiting
    assert await session.take() == News([], [B], [])
    session.ended(A)
    assert await session.take() == News([], [A], [])
    refusal = NotFound("no such job")
    session.refuse(A, refusal)
    session.answer([(7, StoppedJobs((A,), None))])
    assert await session.take() == News([(7, StoppedJobs((A,), None))], [], [(A, refusal)])
    session.ended(B)
    session.close()
    assert await session.take() == News([], [B], []), "what is known is told before the end"
    assert await session.take() is None
    assert not News()


async def test_calls_under_way_keep_a_session_busy_and_bound_it() -> None:
    session = ConnectedClient()
    assert session.is_idle
    session.begin(MAX_CALLS - 1)
    await session.has_room()
    assert not session.is_idle
    session.begin(1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(session.has_room(), 0.01)
    session.answer([(number, NotFound("x")) for number in range(MAX_CALLS)])
    await session.has_room()
    assert session.is_idle


async def test_each_end_goes_to_those_who_watch_it() -> None:
    cluster = InMemoryCluster()
    for job_id in (A, B):
        cluster.submit(job_id)
    sessions = ClientSessions(cluster.view)
    first, second = sessions.open(), sessions.open()
    first.waiting = second.waiting = True
    sessions.watch(first, A)
    sessions.watch(second, B)
    with pytest.raises(NotFound):
        sessions.watch(first, JobId("/ann/x"))
    assert (sessions.is_watched(A), sessions.is_watched(JobId("/ann/x"))) == (True, False)
    sessions.on_effects([JobSettled(A)])
    assert (await first.take(), second.watched) == (News([], [A], []), {B})
    assert not sessions.is_watched(A)
    cluster.stop(A)
    sessions.watch(second, A)
    assert await second.take() == News([], [A], [])
    sessions.end(second)
    assert not sessions.is_watched(B)
    assert len(sessions) == 1
    sessions.on_effects([JobSettled(B)])
    first.begin(1)
    assert not sessions.is_idle
    sessions.end(first)
    assert sessions.is_idle
    sessions.on_use()


async def test_ends_go_with_answers_unless_somebody_waits() -> None:
    sessions = ClientSessions(ClusterView(), new_session=lambda: ConnectedClient(tell_within_s=3600))
    session = sessions.open()
    sessions.watch_live(session, A)
    sessions.watch_live(session, B)
    telling = asyncio.create_task(session.take())
    sessions.on_effects([JobSettled(A)])
    await asyncio.sleep(0)
    assert not telling.done()
    assert not sessions.is_watched(B)
    session.answer([(1, Submitted(B, adopted=False))])
    news = await telling
    assert [call_id for call_id, _ in news.answers] == [1]
    assert news.ended == [A]
    session.waiting = True
    assert sessions.is_watched(B)
    sessions.on_effects([JobSettled(B), JobSettled(A)])
    assert (await session.take()).ended == [B]
    assert not sessions.is_idle


async def test_a_session_that_is_over_is_forgotten() -> None:
    sessions = ClientSessions(ClusterView(), new_session=lambda: ConnectedClient(max_told=1))
    session, other = sessions.open(), sessions.open()
    for job_id in (A, B):
        sessions.watch_live(session, job_id)
        sessions.watch_live(other, job_id)
    sessions.end(session)
    assert len(sessions) == 1
    other.waiting = True
    sessions.on_effects([JobSettled(A), JobSettled(B)])
    assert [(await other.take()).ended, (await other.take()).ended] == [[A], [B]]
    sessions.close()
    assert await other.take() is None
    assert await sessions.open().take() is None
