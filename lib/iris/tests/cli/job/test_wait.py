"""`iris job wait` and `iris job bug-report`: codes, output, archives."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris.client import JobStatus, LogLine, TaskStatus
from iris.client.types import QueryResult
from iris.cluster.types import JobState, TaskState
from rigging.errors import DeadlineExceeded, Unavailable
from support.iris.cli import Client, Iris, job


class Waiting(Client):
    def wait_jobs(self, jobs: list[str], any: bool, timeout: float | None) -> list[JobStatus]:
        self.asked.append({"jobs": jobs, "any": any, "timeout": timeout})
        statuses = [self.status(job_id) for job_id in jobs]
        ended = [status.is_terminal for status in statuses]
        if not (ended.count(True) if any else all(ended)):
            raise DeadlineExceeded("not ended within 1 s: /ann/live is running")
        return statuses

    def read_logs(self, name: str, **options: Any) -> Iterator[LogLine]:
        if name.endswith("/0"):
            raise Unavailable("the logs cannot be read now")
        yield LogLine(name, 0, False, 7, b"AWS_SECRET_ACCESS_KEY=abcdefghijklmnop")
        for line in (b"-----BEGIN PRIVATE KEY-----", b"MIIEvQIBADANBgkq", b"-----END PRIVATE KEY-----"):
            yield LogLine(name, 0, False, 7, line)
        yield LogLine(name, 0, True, 8, b"\xff plain")
        yield LogLine(name, 0, True, 9, b"DB_PASSWORD=horse-battery then")
        yield LogLine(name, 0, True, 9, b'login with horse-battery, my-shells-value and two"quoted\\ failed')

    def query(self, sql: str, max_rows: int) -> QueryResult:
        return QueryResult(("kind",), (("placed",),), max_rows < 1 or not sql)

    def cluster_status(self, all_workers: bool = False) -> Any:
        raise Unavailable("only operators")


@pytest.fixture
def client() -> Waiting:
    secret = "exit code 3; token=abcdefghijklmnop123456"
    made = Waiting(
        job("/ann/good", JobState.SUCCEEDED),
        job("/ann/bad", JobState.FAILED, error=secret, deciding_task_id="/ann/bad/1", replicas=2),
        job("/ann/live"),
    )
    made.tasks = [TaskStatus(f"/ann/bad/{index}", TaskState.FAILED, 0, causes=("attempt 0: boom",)) for index in (0, 1)]
    return made


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("good", 0),
        ("good bad", 8),
        ("good live --any", 0),
        ("bad live --any", 8),
        ("good live --timeout 1", 7),
        ("good gone", 4),  # a name that is wrong is not waited without
    ],
)
def test_the_code_says_how_they_ended(words: str, code: int, iris: Iris) -> None:
    assert iris("job", "wait", *words.split())[0] == code


def test_each_job_is_waited_for_once_and_those_that_ended_are_listed(iris: Iris, client: Waiting) -> None:
    iris("job", "wait", "good", "/ann/good", "bad", "--timeout", "2m")
    assert client.asked[-1] == {"jobs": ["/ann/good", "/ann/bad"], "any": False, "timeout": 120.0}
    shown = json.loads(iris("job", "wait", "good", "bad", "live", "--any", "--json")[1])
    assert [found["job_id"] for found in shown] == ["/ann/good", "/ann/bad"]


def test_a_report_has_everything_and_no_secrets(iris: Iris, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.tar.gz"
    monkeypatch.setenv("WANDB_API_KEY", "my-shells-value")
    monkeypatch.setenv("OTHER_SECRET", 'first line\ntwo"quoted\\')
    assert iris("job", "bug-report", "bad", "-o", str(target))[0] == 0
    assert target.stat().st_mode & 0o777 == 0o600
    with tarfile.open(target) as archive:
        found = {
            member.name.partition("/")[2]: (archive.extractfile(member) or pytest.fail("no file")).read().decode()
            for member in archive
        }
    assert set(found) == {
        *("versions.json", "job.json", "tasks.json", "children.json", "cluster.json", "summary.txt", "events.json"),
        *("logs/0.txt", "logs/1.txt"),
    }
    assert json.loads(found["job.json"])["state"] == "failed"
    assert "marin-iris" in json.loads(found["versions.json"])["packages"]
    assert "attempt 0: boom" in found["summary.txt"]
    assert json.loads(found["events.json"])[0]["kind"] == "placed"
    assert found["logs/0.txt"] == "cannot be read: the logs cannot be read now\n"
    assert "8 attempt 0 stderr: � plain" in found["logs/1.txt"]
    assert "only operators" in found["cluster.json"], "what not available is said"
    assert "login with [REDACTED], [REDACTED] and [REDACTED] failed" in found["logs/1.txt"]
    secrets = ("abcdefghijklmnop", "MIIEv", "horse-battery", "my-shells-value")
    assert not any(secret in text for text in found.values() for secret in secrets)
    target.write_text("mine")
    assert iris("job", "bug-report", "bad", "-o", str(target))[0] == 3
    assert target.read_text() == "mine"
