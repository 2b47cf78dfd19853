"""What a reducer answers: records to replace, and effects to carry out once those are committed."""

from dataclasses import dataclass, field

from iris.domain.effects import Effect
from iris.domain.endpoints import Endpoint
from iris.domain.entities import Job, Stopping, Task, UserBudget, Worker
from iris.domain.ids import AttemptId, EndpointId, JobId, TaskId, WorkerId


@dataclass(slots=True)
class Changes:
    """Records to replace. All are stored but `lending`, which lives in memory only.

    Args:
        replaced: Jobs whose stored tasks must be deleted before `tasks` is written: an ended job's name used again.
        stopping: Attempts that begin (a record) or cease (None) to be on their way out.
        lending: Waits during which an attempt lends its cpu; 0: it takes its cpu back.
        endpoints: To write (a record) or to remove (None).
        budgets: By user. at_ms: When it happened; use of the cluster is counted from it.
    """

    jobs: dict[JobId, Job] = field(default_factory=dict)
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    workers: dict[WorkerId, Worker] = field(default_factory=dict)
    replaced: set[JobId] = field(default_factory=set)
    stopping: dict[AttemptId, Stopping | None] = field(default_factory=dict)
    lending: dict[AttemptId, int] = field(default_factory=dict)
    budgets: dict[str, UserBudget] = field(default_factory=dict)
    endpoints: dict[EndpointId, Endpoint | None] = field(default_factory=dict)
    at_ms: int = 0

    @property
    def is_durable(self) -> bool:
        """Whether there is anything to store."""
        return bool(self.jobs or self.tasks or self.workers or self.budgets or self.endpoints or self.stopping)

    def __bool__(self) -> bool:
        return bool(self.is_durable or self.lending)


@dataclass(slots=True)
class Outcome:
    """What follows from one event. Effects are due only after the changes are applied and committed."""

    changes: Changes
    effects: tuple[Effect, ...] = ()
