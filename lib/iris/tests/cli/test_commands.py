"""Whole commands over a client that the test made: what they ask of the cluster, and what they say of it."""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iris.cli.context import CliContext
from iris.cli.main import run
from iris.client import JobStatus, TaskStatus, UserBudgetStatus
from iris.cluster.types import JobState, PriorityBand, TaskState
from rigging.errors import NotFound


def job(job_id: str, state: JobState = JobState.RUNNING, **fields: Any) -> JobStatus:
    parent = job_id.rpartition("/")[0]
    return JobStatus(job_id, state, parent_id=parent if parent.count("/") > 1 else "", **fields)


class Operator:
    """What an admin can do, written down."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.known = {"ann": UserBudgetStatus("ann", 12.5, PriorityBand.INTERACTIVE, 3.0)}

    def budgets(self, name: str = "") -> list[UserBudgetStatus]:
        return [self.known[name]] if name else list(self.known.values())

    def set_budget(self, name: str, *, max_weight: float, max_band: PriorityBand) -> None:
        self.done.append(("budget", name, max_weight, max_band))

    def create_token(self, name: str) -> str:
        return f"u:{name}:token"

    def cordon(self, name: str, reason: str, drain: bool = False) -> list[str]:
        self.done.append(("drain" if drain else "cordon", name, reason))
        return [f"/ann/job/{index}" for index in range(7)] if drain else []

    def uncordon(self, name: str) -> str:
        self.done.append(("uncordon", name))
        return "device errors" if name == "w1" else ""


class Client:
    """A cluster of a few jobs."""

    address = "127.0.0.1:1"

    def __init__(self, *jobs: JobStatus) -> None:
        self.jobs = list(jobs)
        self.tasks: list[TaskStatus] = []
        self.asked: list[dict[str, Any]] = []
        self.operator = Operator()
        self.workers = [SimpleNamespace(worker_id=name) for name in ("w1", "w2")]

    def full_name_prefix(self) -> str:
        return "/ann"

    def status(self, job_id: str) -> JobStatus:
        for found in self.jobs:
            if found.job_id == job_id:
                return found
        raise NotFound(f"no job {job_id}")

    def list_jobs(self, prefix: str = "", states: Sequence[JobState] = (), limit: int = 0) -> list[JobStatus]:
        self.asked.append({"prefix": prefix, "states": list(states), "limit": limit})
        return [item for item in self.jobs if item.job_id.startswith(prefix)]

    def list_tasks(self, job_id: str) -> list[TaskStatus]:
        return self.tasks

    def fetch_task_logs(self, name: str, **options: Any) -> Iterator[Any]:
        self.asked.append({"name": name, **options})
        return iter(())

    def cluster_status(self, all_workers: bool = False) -> Any:
        return SimpleNamespace(workers=self.workers)


Iris = Callable[..., tuple[int, str, str]]


@pytest.fixture
def client() -> Client:
    return Client(
        job("/ann/train", submitted_at_ms=1, command="python train.py", replicas=2),
        job("/ann/train/eval", submitted_at_ms=2),
        job("/ann/train/eval/deep", submitted_at_ms=3),
        job("/ann/train/test", JobState.FAILED, submitted_at_ms=4, error="exit code 3"),
    )


@pytest.fixture
def iris(client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iris:
    """Run a command; its exit code, what it wrote to stdout, and what it said on stderr."""

    @contextlib.contextmanager
    def make(context: CliContext, workspace: Path | None = None) -> Iterator[Client]:
        yield client

    monkeypatch.setattr(CliContext, "client", make)

    def command(*words: str) -> tuple[int, str, str]:
        code = run(list(words))
        written = capsys.readouterr()
        return code, written.out, written.err.removeprefix("iris: ")

    return command


def test_a_summary_as_json_is_the_tree_of_jobs(iris: Iris) -> None:
    code, out, _ = iris("job", "summary", "train", "--json")
    root = json.loads(out)
    assert code == 0
    assert root["job_id"] == "/ann/train"
    assert [child["job_id"] for child in root["children"]] == ["/ann/train/eval", "/ann/train/test"]
    assert [child["job_id"] for child in root["children"][0]["children"]] == ["/ann/train/eval/deep"]
    assert root["children"][1]["children"] == []


def test_a_summary_tells_of_each_task_what_became_of_its_attempts(iris: Iris, client: Client) -> None:
    client.tasks = [
        TaskStatus("/ann/train/0", TaskState.RUNNING, 1, "w1", causes=("attempt 0 on w2: lost",)),
        TaskStatus("/ann/train/1", TaskState.PENDING, pending_reason="needs 4 cores"),
    ]
    _, out, _ = iris("job", "summary", "train")
    lines = [line.split() for line in out.splitlines()]
    assert ["job:", "/ann/train"] in lines
    assert ["command:", "python", "train.py"] in lines
    assert ["0", "running", "1", "w1", "-"] in lines
    assert ["1", "pending", "-", "-", "-", "needs", "4", "cores"] in lines
    assert "  task 0: attempt 0 on w2: lost" in out.splitlines()
    assert "    /ann/train/eval/deep  running" in out.splitlines()
    assert "\n  /ann/train/test  failed" in out
    assert "finished:" not in out, "what has not happened is left out"


def test_a_list_asks_for_what_was_asked_for_and_shows_the_tree(iris: Iris, client: Client) -> None:
    words = ("--user", "ann", "--state", "failed", "--state", "running", "-n", "7")
    _, out, _ = iris("job", "list", *words)
    assert client.asked == [{"prefix": "/ann", "states": [JobState.FAILED, JobState.RUNNING], "limit": 7}]
    shown = [line.split("  running")[0].split("  failed")[0].rstrip() for line in out.splitlines()]
    assert shown[1:3] == ["/ann/train", "  /ann/train/eval"]
    assert "exit code 3" in out
    assert len(json.loads(iris("job", "list", "--json")[1])) == 4
    assert client.asked[-1] == {"prefix": "", "states": [], "limit": 50}


def test_that_there_are_no_jobs_is_said_to_people_only(iris: Iris, client: Client) -> None:
    client.jobs = []
    assert iris("job", "list") == (0, "", "no jobs\n")
    assert iris("job", "list", "--json") == (0, "[]\n", "")


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ((), {"max_lines": 0, "from_start": True, "follow": False, "include_children": True, "since": 0}),
        (("-f", "--no-children"), {"follow": True, "include_children": False}),
        (("--max-lines", "5"), {"max_lines": 5, "from_start": False}),
        (("--max-lines", "5", "--no-tail"), {"max_lines": 5, "from_start": True}),
    ],
)
def test_logs_are_asked_for_as_they_are_wanted(
    words: tuple[str, ...], options: dict[str, Any], iris: Iris, client: Client
) -> None:
    assert iris("job", "logs", "train/1", *words)[0] == 0
    asked = client.asked[-1]
    assert asked["name"] == "/ann/train/1"
    assert {name: asked[name] for name in options} == options


def test_budgets_are_shown_and_only_what_is_named_is_changed(iris: Iris, client: Client) -> None:
    _, out, _ = iris("user", "budget", "get", "ann")
    assert out.splitlines()[1].split() == ["ann", "12.5", "3", "interactive"]
    code, _, said = iris("user", "budget", "set", "ann", "--max-weight", "0")
    assert (code, said) == (0, "user ann: max weight no limit, most urgent band interactive\n")
    iris("user", "budget", "set", "ann", "--max-band", "batch")
    assert client.operator.done == [
        ("budget", "ann", 0.0, PriorityBand.INTERACTIVE),
        ("budget", "ann", 12.5, PriorityBand.BATCH),
    ]
    code, _, said = iris("user", "budget", "set", "ann")
    assert code == 2
    assert "give --max-weight, --max-band, or both" in said
    assert json.loads(iris("user", "budget", "list", "--json")[1])[0]["user"] == "ann"
    client.operator.known = {}
    assert iris("user", "budget", "list")[2] == "no user has a budget: everybody may use everything\n"


def test_a_token_is_written_to_a_new_private_file_or_shown(iris: Iris, tmp_path: Path) -> None:
    assert iris("user", "token", "create", "bob")[1] == "u:bob:token\n"
    place = tmp_path / "token"
    code, out, said = iris("user", "token", "create", "bob", "--output", str(place))
    assert (code, out) == (0, "")
    assert "u:bob:token" not in said
    assert place.read_text() == "u:bob:token\n"
    assert place.stat().st_mode & 0o777 == 0o600
    place.write_text("another's")
    assert iris("user", "token", "create", "bob", "--output", str(place))[0] != 0
    assert place.read_text() == "another's"


def test_workers_are_taken_out_of_use_and_back(iris: Iris, client: Client) -> None:
    assert iris("cluster", "worker", "cordon", "w1", "--reason", "slow")[2] == "worker w1 is cordoned: slow\n"
    said = iris("cluster", "worker", "drain", "w2")[2]
    shown = ", ".join(f"/ann/job/{index}" for index in range(5))
    assert said == f"worker w2 is drained: drained by an operator; sent elsewhere: {shown} and 2 more\n"
    assert iris("cluster", "worker", "uncordon", "w1")[2].endswith("is used again (it was cordoned: device errors)\n")
    assert iris("cluster", "worker", "uncordon", "w2")[2] == "worker w2 was not cordoned\n"
    assert [entry[:2] for entry in client.operator.done] == [
        ("cordon", "w1"),
        ("drain", "w2"),
        ("uncordon", "w1"),
        ("uncordon", "w2"),
    ]
    code, _, said = iris("cluster", "worker", "cordon", "w9")
    assert code != 0
    assert "w9" in said
    assert len(client.operator.done) == 4
