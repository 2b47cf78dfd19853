import io
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from iris.client.errors import JobFailedError
from iris.client.job import Job, LogThread, SomeRefused, handles
from iris.client.logs.printer import LogPrinter
from iris.client.submission.submit import Submission
from iris.client.types import JobStatus, LogLine, TaskStatus
from iris.cluster.types import JobState, TaskState
from rigging.errors import InvalidRequest, MarinError, NotFound


class Client:
    def __init__(self, state: JobState = JobState.SUCCEEDED, replicas: int = 1) -> None:
        error = "exit code 3" if state is JobState.FAILED else ""
        self.found = JobStatus("/a/b", state, replicas=replicas, error=error)
        self.asked: list[tuple[Any, ...]] = []
        self.lines: list[LogLine | BaseException] = [LogLine("/a/b/0", 0, False, 0, b"hi")]

    def status(self, job_id: str) -> JobStatus:
        self.asked.append(("status", job_id))
        return self.found

    def task_status(self, task_id: str) -> TaskStatus:
        return TaskStatus(task_id, TaskState.RUNNING)

    def list_tasks(self, job_id: str) -> list[TaskStatus]:
        return [TaskStatus(f"{job_id}/{index}", TaskState.RUNNING) for index in range(2)]

    def exception(self, status: JobStatus) -> BaseException | None:
        return LookupError("no shard") if status.state is JobState.FAILED else None

    def terminate(self, job_id: str, reason: str = "") -> list[str]:
        self.asked.append(("terminate", job_id, reason))
        return [job_id]

    def wait_jobs(self, jobs: Any, any: bool = False, timeout: float | None = None) -> list[JobStatus]:
        self.asked.append(("wait", [job.job_id for job in jobs], timeout))
        return [self.found]

    def read_logs(self, task_id: str, **options: Any) -> Iterator[LogLine]:
        self.asked.append(("logs", task_id, options))
        for line in self.lines:
            if isinstance(line, BaseException):
                raise line
            yield line


def test_a_job_asks_its_client() -> None:
    client = Client()
    job = Job(client, "/a/b", "key")
    assert repr(job) == "Job('/a/b')"
    assert (str(job.name), job.key) == ("/a/b", "key")
    assert job.status() is client.found
    assert job.state is JobState.SUCCEEDED
    assert [task.task_id for task in job.tasks()] == ["/a/b/0", "/a/b/1"]
    task = job.tasks()[1]
    assert (repr(task), task.task_index, task.job_id) == ("Task('/a/b/1')", 1, "/a/b")
    assert (task.state, [line.data for line in task.logs(3)]) == (TaskState.RUNNING, ["hi"])
    assert client.asked[-1] == ("logs", "/a/b/1", {"max_lines": 3})
    assert [line.data for line in job.logs(5)] == [b"hi"]
    assert client.asked[-1] == ("logs", "/a/b", {"max_lines": 5})
    assert job.terminate("enough") == ["/a/b"]
    assert client.asked[-1] == ("terminate", "/a/b", "enough")


def test_a_wait_raises_for_failure_unless_told_not_to() -> None:
    assert Job(Client(), "/a/b").wait().state is JobState.SUCCEEDED
    client = Client(JobState.FAILED)
    job = Job(client, "/a/b")
    assert job.wait(5, raise_on_failure=False).state is JobState.FAILED
    assert client.asked == [("wait", ["/a/b"], 5)]
    with pytest.raises(JobFailedError, match=r"^job /a/b failed: exit code 3$") as failed:
        job.wait()
    assert client.asked[-1] == ("wait", ["/a/b"], 300.0)
    assert (failed.value.job_id, failed.value.status) == ("/a/b", client.found)
    assert repr(failed.value.__cause__) == "LookupError('no shard')"
    assert str(JobFailedError(JobStatus("/a/b", JobState.KILLED))) == "job /a/b killed"


@pytest.mark.parametrize(("replicas", "shown"), [(1, b"hi\n"), (2, b"[0] hi\n")])
def test_a_wait_may_show_the_output(replicas: int, shown: bytes, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    client = Client(replicas=replicas)
    assert Job(client, "/a/b").wait(stream_logs=True).state is JobState.SUCCEEDED
    assert capsysbinary.readouterr().out == shown
    assert ("logs", "/a/b", {"from_start": True, "follow": True, "include_children": True}) in client.asked
    assert ("wait", ["/a/b"], 300.0) in client.asked
    client.lines = [MarinError("damaged")]
    assert Job(client, "/a/b").wait(stream_logs=True).state is JobState.SUCCEEDED, "no error of the wait"


class Full(io.BytesIO):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def write(self, data: Any) -> int:
        raise self._error


def printed(client: Client, out: io.BytesIO) -> LogThread:
    thread = LogThread(client, "/a/b", LogPrinter("/a/b", prefix_own=False, out=out, err=out)).start()
    assert thread.join(20)
    return thread


def test_what_ends_the_output_is_told_apart() -> None:
    assert printed(Client(), io.BytesIO()).error is None
    broken = Client()
    broken.lines.append(NotFound("no such job"))
    out = io.BytesIO()
    assert isinstance(printed(broken, out).error, NotFound)
    assert out.getvalue() == b"hi\n"
    assert printed(Client(), Full(OSError(28, "No space left on device"))).unwritten == "No space left on device"
    assert printed(Client(), Full(OSError("odd"))).unwritten == "odd"
    for error in (BrokenPipeError(), ValueError("closed")):
        gone = printed(Client(), Full(error))
        assert (gone.error, gone.unwritten) == (None, "")


def test_nothing_more_is_printed_once_it_is_stopped() -> None:
    client, go_on, out = Client(), threading.Event(), io.BytesIO()

    def lines(task_id: str, **options: Any) -> Iterator[LogLine]:
        go_on.wait(20)
        yield LogLine("/a/b/0", 0, False, 0, b"late")

    client.read_logs = lines  # type: ignore[method-assign]
    thread = LogThread(client, "/a/b", LogPrinter("/a/b", prefix_own=False, out=out, err=out)).start()
    assert not thread.join(0)
    thread.stop()
    go_on.set()
    assert thread.join(20)
    assert out.getvalue() == b""


def test_last_lines_without_an_end_are_written_when_all_is_over() -> None:
    client, out = Client(), io.BytesIO()
    client.lines = [LogLine("/a/b/c/0", 0, False, 0, b"cut", True)]
    printed(client, out)
    assert out.getvalue() == b"[c/0] cut\n"


def test_jobs_submitted_together_keep_their_places() -> None:
    client = Client()
    first, third = handles(client, [Submission("/a/1", "k1"), Submission("/a/3", "k3")])
    assert (first.job_id, first.key, third.job_id, third.key) == ("/a/1", "k1", "/a/3", "k3")
    with pytest.raises(SomeRefused, match=r"^2 of 3 jobs were refused; the first \(place 1\): bad$") as refused:
        handles(client, [Submission("/a/1", "k1"), InvalidRequest("bad"), NotFound("x")])
    assert [job and job.job_id for job in refused.value.jobs] == ["/a/1", None, None]
    assert {place: str(error) for place, error in refused.value.errors.items()} == {1: "bad", 2: "x"}
