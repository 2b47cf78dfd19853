"""ClientService: a client's session, in which calls and the ends of jobs share a stream."""

# ruff: noqa: ARG002  # every method takes grpc's context and a request, needed or not

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, Final

from iris.controller.access.authority import authorize, authorize_all, check_live, rule_of
from iris.controller.access.interceptor import current_caller, current_principal
from iris.controller.clients.sessions import Answer, ConnectedClient, News, StoppedJobs, Submitted
from iris.controller.context import Controller
from iris.controller.services.submissions import begin_submission, stop_response
from iris.domain.ids import JobId
from iris.rpc.auth import Principal
from iris.rpc.convert import job_status
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.generated import iris_pb2_grpc
from iris.rpc.status_map import to_status
from rigging.errors import InvalidRequest, MarinError, Unavailable

logger = logging.getLogger(__name__)

_SUBMIT: Final = rule_of("JobService/SubmitJob")
_STOP: Final = rule_of("JobService/StopJob")
_WATCH: Final = rule_of("JobService/WaitJobs")
_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Approximate maximum size of one message."""

Context = Any  # grpc's own, which is untyped here
Started = tuple[int, "asyncio.Future[Answer]"]


class ClientService(iris_pb2_grpc.ClientServiceServicer):
    """Serves clients that make many calls."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._answering: set[asyncio.Task[None]] = set()

    async def Session(
        self, request_iterator: AsyncIterator[pb.ClientMessage], context: Context
    ) -> AsyncGenerator[pb.ClientNews, None]:
        sessions = self._controller.clients
        session = sessions.open()
        reader = asyncio.create_task(self._read(session, current_principal(), request_iterator))
        reader.add_done_callback(lambda _: session.close())
        try:
            while (news := await session.take()) is not None:
                for message in self._messages(session, news):
                    yield message
            if reader.done():
                reader.result()
            raise Unavailable("the controller is shutting down")
        finally:
            if reader.done() and not reader.cancelled():
                reader.exception()  # seen; raised above where it matters
            reader.cancel()
            sessions.end(session)

    async def _read(
        self, session: ConnectedClient, principal: Principal, messages: AsyncIterator[pb.ClientMessage]
    ) -> None:
        async for message in messages:
            check_live(principal, self._controller.view)  # a job's token ends with its attempt
            self._controller.clients.on_use()
            session.waiting = message.waiting
            if message.calls:
                await session.has_room()
                session.begin(len(message.calls))
                started = [await self._begin(session, principal, call) for call in message.calls]
                task = asyncio.create_task(self._answer(session, started))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            if message.watch:
                await self._watch(session, principal, message.watch)

    async def _begin(self, session: ConnectedClient, principal: Principal, call: pb.ClientCall) -> Started:
        """Run a call in the next batch, which all calls of one message share."""
        try:
            kind = call.WhichOneof("kind")
            if kind == "submit":
                authorize_all(principal, _SUBMIT, call.submit)
                return call.call_id, await begin_submission(self._controller, call.submit, current_caller())
            if kind == "stop":
                request = call.stop
                authorize_all(principal, _STOP, request)
                return call.call_id, self._controller.begin_stop(
                    JobId(request.job_id), request.reason, request.keep_children, current_caller()
                )
            raise InvalidRequest("a call of this kind is unknown: use the same release of iris on both sides")
        except MarinError as error:
            refused: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            refused.set_result(error)
            return call.call_id, refused

    async def _answer(self, session: ConnectedClient, started: Sequence[Started]) -> None:
        answers: list[tuple[int, Answer]] = []
        for call_id, future in started:
            try:
                answers.append((call_id, await future))
            except MarinError as error:
                answers.append((call_id, error))
            except Exception as error:  # a defect of ours: the others of this message still want their answers
                logger.exception("a call of a client's session failed")
                answers.append((call_id, MarinError(f"the controller failed: {error!r}")))
        await self._controller.confirm()
        view, clients = self._controller.view, self._controller.clients
        own = [answer.job_id for _, answer in answers if isinstance(answer, Submitted)]
        stops = any(isinstance(answer, StoppedJobs) for _, answer in answers)
        if stops or any(job_id in view.jobs and view.is_settled(job_id) for job_id in own):
            await self._controller.engine.settled()
        # Nothing else happens from here on: an end is told after the answer, and none is missed in between.
        session.answer(answers)
        for job_id in own:
            if job_id in view.jobs and view.is_settled(job_id):
                session.ended(job_id)
            else:
                clients.watch_live(session, job_id)

    async def _watch(self, session: ConnectedClient, principal: Principal, names: Sequence[str]) -> None:
        await self._controller.engine.settled()
        for name in names:
            job_id = JobId(name)
            try:
                authorize(principal, _WATCH, job_id)
                self._controller.clients.watch(session, job_id)
            except MarinError as error:
                session.refuse(job_id, error)

    def _messages(self, session: ConnectedClient, news: News) -> list[pb.ClientNews]:
        message = pb.ClientNews(replies=[_reply(self._controller, call_id, answer) for call_id, answer in news.answers])
        messages, size = [message], 0
        view, clients = self._controller.view, self._controller.clients
        for job_id in news.ended:
            job = view.jobs.get(job_id)
            if job is None:
                error = MarinError(f"job {job_id} has ended, and its history was removed")
                message.refused.append(_refused(job_id, error))
                continue
            if not view.is_settled(job_id):
                clients.watch_live(session, job_id)  # the name was used again since
                continue
            status = job_status(job)
            if size > _MESSAGE_BYTES:
                message, size = pb.ClientNews(), 0
                messages.append(message)
            message.ended.append(status)
            size += len(status.error) + len(status.display_command)
        message.refused.extend(_refused(job_id, error) for job_id, error in news.refused)
        return messages


def _reply(controller: Controller, call_id: int, answer: Answer) -> pb.ClientReply:
    if isinstance(answer, Submitted):
        submitted = pb.SubmitJobResponse(job_id=answer.job_id, adopted=answer.adopted)
        return pb.ClientReply(call_id=call_id, submitted=submitted)
    if isinstance(answer, StoppedJobs):
        return pb.ClientReply(call_id=call_id, stopped=stop_response(controller, answer))
    return pb.ClientReply(call_id=call_id, error=_error(answer))


def _refused(job_id: JobId, error: MarinError) -> pb.WatchRefused:
    return pb.WatchRefused(job_id=job_id, error=_error(error))


def _error(error: MarinError) -> pb.CallError:
    code, message = to_status(error)
    return pb.CallError(code=code.value[0], message=message)
