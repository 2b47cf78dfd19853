"""What sessions of clients do in moments that a running controller hardly ever has."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from iris.controller.access.interceptor import serve_for
from iris.controller.clients.sessions import ClientSessions, ConnectedClient, StoppedJobs
from iris.controller.services.clients import ClientService
from iris.core.state.view import ClusterView
from iris.domain.events import Caller
from iris.domain.ids import JobId
from iris.domain.states import JobState
from iris.rpc.auth import Principal, PrincipalKind
from iris.rpc.generated import iris_pb2 as pb
from support.iris.scheduling import InMemoryCluster


class OneSession(ClientSessions):
    """Has one session, which is open already for the next who comes."""

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view)
        self._one: ConnectedClient | None = None

    def open(self) -> ConnectedClient:
        self._one = self._one or super().open()
        return self._one


class Clients:
    """A service of clients' sessions, with one session that is open."""

    def __init__(self) -> None:
        serve_for(Principal(PrincipalKind.USER, "ann"))
        self.cluster = InMemoryCluster()
        self.clients = OneSession(self.cluster.view)
        self.session = self.clients.open()
        self.session.waiting = True

    def talk(self, *messages: pb.ClientMessage, **controller: Any) -> AsyncGenerator[pb.ClientNews, None]:
        async def said() -> AsyncIterator[pb.ClientMessage]:
            for message in messages:
                yield message
            await asyncio.Event().wait()

        parts = SimpleNamespace(view=self.cluster.view, clients=self.clients, **controller)
        return ClientService(parts).Session(said(), None)


async def test_of_an_end_that_is_no_more_to_be_had_a_client_is_told_so_and_of_a_live_job_nothing() -> None:
    """Between the end and its telling the history may be removed, or the name be used again."""
    bench = Clients()
    bench.cluster.submit("/ann/live")
    bench.session.ended(JobId("/ann/gone"))
    bench.session.ended(JobId("/ann/live"))
    news = bench.talk()
    told = await anext(news)
    assert [(item.job_id, item.error.message) for item in told.refused] == [
        ("/ann/gone", "job /ann/gone has ended, and its history was removed")
    ]
    assert not told.ended
    assert bench.clients.is_watched(JobId("/ann/live")), "its own end is still to come"
    await news.aclose()
    assert len(bench.clients) == 0


async def test_a_call_is_answered_when_what_it_did_is_as_durable_as_promised() -> None:
    """An answer before that could be about a job which a new controller on another machine does not know."""

    bench, asked, durable = Clients(), asyncio.Event(), asyncio.Event()

    async def confirm() -> None:
        asked.set()
        await durable.wait()

    def begin_stop(job_id: JobId, reason: str, keep_children: bool, caller: Caller) -> "asyncio.Future[StoppedJobs]":
        found: asyncio.Future[StoppedJobs] = asyncio.get_running_loop().create_future()
        found.set_result(StoppedJobs((job_id,), JobState.KILLED))
        return found

    async def settled() -> None:
        return

    stop = pb.ClientCall(call_id=7, stop=pb.StopJobRequest(job_id="/ann/a"))
    engine = SimpleNamespace(settled=settled)
    message = pb.ClientMessage(calls=[stop], waiting=True)
    news = bench.talk(message, confirm=confirm, begin_stop=begin_stop, engine=engine)
    telling = asyncio.create_task(anext(news))
    first, _ = await asyncio.wait(
        {telling, asyncio.create_task(asked.wait())}, timeout=10, return_when=asyncio.FIRST_COMPLETED
    )
    assert telling not in first
    durable.set()
    assert [reply.call_id for reply in (await telling).replies] == [7]
    await news.aclose()


async def test_ends_with_long_errors_are_told_in_several_messages() -> None:
    """One would be larger than a client takes."""
    bench = Clients()
    for name in ("/ann/a", "/ann/b", "/ann/c"):
        bench.cluster.submit(name)
        bench.cluster.stop(name)
        job = bench.cluster.job(name)
        bench.cluster.view.jobs[job.job_id] = replace(job, error="x" * 3_000_000)
        bench.session.ended(job.job_id)
    news = bench.talk()
    told = [[status.job_id for status in (await anext(news)).ended] for _ in range(2)]
    assert told == [["/ann/a", "/ann/b"], ["/ann/c"]]
    await news.aclose()
