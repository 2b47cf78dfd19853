"""Stopping jobs."""

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
    """Stops jobs, and reads as `ClusterReader`: the base of `IrisClient`. Thread-safe."""

    def terminate(self, job_id: str | JobName, reason: str = "", *, include_children: bool = True) -> list[str]:
        """Stop a job and its live children; return the ids of those stopped (none: it had ended before).

        The decision is final when this returns; `wait_jobs` waits until the processes are gone.

        Args:
            job_id: The job.
            reason: Shown to users.
            include_children: False: its child jobs go on.

        Raises:
            NotFound: There is no such job.
        """
        return list(self.stop(job_id, reason, include_children=include_children).job_ids)

    def stop(self, job_id: str | JobName, reason: str = "", *, include_children: bool = True) -> Stopped:
        """Stop as `terminate`; the answer also names attempts that may live on where they cannot be stopped now.

        Args:
            job_id: The job.
            reason: Shown to users.
            include_children: False: its child jobs go on.
        """
        (result,) = self.stop_many([job_id], reason, include_children=include_children)
        if isinstance(result, MarinError):
            raise result
        return result

    def stop_many(
        self, job_ids: Sequence[str | JobName], reason: str = "", *, include_children: bool = True
    ) -> list[Stopped | MarinError]:
        """Stop as `stop` many jobs in one decision; return for each its result, or why it could not be stopped.

        Args:
            job_ids: The jobs.
            reason: Shown to users.
            include_children: False: their child jobs go on.
        """
        keep = not include_children
        requests = [pb.StopJobRequest(job_id=str(job_id), reason=reason, keep_children=keep) for job_id in job_ids]
        return [reply if isinstance(reply, MarinError) else stopped(reply) for reply in self._calls.stop(requests)]

    def terminate_prefix(self, prefix: str | JobName, reason: str = "") -> list[JobName]:
        """Stop the live jobs whose names begin with `prefix`, with their children; return those that were stopped."""
        live = [state for state in JobState if state and not state.is_terminal]
        found = self.list_jobs("/" + str(prefix)[1:].partition("/")[0], states=live, limit=_MOST_LISTED)
        stopped_now: dict[JobName, None] = {}
        for status in found:
            if status.job_id.startswith(str(prefix)):
                stopped_now.update(dict.fromkeys(map(JobName.known, self.terminate(status.job_id, reason))))
        return list(stopped_now)
