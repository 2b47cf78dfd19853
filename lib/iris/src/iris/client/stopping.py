"""Stop and hold jobs."""

from collections.abc import Sequence
from typing import Final

from iris.client.connection.wire import stopped
from iris.client.reading import ClusterReader
from iris.client.types import Stopped
from iris.cluster.types import JobName, JobState
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import MarinError

_MOST_LISTED: Final = 1000


class JobStopper(ClusterReader):
    """Stop and hold jobs, and read like `ClusterReader`: the base of `IrisClient`. Thread-safe."""

    def terminate(self, job_id: str | JobName, reason: str = "", *, include_children: bool = True) -> list[str]:
        """Stop a job and its live children. Return the ids of the stopped jobs (none if it had already ended).

        On return the decision is final. `wait_jobs` waits until the processes have exited.

        Args:
            job_id: The job.
            reason: The reason, shown to users.
            include_children: If False, child jobs continue.

        Raises:
            NotFound: The job does not exist.
        """
        return list(self.stop(job_id, reason, include_children=include_children).job_ids)

    def stop(self, job_id: str | JobName, reason: str = "", *, include_children: bool = True) -> Stopped:
        """Stop like `terminate`. The result also names attempts that may still run on unreachable hosts.

        Args:
            job_id: The job.
            reason: The reason, shown to users.
            include_children: If False, child jobs continue.
        """
        (result,) = self.stop_many([job_id], reason, include_children=include_children)
        if isinstance(result, MarinError):
            raise result
        return result

    def stop_many(
        self, job_ids: Sequence[str | JobName], reason: str = "", *, include_children: bool = True
    ) -> list[Stopped | MarinError]:
        """Stop many jobs like `stop`, in one transaction. Return each result, or why a job could not be stopped.

        Args:
            job_ids: The jobs.
            reason: The reason, shown to users.
            include_children: If False, child jobs continue.
        """
        keep = not include_children
        requests = [pb.StopJobRequest(job_id=str(job_id), reason=reason, keep_children=keep) for job_id in job_ids]
        return [reply if isinstance(reply, MarinError) else stopped(reply) for reply in self._calls.stop(requests)]

    def hold(self, job_id: str | JobName) -> str:
        """Start no task of a live job until its release. Running tasks continue. Return the hold that it had.

        Raises:
            NotFound: The job does not exist. Conflict: It has ended.
        """
        request = pb.HoldJobRequest(job_id=str(job_id))
        return self._connection.ask(lambda c: c.jobs.HoldJob, request).before

    def release(self, job_id: str | JobName) -> str:
        """Let the tasks of a held job start. Return its hold, "held by ann since ..."; empty for none.

        Raises:
            NotFound: The job does not exist.
        """
        request = pb.HoldJobRequest(job_id=str(job_id), release=True)
        return self._connection.ask(lambda c: c.jobs.HoldJob, request).before

    def requeue(self, job_id: str | JobName) -> JobState:
        """Run a job again as it was submitted, with fresh attempts. A live one is stopped first. Return its state
        before.

        Raises:
            NotFound: The job does not exist. Conflict: Its parent has ended. InvalidRequest: Its files are gone.
        """
        request = pb.RequeueJobRequest(job_id=str(job_id))
        # Not repeated by itself: the second call would stop what the first one started.
        return JobState(self._connection.ask(lambda c: c.jobs.RequeueJob, request, retry=False).was)

    def terminate_prefix(self, prefix: str | JobName, reason: str = "") -> list[JobName]:
        """Stop the live jobs whose names begin with `prefix`, and their children. Return the stopped jobs."""
        live = [state for state in JobState if state and not state.is_terminal]
        found = self.list_jobs("/" + str(prefix)[1:].partition("/")[0], states=live, limit=_MOST_LISTED)
        stopped_now: dict[JobName, None] = {}
        for status in found:
            if status.job_id.startswith(str(prefix)):
                stopped_now.update(dict.fromkeys(map(JobName.known, self.terminate(status.job_id, reason))))
        return list(stopped_now)
