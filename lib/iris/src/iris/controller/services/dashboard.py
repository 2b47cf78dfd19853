"""DashboardService: the calls of browser pages that other services lack."""

# ruff: noqa: ARG002  # every method takes grpc's context and a request, needed or not

from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import islice
from typing import Any, Final

import psutil

from iris.controller.access.authority import may_read
from iris.controller.access.interceptor import current_principal
from iris.controller.context import Controller
from iris.controller.dashboard.figures import Times
from iris.controller.services.queue_places import QueuePlaces
from iris.rpc.auth import PrincipalKind
from iris.rpc.generated import dashboard_pb2 as pb
from iris.rpc.generated import dashboard_pb2_grpc
from rigging.errors import InvalidRequest

_WAIT_MS: Final = 100
_MOST_WAIT_MS: Final = 60_000
_MOST_QUEUED: Final = 1000

Context = Any  # grpc's own, which is untyped here


class DashboardService(dashboard_pb2_grpc.DashboardServiceServicer):
    """Serves users."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._places = QueuePlaces(controller.view)
        self._process = psutil.Process()

    async def WatchChanges(
        self, request: pb.WatchChangesRequest, context: Context
    ) -> AsyncGenerator[pb.ClusterChanges, None]:
        if not 0 <= request.wait_ms <= _MOST_WAIT_MS:
            raise InvalidRequest(f"wait_ms is {request.wait_ms}; allowed are 0 to {_MOST_WAIT_MS}")
        wait_s = (request.wait_ms or _WAIT_MS) / 1000
        sees_all = current_principal().kind is PrincipalKind.ADMIN
        async with aclosing(self._controller.changes.watch(wait_s, hello=True)) as news:
            await anext(news)  # the first message says that the controller is there
            tokens = self._controller.credentials.users.tokens() if sees_all else []
            yield pb.ClusterChanges(revoked_token_ids=[token.token_id for token in tokens if token.revoked_at_ms])
            async for item in news:
                yield pb.ClusterChanges(
                    job_ids=sorted(item.job_ids),
                    many_jobs=item.many_jobs,
                    workers=item.workers,
                    endpoints=item.endpoints,
                    revoked_token_ids=sorted(item.revoked) if sees_all else [],
                )

    async def CreateLoginLink(self, request: pb.CreateLoginLinkRequest, context: Context) -> pb.CreateLoginLinkResponse:
        principal = current_principal()
        is_admin = principal.kind is PrincipalKind.ADMIN
        link = await self._controller.dashboard.link(
            principal.user,
            is_admin=is_admin,
            may_write=request.allow_changes,
            port=request.port,
            token_id=principal.token_id,
        )
        return pb.CreateLoginLinkResponse(url=link.url, note=link.note)

    async def ControllerFigures(
        self, request: pb.ControllerFiguresRequest, context: Context
    ) -> pb.ControllerFiguresResponse:
        controller, view = self._controller, self._controller.view
        figures, principal = controller.engine.figures, current_principal()
        with self._process.oneshot():
            memory, cpu = self._process.memory_info().rss, self._process.cpu_times()
        queue = [
            pb.QueuedJob(
                job_id=job_id,
                band=view.jobs[job_id].spec.band,
                pending_tasks=len(view.pending[job_id]),
                reason=controller.pending_reason(job_id) if may_read(principal, job_id) else "",
                submitted_at_ms=view.jobs[job_id].submitted_at_ms,
            )
            for job_id in islice(self._places.at(controller.clock_ms()), _MOST_QUEUED)
            if job_id in view.pending
        ]
        return pb.ControllerFiguresResponse(
            at_ms=controller.clock_ms(),
            started_at_ms=controller.started_at_ms,
            rpcs=[_timing(method.rpartition(".")[2], times) for method, times in sorted(figures.calls.items())],
            rounds=_timing("rounds", figures.rounds),
            commits=_timing("commits", figures.commits),
            events=figures.events,
            rss_bytes=memory,
            cpu_seconds=cpu.user + cpu.system,
            worker_sessions=sum(controller.sessions.present(worker_id) for worker_id in view.workers),
            client_sessions=len(controller.clients),
            stalled=controller.engine.stalled,
            version=controller.version(),
            queue=queue,
            queued_jobs=len(view.queue),
        )


def _timing(name: str, times: Times) -> pb.Timing:
    return pb.Timing(
        name=name,
        count=times.count,
        seconds=times.seconds,
        last_ms=times.last_ms,
        p99_ms=times.p99_ms,
        errors=times.errors,
    )
