"""Many names are looked up together, and each by itself where one is not at the first place."""

from collections.abc import Sequence

from iris.cli.job.ids import find_jobs
from iris.cli.job.stopping import await_stops
from iris.client import JobStatus, SilentAttempt, Stopped
from iris.cluster.types import JobState
from rigging.errors import Denied, NotFound


class Client:
    """Has jobs /ann/a and /bob/b, and counts calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def full_name_prefix(self) -> str:
        return "/ann"

    def status(self, job_id: str) -> JobStatus:
        self.calls.append(f"status {job_id}")
        return self._status(job_id)

    def poll_jobs(self, job_ids: Sequence[str], seconds: float = 0) -> tuple[list[JobStatus], bool]:
        self.calls.append(f"poll {' '.join(job_ids)}")
        return [self._status(job_id) for job_id in job_ids], True

    def list_jobs(self, limit: int) -> list[JobStatus]:
        del limit
        return []

    def _status(self, job_id: str) -> JobStatus:
        if job_id not in ("/ann/a", "/bob/b"):
            raise NotFound(f"job {job_id} does not exist")
        return JobStatus(job_id, JobState.RUNNING)


class Stopping(Client):
    def poll_jobs(self, job_ids: Sequence[str], seconds: float = 0) -> tuple[list[JobStatus], bool]:
        self.calls.append(f"poll {' '.join(job_ids)} for {seconds:g} s")
        return [], True


def test_names_that_are_right_cost_one_call_together() -> None:
    client = Client()
    assert [status.job_id for status in find_jobs(client, ["a", "/bob/b"])[0]] == ["/ann/a", "/bob/b"]
    assert client.calls == ["poll /ann/a /bob/b"]
    client.calls.clear()
    find_jobs(client, ["a"])
    assert client.calls == ["status /ann/a"]


def test_a_name_that_is_elsewhere_or_nowhere_is_looked_for_by_itself() -> None:
    client = Client()
    found, denied, wrong = find_jobs(client, ["a", "nothing", "bob/b", "a", "nor this"])
    assert denied == []
    assert [status.job_id for status in found] == ["/ann/a", "/bob/b"]
    assert [type(error) for error in wrong] == [NotFound, NotFound]
    assert [str(error).partition(";")[0] for error in wrong] == ["no job 'nothing'", "no job 'nor this'"]


def test_what_may_not_be_read_is_given_back_to_be_refused_by_what_is_wanted() -> None:
    class Refusing(Client):
        def status(self, job_id: str) -> JobStatus:
            raise Denied(f"user ann may not read jobs of {job_id}")

    assert find_jobs(Refusing(), ["/bob/secret/"]) == ([], ["/bob/secret"], [])


def test_what_is_said_of_jobs_stopped_together() -> None:
    silent = SilentAttempt("/ann/c/0:1", "w1", 75.4)
    results = [Stopped(("/ann/a", "/ann/a/x")), Denied("not yours"), Stopped(()), Stopped(("/ann/c",), (silent,))]
    client = Stopping()
    lines = list(await_stops(client, results))
    assert lines[:3] == [" and 1 child job stopped", ": not yours", " had ended before"]
    assert lines[3].startswith(" ended, but attempt 1 of /ann/c/0 on worker w1")
    assert client.calls[0].startswith("poll /ann/a /ann/a/x for ")
