"""Whole commands over a client that the test made: what they ask of the cluster, and what they say of it."""

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iris.cli.context import CliContext
from iris.cli.main import run
from iris.client import JobStatus, QueryResult, SilentAttempt, Stopped, TaskStatus, UserBudgetStatus, WorkerStatus
from iris.client.tokens import UserTokenStatus
from iris.client.types import LogLine
from iris.cluster.types import JobState, PriorityBand, TaskState
from rigging.errors import Denied, NotFound


def job(job_id: str, state: JobState = JobState.RUNNING, **fields: Any) -> JobStatus:
    parent = job_id.rpartition("/")[0]
    return JobStatus(job_id, state, parent_id=parent if parent.count("/") > 1 else "", **fields)


class Operator:
    """What an admin can do, written down."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.moved = [f"/ann/job/{index}" for index in range(7)]
        self.known = {"ann": UserBudgetStatus("ann", 12.5, PriorityBand.INTERACTIVE, 3.0)}

    def budgets(self, name: str = "") -> list[UserBudgetStatus]:
        return [self.known[name]] if name else list(self.known.values())

    def set_budget(self, name: str, *, max_weight: float, max_band: PriorityBand) -> None:
        self.done.append(("budget", name, max_weight, max_band))

    def create_token(self, name: str, note: str) -> str:
        self.done.append(("token", name, note))
        return f"u:{name}:token"

    def user_tokens(self, name: str) -> list[UserTokenStatus]:
        made = [UserTokenStatus("ab12", "ann", "laptop", "admin root", 1), UserTokenStatus(
            "signed-bob", "bob", "made by an earlier release", "", 0, "admin root", 5)]  # fmt: skip
        return [token for token in made if name in ("", token.user)]

    def revoke_user_token(self, token_id: str) -> UserTokenStatus:
        self.done.append(("revoke", token_id))
        return self.user_tokens("ann")[0]

    def cordon(self, name: str, reason: str, drain: bool = False) -> list[str]:
        self.done.append(("drain" if drain else "cordon", name, reason))
        return self.moved if drain else []

    def remove_worker(self, name: str, reason: str) -> list[str]:
        self.done.append(("remove", name, reason))
        return self.moved

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
        self.workers: list[Any] = [SimpleNamespace(worker_id=name) for name in ("w1", "w2")]
        self.lines: list[LogLine] = []
        self.refused: Denied | None = None

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

    def read_logs(self, name: str, **options: Any) -> Iterator[Any]:
        self.asked.append({"name": name, **options})
        return iter(self.lines)

    def poll_jobs(self, job_ids: Sequence[str], *, seconds: float = 0) -> tuple[list[JobStatus], bool]:
        return [self.status(job_id) for job_id in job_ids], True

    def stop_many(self, job_ids: Sequence[str], reason: str, *, include_children: bool) -> list[Stopped | Denied]:
        self.asked.append({"stop": list(job_ids), "include_children": include_children})
        return [self.refused or Stopped((job_id,)) for job_id in job_ids]

    def query(self, sql: str, max_rows: int) -> QueryResult:
        self.asked.append({"sql": sql, "max_rows": max_rows})
        return QueryResult(("a", "b"), ((1, "ä"),), max_rows == 1)

    def cluster_status(self, all_workers: bool = False) -> Any:
        return SimpleNamespace(workers=self.workers)


class Context(CliContext):
    """Commands reach the test's cluster, at the test's time if it says one."""

    def __init__(self, reached: Client, now_ms: int | None) -> None:
        super().__init__()
        self._reached, self._now_ms = reached, now_ms

    @contextlib.contextmanager
    def client(self, workspace: Path | None = None) -> Iterator[Any]:
        yield self._reached

    def now_ms(self) -> int:
        return super().now_ms() if self._now_ms is None else self._now_ms


Iris = Callable[..., tuple[int, str, str]]


@pytest.fixture
def client() -> Client:
    return Client(
        job("/ann/train", submitted_at_ms=1, command="python train.py", replicas=2, description="the big one"),
        job("/ann/train/eval", submitted_at_ms=2),
        job("/ann/train/eval/deep", submitted_at_ms=3),
        job("/ann/train/test", JobState.FAILED, submitted_at_ms=4, error="exit code 3"),
    )


@pytest.fixture
def iris(client: Client, capsys: pytest.CaptureFixture[str]) -> Iris:
    """Run a command; its exit code, what it wrote to stdout, and what it said on stderr."""

    def command(*words: str, now_ms: int | None = None) -> tuple[int, str, str]:
        code = run(list(words), Context(client, now_ms))
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
    assert ["description:", "the", "big", "one"] in lines
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


def test_tokens_of_users_are_listed_and_revoked(iris: Iris, client: Client) -> None:
    header, *rows = iris("user", "token", "list")[1].splitlines()
    assert header.split() == ["TOKEN", "USER", "STATE", "MADE", "BY", "NOTE"]
    assert [row.split()[:3] for row in rows] == [["ab12", "ann", "good"], ["signed-bob", "bob", "revoked"]]
    (bobs,) = json.loads(iris("user", "token", "list", "bob", "--json")[1])
    assert bobs["token_id"] == "signed-bob"
    assert "no token was made" in iris("user", "token", "list", "cyd")[2]
    assert iris("user", "token", "revoke", "ab12")[2] == ("the token ab12 of user ann is revoked; jobs of ann go on\n")
    assert client.operator.done == [("revoke", "ab12")]


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
    assert iris("cluster", "worker", "cordon", "w11")[2] == "no worker 'w11'; did you mean 'w1'?\n"
    assert "`iris cluster worker list` shows what there is" in iris("cluster", "worker", "drain", "zebra")[2]
    assert len(client.operator.done) == 4


def test_a_worker_that_ran_nothing_is_drained_or_removed_without_more_words(iris: Iris, client: Client) -> None:
    for count, words in ((0, "nothing ran there"), (5, "sent elsewhere: 0, 1, 2, 3, 4")):
        client.operator.moved = [str(number) for number in range(count)]
        assert iris("cluster", "worker", "drain", "w1")[2].endswith(f"drained by an operator; {words}\n")
    for count, words in (
        (0, "nothing waited for it"),
        (5, "no longer waited for: 0, 1, 2, 3, 4"),
        (6, "no longer waited for: 0, 1, 2, 3, 4 and 1 more"),
    ):
        client.operator.moved = [str(number) for number in range(count)]
        assert iris("cluster", "worker", "remove", "w1") == (0, "", f"worker w1 is removed; {words}\n")
    assert client.operator.done[-1] == ("remove", "w1", "removed by an operator")


def test_the_list_of_workers(iris: Iris, client: Client) -> None:
    client.workers = [
        WorkerStatus("w1", True, 1, 1, 1, "", 0, 0, 3, strikes=2, cordon_reason="slow", last_seen_at_ms=1),
        WorkerStatus("w2", False, 1, 1, 1, "", 0, 0, 0),
    ]
    _, out, _ = iris("cluster", "worker", "list")
    header, first, second = (line.split() for line in out.splitlines())
    assert header == ["WORKER", "STATE", "TASKS", "STRIKES", "SINCE", "BECAUSE"]
    assert (first[:4], first[-1]) == (["w1", "cordoned", "3", "2"], "slow")
    assert second == ["w2", "away", "0", "0", "-", "-"]
    assert [item["worker_id"] for item in json.loads(iris("cluster", "worker", "list", "--json")[1])] == ["w1", "w2"]
    client.workers = []
    assert iris("cluster", "worker", "list") == (0, "", "no worker is known\n")
    assert iris("cluster", "worker", "list", "--json") == (0, "[]\n", "")


def test_a_query_is_shown_as_was_asked(iris: Iris, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert iris("query", "SELECT 1") == (0, "A  B\n1  ä\n", "")
    assert client.asked[-1] == {"sql": "SELECT 1", "max_rows": 1000}
    assert json.loads(iris("query", "SELECT 1", "-f", "json")[1]) == [{"a": 1, "b": "ä"}]
    assert "ä" in iris("query", "SELECT 1", "-f", "json")[1]
    assert iris("query", "SELECT 1", "-f", "csv")[1].split() == ["a,b", "1,ä"]
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 2"))
    code, _, said = iris("query", "-", "--max-rows", "1")
    assert (code, client.asked[-1]) == (0, {"sql": "SELECT 2", "max_rows": 1})
    assert said.startswith("only the first 1 rows are shown; --max-rows gives more")
    for wrong in ("0", "100001"):
        assert iris("query", "SELECT 1", "--max-rows", wrong)[0] == 2


def test_what_is_no_number_of_jobs_is_refused(iris: Iris) -> None:
    assert iris("job", "list", "-n", "0")[0] == 2
    assert iris("job", "list", "-n", "10000")[0] == 0


def test_logs_of_the_last_seconds(iris: Iris, client: Client) -> None:
    for seconds, since in (("0", 1000.0), ("10", 990.0), ("2000", 0.0)):
        iris("job", "logs", "train", "--since-seconds", seconds, now_ms=1_000_000)
        assert client.asked[-1]["since"] == since


@pytest.mark.parametrize(("replicas", "shown"), [(1, "hi\n"), (2, "[0] hi\n")])
@pytest.mark.parametrize("name", ["one", "one/0"])
def test_logs_name_the_task_where_several_write(
    iris: Iris, client: Client, replicas: int, shown: str, name: str
) -> None:
    client.jobs = [job("/ann/one", replicas=replicas)]
    client.lines = [LogLine("/ann/one/0", 0, False, 0, b"hi")]
    assert iris("job", "logs", name)[1] == ("hi\n" if "/" in name else shown)


def test_stopping_says_of_each_job_what_became_of_it(iris: Iris, client: Client) -> None:
    code, _, said = iris("job", "stop", "train", "train/test", "--no-include-children")
    assert code == 0
    assert said.splitlines() == ["job /ann/train/test had failed before", "iris: job /ann/train stopped"]
    assert client.asked[-1] == {"stop": ["/ann/train"], "include_children": False}
    iris("job", "stop", "train")
    assert client.asked[-1] == {"stop": ["/ann/train"], "include_children": True}
    client.refused = Denied("job /ann/train is ann's")
    code, _, said = iris("job", "stop", "train")
    assert code == 3
    assert said.splitlines()[-1] == "iris: job /ann/train is ann's"


def test_a_wrong_name_is_told_and_the_others_are_stopped(iris: Iris, client: Client) -> None:
    code, _, said = iris("job", "stop", "nothing", "train", "nor-this")
    assert code == 4
    assert {"stop": ["/ann/train"], "include_children": True} in client.asked
    lines = said.removeprefix("iris: ").splitlines()
    assert lines[0] == "job /ann/train stopped"
    assert "no job 'nothing'" in lines[1]
    assert "no job 'nor-this'" in lines[2]


def test_a_summary_leaves_out_what_there_is_not(iris: Iris, client: Client) -> None:
    client.jobs = [job("/ann/a", JobState.SUCCEEDED, deciding_task_id="/ann/a/0", replicas=1)]
    client.tasks = [TaskStatus("/ann/a/0", TaskState.SUCCEEDED, 0, "w1", started_at_ms=1000, finished_at_ms=3500)]
    lines = iris("job", "summary", "a")[1].splitlines()
    assert lines[:2] == ["job:        /ann/a", "state:      succeeded"]
    assert [line.split(":")[0] for line in lines[:3]] == ["job", "state", ""]
    assert lines[-1].split() == ["0", "succeeded", "0", "w1", "2.5", "s"]
    client.jobs = [job("/ann/a", JobState.FAILED, deciding_task_id="/ann/a/0", error="exit code 3")]
    lines = iris("job", "summary", "a")[1].splitlines()
    assert "decided by: /ann/a/0" in lines
    assert "error:      exit code 3" in lines
    counts = {TaskState.SUCCEEDED: 2, TaskState.FAILED: 1}
    client.jobs = [job("/ann/a", JobState.SUCCEEDED, replicas=3, task_counts=counts)]
    assert "failed:     1 of 3 tasks" in iris("job", "summary", "a")[1].splitlines()


def test_a_summary_names_what_may_live_out_of_reach(iris: Iris, client: Client) -> None:
    silent = SilentAttempt("/ann/train/0:1", "w9", 75.4)
    client.tasks = [TaskStatus("/ann/train/0", TaskState.KILLED, silent=(silent,))]
    lines = iris("job", "summary", "train")[1].splitlines()
    assert lines[lines.index("out of reach:") + 1] == f"  {silent}"
