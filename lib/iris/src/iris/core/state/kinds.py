"""Jobs with pending tasks, by user and by what they ask for."""

from bisect import bisect_left, insort

from iris.core.state.booking import Demand
from iris.domain.entities import Job
from iris.domain.ids import JobId, parent_of, user_of
from iris.domain.job_spec import is_gang
from iris.domain.states import JobState, PriorityBand

JobKind = tuple[PriorityBand, Demand, bool, object]
"""The band, the demand, whether a limit on running jobs counts the job, and the shape of a gang."""


class WaitingKinds:
    """The queue by kind: where one job of a kind fits nowhere, those behind it do not fit either.

    Attributes:
        by_user: For each user and kind, the (sequence, job id) of the jobs, oldest first.
    """

    __slots__ = ("_places", "by_user")

    def __init__(self) -> None:
        self.by_user: dict[str, dict[JobKind, list[tuple[int, JobId]]]] = {}
        self._places: dict[JobId, tuple[JobKind, int]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.by_user.values()))

    def put(self, job: Job, demand: Demand, pending: int) -> None:
        """Add a job, or move it to another kind. Idempotent.

        Args:
            job: The job.
            demand: Its tasks' demand.
            pending: The number of its pending tasks.
        """
        job_id = job.job_id
        kind = kind_of(job, demand, pending)
        place = (kind, job.sequence)
        if self._places.get(job_id) == place:
            return
        self.remove(job_id)
        self._places[job_id] = place
        insort(self.by_user.setdefault(user_of(job_id), {}).setdefault(kind, []), (job.sequence, job_id))

    def remove(self, job_id: JobId) -> None:
        """Remove a job. Idempotent."""
        place = self._places.pop(job_id, None)
        if place is None:
            return
        user, (kind, sequence) = user_of(job_id), place
        kinds = self.by_user[user]
        jobs = kinds[kind]
        del jobs[bisect_left(jobs, (sequence, job_id))]
        if not jobs:
            del kinds[kind]
            if not kinds:
                del self.by_user[user]


def kind_of(job: Job, demand: Demand, pending: int) -> JobKind:
    """Return the kind of a job with that many pending tasks. A gang that is not whole is a kind by itself."""
    spec = job.spec
    shape: object = None
    if is_gang(spec):
        shape = (spec.coscheduling_group_by, pending) if pending == spec.replicas else job.job_id
    is_counted = job.state is JobState.PENDING and parent_of(job.job_id) is None
    return (spec.band, demand, is_counted, shape)
