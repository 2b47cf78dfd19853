"""ExecService: commands in running tasks, passed on between their callers and the tasks' workers."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from iris.controller.access.authority import ADMIN_WORDS, RULES, authorize
from iris.controller.access.interceptor import current_caller, current_principal
from iris.controller.context import Controller
from iris.controller.workers.commands import CommandRelay, CommandRelays, HandOff
from iris.domain.events import Requested
from iris.domain.ids import AttemptId, TaskId, WorkerId, is_task_id
from iris.domain.states import TaskState
from iris.inspection.running import Inspection, inspect
from iris.rpc.auth import PrincipalKind
from iris.rpc.generated import exec_pb2 as pb
from iris.rpc.generated import exec_pb2_grpc
from rigging.errors import Conflict, Denied, InvalidRequest, NotFound, Unavailable

Context = Any  # grpc's own, which is untyped here
Relay = CommandRelay[pb.ExecInput, pb.ExecOutput]


class ExecService(exec_pb2_grpc.ExecServiceServicer):
    """Serves callers and workers."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._relays = CommandRelays[pb.ExecInput, pb.ExecOutput](controller.sessions.orders_of)

    async def Exec(
        self, request_iterator: AsyncIterator[pb.ExecInput], context: Context
    ) -> AsyncGenerator[pb.ExecOutput, None]:
        del context
        first = await anext(aiter(request_iterator), pb.ExecInput())
        rule = RULES["ExecService/Exec"]
        authorize(current_principal(), rule, _check(first).task_id)
        worker_id, attempt_id = await self._running(TaskId(first.start.task_id))
        first.start.attempt_id = attempt_id
        with self._relays.opened(worker_id, attempt_id) as relay:
            self._controller.engine.record(Requested(rule.action, attempt_id), current_caller())
            feeding = asyncio.create_task(_feed(first, request_iterator, relay.inputs))
            try:
                await relay.until_attached()
                while (output := await relay.outputs.get()) is not None:
                    yield output
                    if output.HasField("end"):
                        return
                raise Unavailable(f"the connection to worker {worker_id} broke, which ended the command")
            finally:
                feeding.cancel()

    async def Inspect(self, request: pb.InspectRequest, context: Context) -> AsyncGenerator[pb.InspectPiece, None]:
        del context
        asked, principal = Inspection(request.what, request.seconds), current_principal()
        asked.check()
        if not request.target.startswith("/") and principal.kind is not PrincipalKind.ADMIN:
            raise Denied(f"{principal} may not look at {request.target}: only {ADMIN_WORDS} may")
        if request.target == "controller":
            async with aclosing(inspect(asked, os.getpid())) as pieces:
                async for piece in pieces:
                    yield pb.InspectPiece(data=piece)
            return
        worker_id, attempt_id = await self._found(request.target)
        start = pb.ExecInput(start=pb.ExecStart(attempt_id=attempt_id, inspect=request))
        with self._relays.opened(worker_id, attempt_id) as relay:
            await relay.inputs.put(start)
            await relay.until_attached()
            while (output := await relay.outputs.get()) is not None:
                if output.HasField("end"):
                    if output.end.error:
                        raise Conflict(f"{request.target}: {output.end.error}")
                    return
                yield pb.InspectPiece(data=output.stdout)
            raise Unavailable(f"the connection to worker {worker_id} broke")

    async def Attach(
        self, request_iterator: AsyncIterator[pb.ExecOutput], context: Context
    ) -> AsyncGenerator[pb.ExecInput, None]:
        del context
        first = await anext(aiter(request_iterator), pb.ExecOutput())
        relay = self._relays.find(first.exec_id)
        authorize(current_principal(), RULES["ExecService/Attach"], relay.worker_id)
        relay.attach()
        feeding = asyncio.create_task(_collect(request_iterator, relay.outputs))
        try:
            while (message := await relay.inputs.get()) is not None:
                yield message
        finally:
            feeding.cancel()
            relay.close()

    async def _found(self, target: str) -> tuple[WorkerId, AttemptId]:
        """Return the worker of a target, and the attempt; "" for the worker itself."""
        kind, _, name = target.partition("/")
        if kind == "worker" and name:
            if name not in self._controller.view.workers:
                raise NotFound(f"there is no worker {name!r}")
            return WorkerId(name), AttemptId("")
        if not is_task_id(target):
            raise InvalidRequest(f"{target!r} is neither a task's id, nor worker/NAME, nor controller")
        return await self._running(TaskId(target))

    async def _running(self, task_id: TaskId) -> tuple[WorkerId, AttemptId]:
        """Return where a task runs. Raise NotFound, or Conflict if it is not running."""
        await self._controller.engine.settled()
        task = self._controller.view.task(task_id)
        if task.state is not TaskState.RUNNING or task.worker_id is None:
            raise Conflict(f"task {task_id} is {task.state.word}: it must be running")
        return task.worker_id, task.attempt_id


def _check(first: pb.ExecInput) -> pb.ExecStart:
    start = first.start
    if first.WhichOneof("kind") != "start" or not start.argv or not start.argv[0]:
        raise InvalidRequest("the first message must name a task and a command")
    if not is_task_id(start.task_id):
        raise InvalidRequest(f"{start.task_id!r} is not a task id; the form is /user/name[/child...]/index")
    return start


async def _feed(first: pb.ExecInput, requests: AsyncIterator[pb.ExecInput], to: HandOff[pb.ExecInput]) -> None:
    is_open = await to.put(first)
    async for message in requests:
        if not is_open:
            return
        is_open = await to.put(message)


async def _collect(requests: AsyncIterator[pb.ExecOutput], to: HandOff[pb.ExecOutput]) -> None:
    try:
        async for message in requests:
            if not await to.put(message):
                return
    finally:
        to.close()
