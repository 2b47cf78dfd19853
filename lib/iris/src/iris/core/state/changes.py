"""Result of a reduction: records to replace, and effects to carry out once those are committed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from iris.domain.effects import Effect
from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.entities import Job, LostAttempt, Stopping, Task, UserBudget, Worker
from iris.domain.events import AttemptObserved
from iris.domain.ids import AttemptId, EndpointId, JobId, TaskId, WorkerId
from iris.domain.usage import AttemptUse


@dataclass(slots=True)
class Changes:
    """Records to replace. All are stored but `lending`, `prefilled`, `returned` and `due`, which live in memory only.

    Args:
        replaced: Jobs whose stored tasks must be deleted before `tasks` is written: an ended job's name used again.
        stopping: Attempts that begin (a record) or cease (None) to be on their way out.
        lost: Attempts given up (a record) that may still run, or that do so no more (None).
        returned: What was last heard of attempts in `lost` whose worker is back, until it is decided who goes on; None:
            it is.
        due: Tasks that have waited for their retry.
        lending: Waits during which an attempt lends its cpu; 0: it takes its cpu back.
        prefilled: Attempts that are prefilled (True) or that are known to begin after all (False).
        endpoints: To write (a record) or to remove (None).
        usage: What attempts have used; stored, and in no view.
        budgets: By user. at_ms: When it happened; use of the cluster is counted from it.
        forgotten_jobs, forgotten_workers: To be removed with all that is stored of them, before anything is written, as
            a name may have been used again. No event does so: the caller that puts them here has told the view.
    """

    jobs: dict[JobId, Job] = field(default_factory=dict)
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    workers: dict[WorkerId, Worker] = field(default_factory=dict)
    replaced: set[JobId] = field(default_factory=set)
    stopping: dict[AttemptId, Stopping | None] = field(default_factory=dict)
    lost: dict[AttemptId, LostAttempt | None] = field(default_factory=dict)
    returned: dict[AttemptId, AttemptObserved | None] = field(default_factory=dict)
    due: list[TaskId] = field(default_factory=list)
    lending: dict[AttemptId, int] = field(default_factory=dict)
    prefilled: dict[AttemptId, bool] = field(default_factory=dict)
    budgets: dict[str, UserBudget] = field(default_factory=dict)
    endpoints: dict[EndpointId, RegisteredEndpoint | None] = field(default_factory=dict)
    usage: dict[AttemptId, AttemptUse] = field(default_factory=dict)
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
        """Return changes of these records, each under its id.

        Args:
            jobs: New or changed jobs.
            tasks: New or changed tasks.
            workers: New or changed workers.
            budgets: Of users.
            endpoints: To write.
            stopping: Attempts on their way out, by id.
            lost: Attempts given up, by id.
        """
        return cls(
            jobs={job.spec.job_id: job for job in jobs},
            tasks={task.task_id: task for task in tasks},
            workers={worker.worker_id: worker for worker in workers},
            budgets={budget.user: budget for budget in budgets},
            endpoints={endpoint.endpoint_id: endpoint for endpoint in endpoints},
            stopping=dict(stopping),
            lost=dict(lost),
        )

    @property
    def is_durable(self) -> bool:
        """True if there is anything to store."""
        return bool(
            self.jobs
            or self.tasks
            or self.workers
            or self.budgets
            or self.endpoints
            or self.stopping
            or self.lost
            or self.usage
            or self.forgotten_jobs
            or self.forgotten_workers
        )

    def __bool__(self) -> bool:
        return bool(self.is_durable or self.lending or self.prefilled or self.returned or self.due)


@dataclass(slots=True)
class Reduction:
    """Changes and effects of one event. Effects are due only after the changes are applied and committed."""

    changes: Changes
    effects: tuple[Effect, ...] = ()
