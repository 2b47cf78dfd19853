"""The cluster's limit on the running jobs of each user, during one round."""

from iris.core.state.view import ClusterView
from iris.domain.entities import Job
from iris.domain.ids import JobId, parent_of, user_of
from iris.domain.states import JobState


class RunningLimit:
    """Holds back jobs of users with the maximum number of running jobs.

    Only root jobs count and are held back, because a parent that waits for its child jobs must not block them.

    Args:
        view: Never modified.
    """

    def __init__(self, view: ClusterView) -> None:
        self._limit = view.jobs_per_user.max_running
        self._families = view.families
        self._started: dict[str, set[JobId]] = {}

    def why_held(self, job: Job) -> str:
        """Return why no task of a job may start now; empty if tasks may start."""
        if not self.counts(job):
            return ""
        user = user_of(job.job_id)
        started = self._started.get(user, set())
        if job.job_id in started:
            return ""
        counts = self._families.roots_of(user)
        running = counts.get(JobState.BUILDING, 0) + counts.get(JobState.RUNNING, 0) + len(started)
        if running < self._limit:
            return ""
        return f"user {user} has {running} running jobs; the cluster allows {self._limit} (jobs_per_user.max_running)"

    def note_start(self, job: Job) -> None:
        """Record that tasks of a job start, or get room that becomes free."""
        if self.counts(job):
            self._started.setdefault(user_of(job.job_id), set()).add(job.job_id)

    def counts(self, job: Job) -> bool:
        """Return whether the limit applies to a pending job."""
        return bool(self._limit) and job.state is JobState.PENDING and parent_of(job.job_id) is None
