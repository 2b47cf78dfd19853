"""Calls to the controller on behalf of the viewer of a page."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from iris.client.connection.wire import log_lines
from iris.client.types import LogLine
from iris.rpc.auth import PrincipalKind, make_token
from iris.rpc.channels import open_aio_channel
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.generated import dashboard_pb2 as dashboard
from iris.rpc.generated import endpoints_pb2 as endpoints
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.generated.dashboard_pb2_grpc import DashboardServiceStub
from iris.rpc.generated.endpoints_pb2_grpc import EndpointServiceStub
from iris.rpc.generated.iris_pb2_grpc import ClusterServiceStub, JobServiceStub
from iris.rpc.protocol import CHANNEL_OPTIONS, call_metadata
from iris.rpc.status_map import from_rpc_error
from rigging.errors import DeadlineExceeded, MarinError
from rigging.web.login import Viewer

logger = logging.getLogger(__name__)

_CALL_S: Final = 10.0
_KEPT_S: Final = 0.25
_KEPT_TIMES: Final = 8
"""A result is cached for this multiple of its call's duration, which limits the load of many pages."""
_KEPT_AT_MOST_S: Final = 2.0
"""Maximum time between the revocation of a token and the end of its sessions."""
_MOST_KEPT: Final = 500
_ADMIN: Final = " (admin)"
_OPTIONS: Final = (*CHANNEL_OPTIONS, ("grpc.max_reconnect_backoff_ms", 500), ("grpc.initial_reconnect_backoff_ms", 50))

Answer = TypeVar("Answer")
Row = dict[str, Any]
_Key = tuple[str, str, str, bytes]


def viewer_of(user: str, *, is_admin: bool, may_write: bool, token_id: str = "") -> Viewer:
    """Return the viewer of the pages.

    Args:
        user: The user's name.
        is_admin: Whether the user is an admin; user names cannot end like an admin's displayed name.
        may_write: Whether the user requested pages that can make changes.
        token_id: Id of the token that requested the pages, whose revocation ends the session.
    """
    return Viewer(user + _ADMIN if is_admin else user, may_write, token_id)


def user_of(viewer: Viewer) -> str:
    """Return the name of the viewing user."""
    return viewer.name.removesuffix(_ADMIN)


def is_admin(viewer: Viewer) -> bool:
    """Return whether the viewer is an admin."""
    return viewer.name.endswith(_ADMIN)


@dataclass(slots=True)
class _Kept:
    until: float
    answer: asyncio.Task[Any]


class ClusterClient:
    """One channel to the controller, shared by all viewers; each call uses the token of one viewer. Belongs to one
    event loop.

    Args:
        address: The controller's address.
        secret: The cluster's secret.
        ca_sha256: The authority of the controller; "" if connections are unencrypted.
        patience_s: Timeout of a call.
    """

    def __init__(
        self,
        address: str,
        secret: bytes,
        ca_sha256: str = "",
        patience_s: float = _CALL_S,
    ) -> None:
        self._address = address
        self._secret = secret
        self._ca_sha256 = ca_sha256
        self._patience_s = patience_s
        self._channel: grpc.aio.Channel | None = None
        self._kept: dict[_Key, _Kept] = {}

    def open(self) -> None:
        """Open the channel. Raises the errors of `open_aio_channel`."""
        place = ControllerAddress(self._address, self._token(Viewer(_ADMIN)), ca_sha256=self._ca_sha256)
        self._channel = open_aio_channel(place, _OPTIONS)
        self._jobs = JobServiceStub(self._channel)
        self._cluster = ClusterServiceStub(self._channel)
        self._endpoints = EndpointServiceStub(self._channel)
        self._dashboard = DashboardServiceStub(self._channel)

    async def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close()

    async def rows(self, viewer: Viewer, sql: str, max_rows: int = 0) -> list[Row]:
        """Return the rows of a query as mappings by column name.

        Args:
            viewer: The viewer, whose permissions apply.
            sql: One SELECT (docs/query.md).
            max_rows: Maximum number of rows; 0 for 1,000.
        """
        reply = await self.query(viewer, sql, max_rows)
        return [
            {name: value_of(value) for name, value in zip(reply.columns, row.values, strict=True)} for row in reply.rows
        ]

    async def query(self, viewer: Viewer, sql: str, max_rows: int = 0) -> pb.QueryResponse:
        """Return the result of a query. Arguments as in `rows`."""
        return await self._shared(viewer, self._cluster.Query, pb.QueryRequest(sql=sql, max_rows=max_rows))

    async def job(self, viewer: Viewer, job_id: str) -> pb.JobStatus:
        """Return a job with its spec. Raises NotFound, Denied."""
        return await self._shared(viewer, self._jobs.GetJob, pb.GetJobRequest(job_id=job_id, include_spec=True))

    async def tasks(self, viewer: Viewer, job_id: str) -> list[pb.TaskStatus]:
        """Return the tasks of a job, with their usage. Raises NotFound, Denied."""
        found: list[pb.TaskStatus] = []
        first = 0
        while True:
            request = pb.ListTasksRequest(job_id=job_id, first_index=first)
            reply = await self._shared(viewer, self._jobs.ListTasks, request)
            found += reply.tasks
            if not (first := reply.next_index):
                return found

    async def task(self, viewer: Viewer, task_id: str, with_history: bool = False) -> pb.TaskStatus:
        """Return a task, on request with its usage over time. Raises NotFound, Denied."""
        request = pb.GetTaskRequest(task_id=task_id, with_history=with_history)
        return await self._shared(viewer, self._jobs.GetTask, request)

    async def stop_job(self, viewer: Viewer, job_id: str, reason: str) -> list[str]:
        """Stop a job and its descendants; return the stopped jobs. Raises NotFound, Denied.

        Args:
            viewer: The viewer.
            job_id: The job.
            reason: The reason shown to the job's user.
        """
        request = pb.StopJobRequest(job_id=job_id, reason=reason)
        return list((await self._change(viewer, self._jobs.StopJob, request)).stopped_job_ids)

    async def status(self, viewer: Viewer) -> pb.ClusterStatusResponse:
        """Return the cluster and all its workers."""
        return await self._shared(viewer, self._cluster.Status, pb.ClusterStatusRequest(all_workers=True))

    async def requeue_job(self, viewer: Viewer, job_id: str) -> None:
        """Submit a job again as it was. Raises NotFound, Denied, InvalidRequest."""
        await self._change(viewer, self._jobs.RequeueJob, pb.RequeueJobRequest(job_id=job_id))

    async def cordon(self, viewer: Viewer, worker_id: str, reason: str) -> None:
        """Cordon a worker, or uncordon it if the reason is empty. Raises Denied, NotFound.

        Args:
            viewer: The viewer.
            worker_id: The worker.
            reason: The reason, shown with the worker; empty to uncordon.
        """
        if reason:
            request = pb.CordonWorkerRequest(worker_id=worker_id, reason=reason)
            await self._change(viewer, self._cluster.CordonWorker, request)
        else:
            await self._change(viewer, self._cluster.UncordonWorker, pb.UncordonWorkerRequest(worker_id=worker_id))

    async def budgets(self, viewer: Viewer) -> list[pb.UserBudget]:
        """Return limits and usage of the users whom the viewer may see."""
        return list((await self._shared(viewer, self._cluster.ListBudgets, pb.ListBudgetsRequest())).budgets)

    async def figures(self, viewer: Viewer) -> dashboard.ControllerFiguresResponse:
        """Return the controller's metrics and its queue."""
        return await self._shared(viewer, self._dashboard.ControllerFigures, dashboard.ControllerFiguresRequest())

    async def endpoint(self, viewer: Viewer, name: str) -> str:
        """Return the address of an endpoint; "" if there is none. Raises Denied."""
        request = endpoints.ResolveEndpointRequest(name=name)
        found = (await self._shared(viewer, self._endpoints.Resolve, request)).endpoints
        return found[0].address if found else ""

    async def logs(
        self, viewer: Viewer, request: pb.FetchLogsRequest, *, to_the_end: bool = False
    ) -> AsyncGenerator[LogLine, None]:
        """Yield the lines of `numbered`."""
        async with aclosing(self.numbered(viewer, request, to_the_end=to_the_end)) as lines:
            async for _, line in lines:
                yield line

    async def numbered(
        self, viewer: Viewer, request: pb.FetchLogsRequest, *, to_the_end: bool = False
    ) -> AsyncGenerator[tuple[int, LogLine], None]:
        """Yield the log lines selected by `request`, each with its number; 0 for notes, and without `first_line`.

        Raises NotFound, Denied, InvalidRequest, Unavailable.

        Args:
            viewer: The viewer.
            request: The selected lines.
            to_the_end: Whether to read without a timeout, for downloads.
        """
        is_long = to_the_end or request.follow
        call = self._jobs.FetchLogs(
            request, metadata=self._metadata(viewer), timeout=None if is_long else self._patience_s
        )
        number = 0
        try:
            async for batch in call:
                number = batch.first_line or number
                for line in log_lines(batch):
                    yield 0 if line.note else number, line
                    number += number > 0 and not (line.partial or line.note)
        except grpc.aio.AioRpcError as error:
            raise self._error_of(error) from None
        finally:
            call.cancel()

    async def changes(self) -> AsyncGenerator[dashboard.ClusterChanges, None]:
        """Yield the changes of the whole cluster. Raises MarinError if the controller is unreachable."""
        call = self._dashboard.WatchChanges(
            dashboard.WatchChangesRequest(), metadata=self._metadata(Viewer(_ADMIN)), wait_for_ready=True
        )
        try:
            async for item in call:
                self._kept.clear()
                yield item
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        finally:
            call.cancel()

    async def _shared(self, viewer: Viewer, method: Callable[..., Awaitable[Answer]], request: Any) -> Answer:
        """Make a call, or share the result of an identical recent or running call of the same viewer."""
        key = (viewer.name, viewer.grant, type(request).__name__, request.SerializeToString(deterministic=True))
        now = time.monotonic()
        kept = self._kept.get(key)
        if kept is None or (kept.answer.done() and (kept.until < now or kept.answer.exception() is not None)):
            if len(self._kept) >= _MOST_KEPT:
                self._kept = {each: item for each, item in self._kept.items() if item.until > now}
            kept = self._kept[key] = _Kept(0.0, asyncio.create_task(self._timed(key, viewer, method, request)))
        answer: Answer = await asyncio.shield(kept.answer)
        return answer

    async def _timed(self, key: _Key, viewer: Viewer, method: Any, request: Any) -> Any:
        began = time.monotonic()
        answer = await self._call(viewer, method, request)
        now = time.monotonic()
        if key in self._kept:
            self._kept[key].until = now + min(max(_KEPT_S, _KEPT_TIMES * (now - began)), _KEPT_AT_MOST_S)
        return answer

    async def _change(self, viewer: Viewer, method: Callable[..., Awaitable[Answer]], request: Any) -> Answer:
        """Make a call that changes the cluster, and discard cached results."""
        try:
            return await self._call(viewer, method, request)
        finally:
            self._kept.clear()

    async def _call(self, viewer: Viewer, method: Callable[..., Awaitable[Answer]], request: Any) -> Answer:
        try:
            return await method(request, metadata=self._metadata(viewer), timeout=self._patience_s)
        except grpc.aio.AioRpcError as error:
            raise self._error_of(error) from None

    def _error_of(self, error: grpc.aio.AioRpcError) -> MarinError:
        found = from_rpc_error(error)
        if isinstance(found, DeadlineExceeded):  # gRPC says no more than that
            return DeadlineExceeded(
                f"the controller did not answer within {self._patience_s:g} s: it is busy; try again"
            )
        return found

    def _metadata(self, viewer: Viewer) -> tuple[tuple[str, str], ...]:
        return call_metadata(self._token(viewer))

    def _token(self, viewer: Viewer) -> str:
        kind = PrincipalKind.ADMIN if is_admin(viewer) else PrincipalKind.USER
        return make_token(self._secret, kind, user_of(viewer) or "dashboard", viewer.grant)


def value_of(value: pb.QueryValue) -> Any:
    """Return a value of a row as a Python value."""
    kind = value.WhichOneof("kind")
    return None if kind is None else getattr(value, kind)


async def first(lines: AsyncGenerator[Answer, None], most: int) -> list[Answer]:
    """Return the first lines of a log.

    Args:
        lines: The log.
        most: Maximum number of lines.
    """
    found: list[Answer] = []
    async with aclosing(lines):
        async for line in lines:
            found.append(line)
            if len(found) >= most:
                break
    return found
