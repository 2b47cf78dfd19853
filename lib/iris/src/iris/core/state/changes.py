"""The result of a reduction: records to replace, and effects to carry out after the commit."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from iris.domain.effects import Effect
from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.entities import Job, LostAttempt, Stopping, Task, UserBudget, Worker
from iris.domain.events import UNHURRIED, AttemptObserved, Record
from iris.domain.ids import AttemptId, EndpointId, JobId, TaskId, WorkerId
from iris.domain.usage import AttemptUse


@dataclass(slots=True)
class Changes:
    """Records to replace. All are stored except `lending`, `prefilled`, `returned`, `due` and `checkpoints`, which are
    only in memory.

    Args:
        updated: Jobs whose spec is new or has changed, so that it must be stored. `jobs` has all of them.
        replaced: Jobs with a reused name, whose stored tasks must be deleted before `tasks` is written.
        stopping: Attempts that start stopping (a record) or have stopped (None).
        lost: Lost attempts that may still run (a record), or no longer run (None).
        returned: The last report of attempts in `lost` whose worker has reconnected, until the decision which attempt
            continues; None after the decision.
        due: Tasks whose retry delay is over.
        checkpoints: Checkpoints that attempts reported while they were stopping, for the ledger.
        lending: The number of waits during which an attempt lends its CPUs; 0 takes them back.
        prefilled: Attempts that are prefilled (True), or that start after all (False).
        endpoints: Endpoints to write (a record) or remove (None).
        usage: The usage of attempts; stored, but not in the view.
        budgets: Budgets by user. at_ms: The time of the event, for the usage accounts.
        records: The events, in order, for the history.
        forgotten_jobs, forgotten_workers: Deleted from the store before any write, because a name may have been reused.
            No event sets these fields; their caller updates the view.
    """

    jobs: dict[JobId, Job] = field(default_factory=dict)
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    workers: dict[WorkerId, Worker] = field(default_factory=dict)
    updated: set[JobId] = field(default_factory=set)
    replaced: set[JobId] = field(default_factory=set)
    stopping: dict[AttemptId, Stopping | None] = field(default_factory=dict)
    lost: dict[AttemptId, LostAttempt | None] = field(default_factory=dict)
    returned: dict[AttemptId, AttemptObserved | None] = field(default_factory=dict)
    due: list[TaskId] = field(default_factory=list)
    checkpoints: list[RegisteredEndpoint] = field(default_factory=list)
    lending: dict[AttemptId, int] = field(default_factory=dict)
    prefilled: dict[AttemptId, bool] = field(default_factory=dict)
    budgets: dict[str, UserBudget] = field(default_factory=dict)
    endpoints: dict[EndpointId, RegisteredEndpoint | None] = field(default_factory=dict)
    usage: dict[AttemptId, AttemptUse] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    forgotten_jobs: set[JobId] = field(default_factory=set)
    forgotten_workers: set[WorkerId] = field(default_factory=set)
    at_ms: int = 0

    @classmethod
    def of(
        cls,
        jobs: Iterable[Job] = (),
        tasks: Iterable[Task] = (),
        workers: Iterable[Worker] = (),
        budgets: Iterable[UserBudget] = (),
        endpoints: Iterable[RegisteredEndpoint] = (),
        stopping: Iterable[tuple[AttemptId, Stopping]] = (),
        lost: Iterable[tuple[AttemptId, LostAttempt]] = (),
    ) -> Self:
        """Return changes of these records, each under its id, with the specs of the jobs.

        Args:
            jobs: New or changed jobs.
            tasks: New or changed tasks.
            workers: New or changed workers.
            budgets: Budgets of users.
            endpoints: Endpoints to write.
            stopping: Stopping attempts, by id.
            lost: Lost attempts, by id.
        """
        by_id = {job.spec.job_id: job for job in jobs}
        return cls(
            jobs=by_id,
            updated=set(by_id),
            tasks={task.task_id: task for task in tasks},
            workers={worker.worker_id: worker for worker in workers},
            budgets={budget.user: budget for budget in budgets},
            endpoints={endpoint.endpoint_id: endpoint for endpoint in endpoints},
            stopping=dict(stopping),
            lost=dict(lost),
        )

    @property
    def is_durable(self) -> bool:
        """Return whether there is anything to store."""
        return bool(
            self.jobs
            or self.tasks
            or self.workers
            or self.budgets
            or self.endpoints
            or self.stopping
            or self.lost
            or self.usage
            or any(not isinstance(record.what, UNHURRIED) for record in self.records)
            or self.forgotten_jobs
            or self.forgotten_workers
        )

    def __bool__(self) -> bool:
        return bool(self.is_durable or self.lending or self.prefilled or self.returned or self.due or self.checkpoints)


@dataclass(slots=True)
class Reduction:
    """Changes and effects of one event. Carry out effects only after the changes are applied and committed."""

    changes: Changes
    effects: tuple[Effect, ...] = ()
