"""Stop, hold, requeue and update jobs."""

from collections.abc import Sequence
from typing import Final

from iris.client.connection.wire import stopped
from iris.client.plan import parse_band
from iris.client.reading import ClusterReader
from iris.client.types import Stopped
from iris.cluster.types import JobName, JobState, PriorityBand, ResourceSpec
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import MarinError
from rigging.text.quantities import check_count, check_seconds

_MOST_LISTED: Final = 1000


class JobStopper(ClusterReader):
    """Stop, hold, requeue and update jobs, and read like `ClusterReader`: the base of `IrisClient`. Thread-safe."""

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
        """Run a job again as it was submitted, with fresh attempts. A live job is stopped first. Return its state
        before.

        Raises:
            NotFound: The job does not exist. Conflict: Its parent has ended. InvalidRequest: Its files are gone.
        """
        request = pb.RequeueJobRequest(job_id=str(job_id))
        # Not repeated by itself: the second call would stop what the first one started.
        return JobState(self._connection.ask(lambda c: c.jobs.RequeueJob, request, retry=False).was)

    def update(
        self,
        job_id: str | JobName,
        *,
        priority_band: PriorityBand | str | None = None,
        timeout: float | None = None,
        scheduling_timeout: float | None = None,
        max_retries_failure: int | None = None,
        cpu: float | None = None,
        memory: str | int | None = None,
        disk: str | int | None = None,
    ) -> None:
        """Change limits of a live job; None leaves a limit unchanged.

        Args:
            job_id: The job.
            priority_band: As in `IrisClient.submit`.
            timeout: As in `IrisClient.submit`; 0 for no limit, like `scheduling_timeout`.
            scheduling_timeout: As in `IrisClient.submit`.
            max_retries_failure: As in `IrisClient.submit`.
            cpu: Cores of each task; only before the job's first attempt, like `memory` and `disk`.
            memory: Memory of each task.
            disk: Disk of each task.

        Raises:
            NotFound: The job does not exist. Conflict: It has ended or started. Denied: The band is not allowed.
            InvalidRequest: No worker could run the job.
        """
        asked = ResourceSpec(cpu or 0, memory or 0, disk or 0)
        request = pb.UpdateJobRequest(
            job_id=str(job_id),
            band=0 if priority_band is None else int(parse_band(priority_band)),  # type: ignore[arg-type]
            timeout_ms=None if timeout is None else round(check_seconds(timeout, "timeout", zero=True) * 1000),
            scheduling_timeout_ms=None
            if scheduling_timeout is None
            else round(check_seconds(scheduling_timeout, "scheduling_timeout", zero=True) * 1000),
            max_retries_failure=None
            if max_retries_failure is None
            else check_count(max_retries_failure, "max_retries_failure"),
            cpu_millis=None if cpu is None else asked.cpu_millis,
            memory_bytes=None if memory is None else asked.memory_bytes,
            disk_bytes=None if disk is None else asked.disk_bytes,
        )
        self._connection.ask(lambda c: c.jobs.UpdateJob, request)

    def terminate_prefix(self, prefix: str | JobName, reason: str = "") -> list[JobName]:
        """Stop the live jobs whose names begin with `prefix`, and their children. Return the stopped jobs."""
        live = [state for state in JobState if state and not state.is_terminal]
        found = self.list_jobs("/" + str(prefix)[1:].partition("/")[0], states=live, limit=_MOST_LISTED)
        stopped_now: dict[JobName, None] = {}
        for status in found:
            if status.job_id.startswith(str(prefix)):
                stopped_now.update(dict.fromkeys(map(JobName.known, self.terminate(status.job_id, reason))))
        return list(stopped_now)
