"""What a client's session holds back, bounds and tells, without gRPC."""

import asyncio

from iris.controller.clients.sessions import MAX_CALLS, ClientSessions, ConnectedClient, Submitted
from iris.core.state.view import ClusterView
from iris.domain.effects import JobSettled
from iris.domain.ids import JobId

A, B = JobId("/ann/a"), JobId("/ann/b")


def test_a_client_with_too_many_calls_under_way_is_not_read() -> None:
    async def test() -> None:
        session = ConnectedClient()
        session.begin(MAX_CALLS)
        reading = asyncio.create_task(session.has_room())
        await asyncio.sleep(0)
        assert not reading.done()
        session.answer([(1, Submitted(A, adopted=False))])
        await reading

    asyncio.run(asyncio.wait_for(test(), 10))


def test_ends_go_with_answers_unless_somebody_waits() -> None:
    async def test() -> None:
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

    asyncio.run(asyncio.wait_for(test(), 10))


def test_a_session_that_is_over_is_forgotten() -> None:
    async def test() -> None:
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

    asyncio.run(asyncio.wait_for(test(), 10))
