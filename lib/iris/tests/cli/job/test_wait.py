"""`iris job wait` and `iris job bug-report`: codes, output, archives."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from iris.cli.context import CliContext
from iris.cli.job.bug_report import bug_report
from iris.cli.job.wait import wait
from iris.client import JobStatus, LogLine, TaskStatus
from iris.cluster.types import JobState, TaskState
from rigging.errors import AlreadyExists, DeadlineExceeded, NotFound, Unavailable

STATES = {"/ann/good": JobState.SUCCEEDED, "/ann/bad": JobState.FAILED, "/ann/live": JobState.RUNNING}


class Client:
    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def full_name_prefix(self) -> str:
        return "/ann"

    def status(self, job_id: str) -> JobStatus:
        if job_id not in STATES:
            raise NotFound(job_id)
        error = "" if STATES[job_id] is not JobState.FAILED else "exit code 3; token=abcdefghijklmnop123456"
        return JobStatus(job_id=job_id, state=STATES[job_id], error=error, deciding_task_id=f"{job_id}/1", replicas=2)

    def list_jobs(self, prefix: str = "", limit: int = 0) -> list[JobStatus]:
        return [self.status(job_id) for job_id in STATES if job_id.startswith(prefix)]

    def list_tasks(self, job_id: str) -> list[TaskStatus]:
        return [TaskStatus(f"{job_id}/{index}", TaskState.FAILED, 0, causes=("attempt 0: boom",)) for index in (0, 1)]

    def wait_jobs(self, jobs: list[str], any: bool, timeout: float | None) -> list[JobStatus]:
        self.asked = {"jobs": jobs, "any": any, "timeout": timeout}
        statuses = [self.status(job_id) for job_id in jobs]
        ended = [status.is_terminal for status in statuses]
        if not (ended.count(True) if any else all(ended)):
            raise DeadlineExceeded("not ended within 1 s: /ann/live is running")
        return statuses

    def read_logs(self, task_id: str, **options: Any) -> Any:
        if task_id.endswith("/0"):
            raise Unavailable("the logs cannot be read now")
        yield LogLine(task_id, 0, False, 7, b"AWS_SECRET_ACCESS_KEY=abcdefghijklmnop")
        for line in (b"-----BEGIN PRIVATE KEY-----", b"MIIEvQIBADANBgkq", b"-----END PRIVATE KEY-----"):
            yield LogLine(task_id, 0, False, 7, line)
        yield LogLine(task_id, 0, True, 8, b"\xff plain")

    def cluster_status(self, all_workers: bool = False) -> Any:
        raise Unavailable("only operators")


class Context(CliContext):
    def __init__(self, given: Client) -> None:
        super().__init__()
        self.given = given

    def client(self, *args: Any, **options: Any) -> Any:
        return self.given


def run(command: Any, client: Client, *words: str) -> Result:
    return CliRunner().invoke(command, words, obj=Context(client), standalone_mode=False)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("good",), 0),
        (("good", "bad"), 8),
        (("good", "live", "--any"), 0),
        (("bad", "live", "--any"), 8),
        (("good", "live", "--timeout", "1"), 7),
    ],
)
def test_the_code_says_how_they_ended(words: tuple[str, ...], code: int) -> None:
    assert run(wait, Client(), *words).return_value == code


def test_the_client_waits_for_each_job_once() -> None:
    client = Client()
    run(wait, client, "good", "/ann/good", "bad", "--timeout", "2m")
    assert client.asked == {"jobs": ["/ann/good", "/ann/bad"], "any": False, "timeout": 120.0}


def test_those_that_ended_are_listed() -> None:
    result = run(wait, Client(), "good", "bad", "live", "--any", "--json")
    assert [job["job_id"] for job in json.loads(result.stdout)] == ["/ann/good", "/ann/bad"]


def test_a_name_that_is_wrong_is_not_waited_without() -> None:
    result = run(wait, Client(), "good", "gone")
    assert isinstance(result.exception, NotFound)


def test_a_report_has_everything_and_no_secrets(tmp_path: Path) -> None:
    target = tmp_path / "report.tar.gz"
    assert run(bug_report, Client(), "bad", "-o", str(target)).exit_code == 0
    assert target.stat().st_mode & 0o777 == 0o600
    with tarfile.open(target) as archive:
        found = {
            member.name.partition("/")[2]: (archive.extractfile(member) or pytest.fail("no file")).read().decode()
            for member in archive
        }
    assert set(found) == {
        *("versions.json", "job.json", "tasks.json", "children.json", "cluster.json", "summary.txt"),
        *("logs/0.txt", "logs/1.txt"),
    }
    assert json.loads(found["job.json"])["state"] == "failed"
    assert "marin-iris" in json.loads(found["versions.json"])["packages"]
    assert "attempt 0: boom" in found["summary.txt"]
    assert found["logs/0.txt"] == "cannot be read: the logs cannot be read now\n"
    assert "8 attempt 0 stderr: � plain" in found["logs/1.txt"]
    assert "only operators" in found["cluster.json"], "what cannot be had is said"
    assert not any(secret in text for text in found.values() for secret in ("abcdefghijklmnop", "MIIEv"))


def test_nothing_is_written_over(tmp_path: Path) -> None:
    target = tmp_path / "report.tar.gz"
    target.write_text("mine")
    result = run(bug_report, Client(), "bad", "-o", str(target))
    assert isinstance(result.exception, AlreadyExists)
    assert target.read_text() == "mine"
