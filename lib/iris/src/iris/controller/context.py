"""The running controller's parts for the services, and operations that involve several parts."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from iris.autoscale.runtime import Autoscaler
from iris.controller.access.credentials import Credentials
from iris.controller.admission.admission import Admission
from iris.controller.admission.uploads import UploadChecks
from iris.controller.clients.endpoint_watchers import EndpointWatchers
from iris.controller.clients.sessions import Answer, ClientSessions, StoppedJobs, Submitted
from iris.controller.clients.waiters import JobWaiters
from iris.controller.config.controller_config import ControllerConfig, Durability
from iris.controller.dashboard.changes import ChangeWatchers
from iris.controller.dashboard.process import DashboardProcess
from iris.controller.engine.engine import Engine
from iris.controller.engine.replication_barrier import ReplicationBarrier
from iris.controller.engine.transaction import Transaction
from iris.controller.logs.hub import LogHub
from iris.controller.notices.notifier import Notifier
from iris.controller.storage.blobs import BlobStore
from iris.controller.storage.disk_space import DiskSpace
from iris.controller.storage.query_processes import QueryProcesses
from iris.controller.workers.attempt_waits import AttemptWaits
from iris.controller.workers.live_usage import LiveUsage
from iris.controller.workers.sessions import Sessions
from iris.core.rules.after_rules import open_waits, waits_reason, without_removed
from iris.core.rules.job_rules import check_band, check_parent, check_pending_jobs, reserved_beside, updated_spec
from iris.core.state.view import ClusterView
from iris.domain.events import (
    NOBODY,
    Caller,
    JobHeld,
    JobReleased,
    JobSubmitted,
    JobUpdated,
    StopRequested,
    WorkerCordoned,
    WorkerGone,
    WorkerUncordoned,
)
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.job_spec import JobSpec
from iris.domain.scale_groups import offers as group_offers
from iris.domain.states import ExistingJobPolicy, JobState, TaskState
from iris.rpc.convert_job import SpecReader
from iris.sched.feasible import WorkerCapacity
from iris.sched.preferences import with_image, with_preferences
from iris.store.history import History
from iris.store.replicate.replicator import Replicator
from iris.tls.pins import PinnedToken
from rigging.errors import AlreadyExists, Conflict, InvalidRequest

# A worker that went less than an hour ago may come back: what only it could run is accepted, and waits for it.
_AWAY_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Why the controller exits, and whether its workers exit with it."""

    reason: str
    workers_exit: bool


@dataclass(frozen=True, slots=True)
class Controller:
    """The running controller's parts, built by `iris.controller.assembly`.

    Args:
        replicator: Replicates the state; None without a remote state.
        notifier: Sends notices of jobs' ends; None for none.
        request_exit: Ends the controller soon after the current call.
        space: Refuses new jobs while the disk is nearly full; None never refuses.
        worker_trouble: Why the controller's own worker does not start; "" if it starts.
        autoscaler: Starts and ends machines; None starts none.
        barrier: Delays messages to workers until a commit is replicated; None never delays.
    """

    config: ControllerConfig
    secret: bytes
    engine: Engine
    blobs: BlobStore
    admission: Admission
    specs: SpecReader
    uploads: UploadChecks
    hub: LogHub
    live_usage: LiveUsage
    attempt_waits: AttemptWaits
    sessions: Sessions
    waiters: JobWaiters
    clients: ClientSessions
    endpoints: EndpointWatchers
    changes: ChangeWatchers
    dashboard: DashboardProcess
    queries: QueryProcesses
    credentials: Credentials
    history: History
    notifier: Notifier | None
    replicator: Replicator | None
    started_at_ms: int
    clock_ms: Callable[[], int]
    request_exit: Callable[[Shutdown], None]
    space: DiskSpace | None = None
    worker_trouble: Callable[[], str] = str
    autoscaler: Autoscaler | None = None
    barrier: ReplicationBarrier | None = None

    @property
    def view(self) -> ClusterView:
        return self.engine.view

    def version(self) -> str:
        """Return the release of this controller."""
        from importlib.metadata import version  # slow to import, and seldom needed

        return version("marin-iris")

    def pinned(self, token: str) -> str:
        """Return a token in the form for its holder, with the digest of this controller's CA if it serves with TLS."""
        return PinnedToken(token, self.config.ca_sha256).text

    def end_waits(self) -> None:
        """End every wait and watch of clients, including new ones."""
        self.waiters.close()
        self.clients.close()
        self.endpoints.close()
        self.changes.close()

    def pending_reason(self, job_id: JobId) -> str:
        """Return why the first pending task of a job is not placed, or why a placed task waits on its worker; "" for
        neither.
        """
        job = self.view.jobs.get(job_id)
        if job is not None and job.is_barred and not job.state.is_terminal:
            waits = "it start" if job.count(TaskState.PENDING) else "its retries start"
            hold = f"{job.hold}; `iris job release` lets {waits}" if job.hold else ""
            return "; ".join(filter(None, (hold, waits_reason(job) if job.waits else "")))
        reason = self.engine.reasons.get(job_id, "")
        if not reason:
            return self.attempt_waits.of_job(job_id) or self._retry_wait(job_id)
        trouble = self.worker_trouble()
        machines = self.autoscaler.reason(job_id) if self.autoscaler is not None else ""
        parts = (reason, machines, f"a worker does not start: {trouble}" if trouble else "")
        return "; ".join(filter(None, parts))

    def _retry_wait(self, job_id: JobId) -> str:
        for at_ms, index in self.view.delays.of_job(job_id):
            moment = datetime.fromtimestamp(at_ms / 1000, UTC)
            if at_ms == self.view.jobs[job_id].spec.start_at_ms:
                return f"starts at {moment:%Y-%m-%d %H:%M:%S} UTC, as asked for"
            at = moment.strftime("%H:%M:%S UTC")
            return f"task {index} has failed and will be retried at {at}"
        return ""

    async def begin_submit(
        self, spec: JobSpec, idempotency_key: str, existing: ExistingJobPolicy, caller: Caller
    ) -> "asyncio.Future[Answer]":
        """Validate a job and submit it in the next batch. The future's result is a `Submitted`, after the commit.

        Raise, immediately or in the future:
            BudgetExceeded: The controller's disk is nearly full, or the user has too many pending jobs.
            InvalidRequest: The job can never run as requested. NotFound, Conflict: The parent is unknown or has ended.
            AlreadyExists: A live job has the name, and the policy is to fail.

        Args:
            spec: The requested job.
            idempotency_key: A repeated submission of this name and key returns the first one's job; empty for none.
            existing: What to do if a live job has the same name.
            caller: The caller who requested it.
        """
        if self.space is not None:
            self.space.check("new jobs")
        spec = self.admission.check(spec)
        if spec.notify_url and self.notifier is not None:
            await self.notifier.check(spec.notify_url)
        if not self.uploads.is_known(spec):
            await self.uploads.check(spec)
        return self.engine.begin(lambda transaction: self.admit(transaction, spec, idempotency_key, existing, caller))

    async def confirm(self) -> None:
        """Wait until all commits are as durable as the cluster's configured durability."""
        if self.replicator is not None and self.config.durability is Durability.REMOTE:
            await self.replicator.wait()

    def begin_stop(
        self, job_id: JobId, reason: str, keep_children: bool = False, caller: Caller = NOBODY
    ) -> "asyncio.Future[Answer]":
        """End a job in the next batch and, by default, its descendants. The future's result is a `StoppedJobs`.

        The future raises NotFound.

        Args:
            job_id: The job.
            reason: The jobs' error text.
            keep_children: Do not end the descendants.
            caller: The caller who requested it.
        """
        return self.engine.begin(lambda transaction: _stop(transaction, job_id, reason, keep_children, caller))

    async def stop_job(self, job_id: JobId, reason: str, keep_children: bool, caller: Caller) -> StoppedJobs:
        """End a job and, by default, its descendants. Raise NotFound.

        Args:
            job_id: The job.
            reason: The jobs' error text.
            keep_children: Do not end the descendants.
            caller: The caller who requested it.
        """
        return await self.engine.decide(lambda transaction: _stop(transaction, job_id, reason, keep_children, caller))

    async def requeue(self, job_id: JobId, caller: Caller = NOBODY) -> JobState:
        """Submit a job again, as it was submitted; stop it first if it lives. A held one stays held. Return its state
        before.

        Raises:
            NotFound: The job does not exist. Conflict: Its parent has ended, or another job took its name meanwhile.
            InvalidRequest: Its files are gone, or no worker could run it any more. Denied: Its band is not allowed now.
        """
        job = self.view.job(job_id)
        if self.space is not None:
            self.space.check("new jobs")
        try:
            await self.uploads.check(job.spec)
        except InvalidRequest as error:
            raise InvalidRequest(f"job {job_id} cannot be requeued; submit it again: {error}") from None

        def decide(transaction: Transaction) -> JobState:
            now = transaction.view.job(job_id)
            if now.sequence != job.sequence:
                raise Conflict(f"job {job_id} was replaced by another one meanwhile; look at that one first")
            spec = without_removed(transaction.view, job.spec)
            self.admit(transaction, spec, "", ExistingJobPolicy.REPLACE, caller, "requeued")
            if now.hold and not now.state.is_terminal:
                transaction.apply(JobHeld(job_id, caller.name), caller)
            return now.state

        return await self.engine.decide(decide)

    async def update(self, event: JobUpdated, caller: Caller = NOBODY) -> None:
        """Change limits of a live job, and resources of one that has not started.

        Raise like `updated_spec`, and InvalidRequest if no worker could run the job then.
        """

        def decide(transaction: Transaction) -> None:
            spec = updated_spec(transaction.view, event)
            if spec.resources != transaction.view.job(event.job_id).spec.resources:
                self.admission.check_place(spec, self._offers(transaction))
            transaction.apply(event, caller)

        await self.engine.decide(decide)

    def _offers(self, transaction: Transaction) -> list[WorkerCapacity]:
        return [
            (worker.worker_id, worker.capacity, worker.attributes)
            for worker in transaction.view.workers.values()
            if self.sessions.present(worker.worker_id) or transaction.now_ms - worker.last_seen_at_ms < _AWAY_MS
        ]

    async def hold(self, job_id: JobId, release: bool, caller: Caller = NOBODY) -> str:
        """Start no task of a live job, or with `release` let them start. Return its hold before.

        Raise NotFound, and Conflict for a hold of an ended job.
        """

        def decide(transaction: Transaction) -> str:
            before = transaction.view.job(job_id).hold
            transaction.apply(JobReleased(job_id) if release else JobHeld(job_id, caller.name), caller)
            return before

        return await self.engine.decide(decide)

    async def cordon(self, worker_id: WorkerId, reason: str, drain: bool, caller: Caller = NOBODY) -> list[AttemptId]:
        """Assign no new attempts to a worker. With `drain`, also move its attempts to other workers, and return them.

        Raise NotFound, and InvalidRequest without a reason.

        Args:
            worker_id: The worker.
            reason: The reason, shown with the worker.
            drain: Also move its live attempts to other workers.
            caller: The caller who requested it, shown with the reason.
        """

        def decide(transaction: Transaction) -> list[AttemptId]:
            before = [booking.attempt_id for booking in transaction.view.attempts_on(worker_id) if not booking.stopping]
            transaction.apply(WorkerCordoned(worker_id, reason, drain, caller.name), caller)
            return before if drain else []

        return await self.engine.decide(decide)

    async def uncordon(self, worker_id: WorkerId, caller: Caller = NOBODY) -> str:
        """Allow assignments to a worker again. Return the reason for its cordon; empty for none. Raise NotFound."""

        def decide(transaction: Transaction) -> str:
            worker = transaction.view.workers.get(worker_id)
            transaction.apply(WorkerUncordoned(worker_id), caller)
            return worker.cordon_reason if worker is not None else ""

        return await self.engine.decide(decide)

    async def remove_worker(self, worker_id: WorkerId, reason: str, caller: Caller = NOBODY) -> list[AttemptId]:
        """Treat a worker's host as gone and remove the worker. Return the attempts that waited for it.

        Raise NotFound, InvalidRequest without a reason, and Conflict while the worker is connected.
        """

        def decide(transaction: Transaction) -> list[AttemptId]:
            if not reason:
                raise InvalidRequest(f"worker {worker_id} cannot be removed without a reason")
            waited = [booking.attempt_id for booking in transaction.view.attempts_on(worker_id)]
            transaction.apply(WorkerGone(worker_id, f"worker {worker_id} was removed: {reason}"), caller)
            transaction.forget_worker(worker_id)
            return waited

        return await self.engine.decide(decide)

    def admit(
        self,
        transaction: Transaction,
        spec: JobSpec,
        key: str,
        existing: ExistingJobPolicy,
        caller: Caller,
        why: str = "replaced by a new submission",
    ) -> Answer:
        view = transaction.view
        job = view.jobs.get(spec.job_id)
        if job is not None and key and job.idempotency_key == key:
            return Submitted(job.job_id, adopted=True)
        is_live = job is not None and not job.state.is_terminal
        if job is not None and is_live and existing is ExistingJobPolicy.ADOPT:
            return Submitted(job.job_id, adopted=True)
        if job is not None and is_live and existing is ExistingJobPolicy.FAIL:
            raise AlreadyExists(
                f"job {spec.job_id} exists and is {job.state.word}: stop it, adopt it, replace it, or use another name"
            )
        # Everything that may refuse the new job comes before the end of the old one.
        check_parent(view, spec)
        open_waits(view, spec)
        check_band(view, spec)
        check_pending_jobs(view, spec)
        spec, offers = with_image(spec, self.config.platform.task_image), self._offers(transaction)
        self.admission.check_place(spec, offers)
        if spec.reserve:
            self.admission.check_reservation(spec, reserved_beside(view, spec), offers)
        if is_live:
            transaction.apply(StopRequested(spec.job_id, why), caller)
        kinds = (attributes for _, _, attributes in (*offers, *group_offers(self.config.scale_groups)))
        transaction.apply(JobSubmitted(with_preferences(spec, kinds), key), caller)
        return Submitted(spec.job_id, adopted=False)


def _stop(transaction: Transaction, job_id: JobId, reason: str, keep_children: bool, caller: Caller) -> StoppedJobs:
    job = transaction.view.job(job_id)
    if job.state.is_terminal:
        return StoppedJobs((), job.state)
    ending, stopped = [job_id], []
    while ending:
        current = ending.pop()
        stopped.append(current)
        if not keep_children:
            ending += reversed(transaction.view.children.get(current, {}))
    transaction.apply(StopRequested(job_id, reason, keep_children), caller)
    return StoppedJobs(tuple(stopped), None)
