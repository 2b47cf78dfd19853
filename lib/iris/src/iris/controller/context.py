"""The running controller's parts, as the services use them, and the decisions that need several of them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

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
from iris.core.rules.job_rules import check_band, check_parent
from iris.core.state.view import ClusterView
from iris.domain.events import JobSubmitted, StopRequested, WorkerCordoned, WorkerGone, WorkerUncordoned
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.job_spec import JobSpec
from iris.domain.scale_groups import offers as group_offers
from iris.domain.states import ExistingJobPolicy
from iris.rpc.convert_job import SpecReader
from iris.sched.preferences import with_preferences
from iris.store.replicate.replicator import Replicator
from iris.tls.pins import PinnedToken
from rigging.errors import AlreadyExists, Conflict, InvalidRequest

# A worker that went less than an hour ago may come back: what only it could run is accepted, and waits for it.
_AWAY_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The reason for the controller's end, and whether its workers end with it."""

    reason: str
    workers_exit: bool


@dataclass(frozen=True, slots=True)
class Controller:
    """The running controller's parts, put together by `iris.controller.assembly`.

    Args:
        replicator: Keeps the state off the machine, if anything does.
        notifier: Tells others of the ends of jobs, if anything does.
        request_exit: Ends the controller soon after the present call.
        space: Refuses new jobs while the disk is nearly full; None: nothing is refused.
        worker_trouble: Why the worker that belongs to this controller does not start; "" while all is well.
        barrier: Holds back what workers hear until it is off the machine; None: nothing is held back.
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
    notifier: Notifier | None
    replicator: Replicator | None
    started_at_ms: int
    clock_ms: Callable[[], int]
    request_exit: Callable[[Shutdown], None]
    space: DiskSpace | None = None
    worker_trouble: Callable[[], str] = str
    barrier: ReplicationBarrier | None = None

    @property
    def view(self) -> ClusterView:
        return self.engine.view

    def version(self) -> str:
        """Return the release of this controller."""
        from importlib.metadata import version  # slow to import, and seldom needed

        return version("marin-iris")

    def pinned(self, token: str) -> str:
        """Return a token as its holder needs it: with the authority of this controller, where it serves with TLS."""
        return PinnedToken(token, self.config.ca_sha256).text

    def end_waits(self) -> None:
        """Answer every wait and watch of a client, and each that begins."""
        self.waiters.close()
        self.clients.close()
        self.endpoints.close()
        self.changes.close()

    def pending_reason(self, job_id: JobId) -> str:
        """Return why the first pending task of a job is not placed, or another waits on its worker; "": neither."""
        reason = self.engine.reasons.get(job_id, "")
        if not reason:
            return self.attempt_waits.of_job(job_id) or self._retry_wait(job_id)
        trouble = self.worker_trouble() if reason else ""
        return f"{reason}; a worker does not start: {trouble}" if trouble else reason

    def _retry_wait(self, job_id: JobId) -> str:
        for at_ms, index in self.view.delays.of_job(job_id):
            at = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S UTC")
            return f"task {index} has failed and is tried again at {at}"
        return ""

    async def begin_submit(
        self, spec: JobSpec, idempotency_key: str, existing: ExistingJobPolicy
    ) -> "asyncio.Future[Answer]":
        """Check a job and have it decided in the next batch: the result is a `Submitted`, once it is committed.

        Raises, at once or in the future:
            BudgetExceeded: The controller's disk is nearly full.
            InvalidRequest: It can never run as asked. NotFound, Conflict: Its parent is unknown or has ended, or the
                key was used for another job. AlreadyExists: A live job has the name, and the policy is to fail.

        Args:
            spec: The job as asked for.
            idempotency_key: A repeated submission with this key finds the job of the first; empty: none.
            existing: Policy for a live job of the same name.
        """
        if self.space is not None:
            self.space.check("new jobs")
        spec = self.admission.check(spec)
        if spec.notify_url and self.notifier is not None:
            await self.notifier.check(spec.notify_url)
        if not self.uploads.is_known(spec):
            await self.uploads.check(spec)
        return self.engine.begin(lambda transaction: self.admit(transaction, spec, idempotency_key, existing))

    async def confirm(self) -> None:
        """Return once all that is committed is as durable as the cluster promises before it answers."""
        if self.replicator is not None and self.config.durability is Durability.REMOTE:
            await self.replicator.wait()

    def begin_stop(self, job_id: JobId, reason: str, keep_children: bool = False) -> "asyncio.Future[Answer]":
        """Have a job ended in the next batch, and (unless told not to) those below it; the result is a `StoppedJobs`.

        The future raises NotFound.

        Args:
            job_id: The job.
            reason: Shown as the jobs' error.
            keep_children: Leave the jobs below it alone.
        """
        return self.engine.begin(lambda transaction: _stop(transaction, job_id, reason, keep_children))

    async def stop_job(self, job_id: JobId, reason: str, keep_children: bool) -> StoppedJobs:
        """End a job and (unless told not to) those below it. Raises NotFound.

        Args:
            job_id: The job.
            reason: Shown as the jobs' error.
            keep_children: Leave the jobs below it alone.
        """
        return await self.engine.decide(lambda transaction: _stop(transaction, job_id, reason, keep_children))

    async def cordon(self, worker_id: WorkerId, reason: str, drain: bool) -> list[AttemptId]:
        """Assign nothing more to a worker; with `drain` send away what runs there, and return those attempts.

        Raises NotFound, InvalidRequest without a reason.

        Args:
            worker_id: The worker.
            reason: Shown with the worker.
            drain: Send its live attempts elsewhere.
        """

        def decide(transaction: Transaction) -> list[AttemptId]:
            before = [booking.attempt_id for booking in transaction.view.attempts_on(worker_id) if not booking.stopping]
            transaction.apply(WorkerCordoned(worker_id, reason, drain))
            return before if drain else []

        return await self.engine.decide(decide)

    async def uncordon(self, worker_id: WorkerId) -> str:
        """Use a worker again; return why it was not, empty when it was. Raises NotFound."""

        def decide(transaction: Transaction) -> str:
            worker = transaction.view.workers.get(worker_id)
            transaction.apply(WorkerUncordoned(worker_id))
            return worker.cordon_reason if worker is not None else ""

        return await self.engine.decide(decide)

    async def remove_worker(self, worker_id: WorkerId, reason: str) -> list[AttemptId]:
        """Believe that a worker's host is gone, and forget it; return the attempts that were waited for.

        Raises NotFound, InvalidRequest without a reason, Conflict while the worker is connected.
        """

        def decide(transaction: Transaction) -> list[AttemptId]:
            if not reason:
                raise InvalidRequest(f"worker {worker_id} cannot be removed without a reason")
            waited = [booking.attempt_id for booking in transaction.view.attempts_on(worker_id)]
            transaction.apply(WorkerGone(worker_id, f"worker {worker_id} was removed: {reason}"))
            transaction.forget_worker(worker_id)
            return waited

        return await self.engine.decide(decide)

    def admit(self, transaction: Transaction, spec: JobSpec, key: str, existing: ExistingJobPolicy) -> Answer:
        view = transaction.view
        known = view.job_of_key.get(key) if key else None
        if known is not None:
            if known != spec.job_id:
                raise Conflict(f"idempotency key {key!r} was used for {known}, not for {spec.job_id}")
            return Submitted(known, adopted=True)
        job = view.jobs.get(spec.job_id)
        is_live = job is not None and not job.state.is_terminal
        if job is not None and is_live and existing is ExistingJobPolicy.ADOPT:
            return Submitted(job.job_id, adopted=True)
        if job is not None and is_live and existing is ExistingJobPolicy.FAIL:
            raise AlreadyExists(
                f"job {spec.job_id} exists and is {job.state.word}: stop it, adopt it, replace it, or take another name"
            )
        # Everything that may refuse the new job comes before the end of the old one.
        check_parent(view, spec)
        check_band(view, spec)
        offers = [
            (worker.worker_id, worker.capacity, worker.attributes)
            for worker in view.workers.values()
            if self.sessions.present(worker.worker_id) or transaction.now_ms - worker.last_seen_at_ms < _AWAY_MS
        ]
        self.admission.check_place(spec, offers)
        if is_live:
            transaction.apply(StopRequested(spec.job_id, "replaced by a new submission"))
        kinds = (attributes for _, _, attributes in (*offers, *group_offers(self.config.scale_groups)))
        transaction.apply(JobSubmitted(with_preferences(spec, kinds), key))
        return Submitted(spec.job_id, adopted=False)


def _stop(transaction: Transaction, job_id: JobId, reason: str, keep_children: bool) -> StoppedJobs:
    job = transaction.view.job(job_id)
    if job.state.is_terminal:
        return StoppedJobs((), job.state)
    ending, stopped = [job_id], []
    while ending:
        current = ending.pop()
        stopped.append(current)
        if not keep_children:
            ending += reversed(transaction.view.children.get(current, {}))
    transaction.apply(StopRequested(job_id, reason, keep_children))
    return StoppedJobs(tuple(stopped), None)
