"""ClusterService: the state of the cluster, and its shutdown."""

# ruff: noqa: ARG002  # every method takes grpc's context and a request, needed or not

import asyncio
import os
from typing import Any, Final

from iris.autoscale.model import SliceRecord
from iris.autoscale.plan import GroupStatus
from iris.autoscale.runtime import Autoscaler
from iris.controller.access.authority import may_read
from iris.controller.access.interceptor import current_caller, current_principal
from iris.controller.clients.sessions import StoppedJobs
from iris.controller.context import Controller, Shutdown
from iris.core.state.booking import Booking
from iris.domain.entities import UserBudget, Worker
from iris.domain.events import BudgetSet
from iris.domain.ids import WorkerId, validate_name
from iris.domain.scale_groups import ScaleGroup
from iris.domain.states import TaskState
from iris.rpc.auth import PrincipalKind
from iris.rpc.convert import budget_from_wire, budget_to_wire, usage_to_wire
from iris.rpc.convert_job import resources_to_wire
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.generated import iris_pb2_grpc
from rigging.errors import Conflict

_STOP_MARGIN_S: Final = 5.0
_NAMES_SHOWN: Final = 5
_UNUSED: Final = (0, 0)

Context = Any  # grpc's own, which is untyped here


class ClusterService(iris_pb2_grpc.ClusterServiceServicer):
    """Serves users."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def Status(self, request: pb.ClusterStatusRequest, context: Context) -> pb.ClusterStatusResponse:
        controller, view = self._controller, self._controller.view
        await controller.engine.settled()
        replicator = controller.replicator
        wanted = frozenset(request.worker_ids)
        running = sum(view.jobs[job_id].count(TaskState.RUNNING) for job_id in view.live_jobs)
        used = controller.live_usage.by_worker()
        made = controller.autoscaler.plan.groups if controller.autoscaler is not None else {}
        return pb.ClusterStatusResponse(
            protocol_version=controller.config.protocol_version,
            version=controller.version(),
            started_at_ms=controller.started_at_ms,
            workers=[
                self._worker(worker, used.get(worker.worker_id, _UNUSED), worker.worker_id in wanted)
                for worker in sorted(view.workers.values(), key=lambda worker: worker.worker_id)
                if worker.worker_id in wanted
                or (not wanted and (request.all_workers or controller.sessions.present(worker.worker_id)))
            ],
            pending_tasks=sum(view.jobs[job_id].count(TaskState.PENDING) for job_id in view.live_jobs),
            running_tasks=running,
            idle_exit_ms=round(controller.config.idle_exit_s * 1000),
            state_dir=str(controller.config.state_dir),
            pid=os.getpid(),
            remote_state_dir=controller.config.remote_state_dir,
            durability=controller.config.durability.value,
            unreplicated_commits=0 if replicator is None else replicator.waiting_commits,
            last_snapshot_at_ms=0 if replicator is None else replicator.last_snapshot_at_ms,
            generation=0 if replicator is None else replicator.generation,
            disk_warning=controller.space.low if controller.space is not None else "",
            worker_trouble=controller.worker_trouble(),
            partition=controller.sessions.partition(),
            scale_groups=[_scale_group(group, made.get(group.name)) for group in controller.config.scale_groups],
        )

    async def CordonWorker(self, request: pb.CordonWorkerRequest, context: Context) -> pb.CordonWorkerResponse:
        worker_id = WorkerId(request.worker_id)
        moved = await self._controller.cordon(worker_id, request.reason, request.drain, current_caller())
        return pb.CordonWorkerResponse(moved_attempt_ids=moved)

    async def UncordonWorker(self, request: pb.UncordonWorkerRequest, context: Context) -> pb.UncordonWorkerResponse:
        former = await self._controller.uncordon(WorkerId(request.worker_id), current_caller())
        return pb.UncordonWorkerResponse(former_reason=former)

    async def RemoveWorker(self, request: pb.RemoveWorkerRequest, context: Context) -> pb.RemoveWorkerResponse:
        lost = await self._controller.remove_worker(WorkerId(request.worker_id), request.reason, current_caller())
        return pb.RemoveWorkerResponse(lost_attempt_ids=lost)

    async def ListSlices(self, request: pb.ListSlicesRequest, context: Context) -> pb.ListSlicesResponse:
        scaler = self._controller.autoscaler
        return pb.ListSlicesResponse(slices=map(_slice, scaler.slices.values() if scaler is not None else ()))

    async def CreateSlice(self, request: pb.CreateSliceRequest, context: Context) -> pb.CreateSliceResponse:
        return pb.CreateSliceResponse(name=await self._autoscaler().create_slice(request.group, current_caller().name))

    async def DeleteSlice(self, request: pb.DeleteSliceRequest, context: Context) -> pb.DeleteSliceResponse:
        await self._autoscaler().delete_slice(request.name, current_caller().name)
        return pb.DeleteSliceResponse()

    async def SetBudget(self, request: pb.SetBudgetRequest, context: Context) -> pb.SetBudgetResponse:
        set_to, caller = BudgetSet(budget_from_wire(request.budget)), current_caller()
        await self._controller.engine.decide(lambda transaction: transaction.apply(set_to, caller))
        return pb.SetBudgetResponse()

    async def ListBudgets(self, request: pb.ListBudgetsRequest, context: Context) -> pb.ListBudgetsResponse:
        await self._controller.engine.settled()
        view = self._controller.view
        if request.user:
            # A user without a budget has the default: everything.
            found = [view.budgets.get(request.user) or UserBudget(validate_name(request.user))]
        else:
            principal = current_principal()
            readable = (user for user in sorted(view.budgets) if may_read(principal, f"/{user}"))
            found = [view.budgets[user] for user in readable]
        return pb.ListBudgetsResponse(
            budgets=[budget_to_wire(budget, view.usage.held(budget.user)) for budget in found]
        )

    async def CreateToken(self, request: pb.CreateTokenRequest, context: Context) -> pb.CreateTokenResponse:
        users, user = self._controller.credentials.users, validate_name(request.user)
        made, text = users.create(user, request.note, str(current_principal()))
        await self._controller.confirm()
        return pb.CreateTokenResponse(token=self._controller.pinned(text), token_id=made.token_id)

    async def Checkpoint(self, request: pb.CheckpointRequest, context: Context) -> pb.CheckpointResponse:
        controller = self._controller
        if controller.replicator is None:
            raise Conflict(
                "this controller keeps its state on its own disk alone; set storage.remote_state_dir in its config, or "
                "--remote-state-dir, to have somewhere for a checkpoint"
            )
        await controller.engine.settled()
        snapshot = await asyncio.to_thread(controller.replicator.snapshot)
        return pb.CheckpointResponse(
            remote_state_dir=controller.config.remote_state_dir,
            generation=snapshot.generation,
            sequence=snapshot.sequence,
            at_ms=snapshot.at_ms,
        )

    async def Shutdown(self, request: pb.ShutdownRequest, context: Context) -> pb.ShutdownResponse:
        controller, view = self._controller, self._controller.view
        live, caller = list(view.live_jobs), current_caller()
        if live and not request.stop_jobs:
            more = f" and {len(live) - _NAMES_SHOWN} more" if len(live) > _NAMES_SHOWN else ""
            raise Conflict(
                f"{len(live)} live job(s): {', '.join(live[:_NAMES_SHOWN])}{more}; stop them first, or shut down with "
                "stop_jobs"
            )
        stops = [controller.begin_stop(job_id, "the cluster was shut down", caller=caller) for job_id in live]
        answers = await asyncio.gather(*stops)
        stopped = [job_id for answer in answers if isinstance(answer, StoppedJobs) for job_id in answer.job_ids]
        if stopped:
            try:
                await controller.waiters.wait(stopped, False, controller.config.stop_grace_s + _STOP_MARGIN_S)
            except asyncio.CancelledError:
                controller.request_exit(Shutdown("shut down on request", workers_exit=True))
                raise
        left: list[str] = []
        if request.delete_slices and controller.autoscaler is not None:
            left += await controller.autoscaler.end(caller.name)
        controller.request_exit(Shutdown("shut down on request", workers_exit=True))
        return pb.ShutdownResponse(stopped_job_ids=stopped, left_slices=left)

    async def Query(self, request: pb.QueryRequest, context: Context) -> pb.QueryResponse:
        await self._controller.engine.settled()
        principal = current_principal()
        reader = None if principal.kind is PrincipalKind.ADMIN else principal.user
        return pb.QueryResponse.FromString(
            await self._controller.queries.ask(principal.user, request.sql, request.max_rows, reader)
        )

    def _autoscaler(self) -> Autoscaler:
        if self._controller.autoscaler is None:
            raise Conflict("this cluster creates no machines: its file has no scale_groups with a slice_template")
        return self._controller.autoscaler

    def _worker(self, worker: Worker, used: tuple[int, int], with_attempts: bool) -> pb.WorkerInfo:
        view = self._controller.view
        here = list(view.attempts_on(worker.worker_id))
        host = self._controller.sessions.host_of(worker.worker_id) if worker.connected else None
        skew = host.skew if host is not None else None
        bookings = [booking for booking in here if not (booking.stopping or booking.prefilled)]
        return pb.WorkerInfo(
            worker_id=worker.worker_id,
            capacity=resources_to_wire(worker.capacity),
            attributes=dict(worker.attributes),
            connected=worker.connected,
            last_seen_at_ms=worker.last_seen_at_ms,
            committed=resources_to_wire(view.committed(worker.worker_id)),
            running_tasks=len(bookings),
            used_cpu_millis=used[0],
            used_memory_bytes=used[1],
            cordon_reason=worker.cordon_reason,
            strikes=worker.strikes,
            is_late=worker.connected and worker.is_late,
            trouble=worker.trouble if worker.connected else "",
            address=host.address if host is not None else "",
            version=host.version if host is not None else "",
            protocol_version=host.protocol_version if host is not None else 0,
            clock_skew_ms=None if skew is None else skew[0],
            clock_error_ms=0 if skew is None else skew[1],
            rival_address=self._controller.sessions.rival_of(worker.worker_id) if worker.connected else "",
            cordoned_by=worker.cordoned_by,
            cordoned_at_ms=worker.cordoned_at_ms,
            attempts=map(self._attempt, here) if with_attempts else (),
        )

    def _attempt(self, booking: Booking) -> pb.WorkerAttempt:
        name = booking.attempt_id
        task, number = self._controller.view.find_attempt(name)
        is_wanted = task is not None and task.attempt == number and not booking.stopping
        use = self._controller.live_usage.of_attempt(name)
        return pb.WorkerAttempt(
            attempt_id=name,
            state=task.state.word if task is not None and is_wanted else "stopping",
            usage=None if use is None else usage_to_wire(name, use.usage),
        )


def _scale_group(group: ScaleGroup, status: GroupStatus | None) -> pb.ScaleGroupInfo:
    status = status or GroupStatus()
    return pb.ScaleGroupInfo(
        name=group.name,
        capacity=resources_to_wire(group.host),
        hosts_per_slice=group.hosts_per_slice,
        min_slices=group.min_slices,
        max_slices=group.max_slices,
        attributes=group.host_attributes,
        demand=status.demand,
        ready=status.ready,
        booting=status.booting,
        failed=status.failed,
        outcome=status.outcome,
        next_try_ms=status.next_try_ms,
        trouble=status.trouble,
    )


def _slice(record: SliceRecord) -> pb.SliceInfo:
    return pb.SliceInfo(
        name=record.name,
        scale_group=record.group,
        state=record.state.name.lower(),
        created_at_ms=record.created_ms,
        changed_at_ms=record.changed_ms,
        joined_at_ms=record.joined_ms,
        outcome=record.outcome or "",
        words=record.words,
        reason=record.reason,
        asked_by=record.asked_by,
    )
