"""Whole commands over a client that the test made: what they ask of the cluster, and what they say of it."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from iris.cli.job.commands import in_tree_order, tasks_text
from iris.cli.output import moment
from iris.client import AttemptUsage, QueryResult, SilentAttempt, TaskStatus, UserBudgetStatus, WorkerStatus
from iris.client.tokens import UserTokenStatus
from iris.client.types import WorkerAttempt
from iris.cluster.types import JobState, PriorityBand, TaskState
from iris.domain.constraints import LIMITS_ATTRIBUTE
from rigging.errors import Denied
from support.iris.cli import Client, Iris, job

TREE = ["/ann/train", "/ann/train/eval", "/ann/train/eval/deep"]


@pytest.fixture
def client() -> Client:
    made = Client(
        job("/ann/train", submitted_at_ms=1, command="python train.py", replicas=2, description="the big one"),
        job("/ann/train/eval", submitted_at_ms=2),
        job("/ann/train/eval/deep", submitted_at_ms=3),
        job("/ann/train/test", JobState.FAILED, submitted_at_ms=4, error="exit code 3"),
    )
    made.cluster = SimpleNamespace(workers=[SimpleNamespace(worker_id=name) for name in ("w1", "w2")])
    return made


def test_a_summary_as_json_is_the_tree_of_jobs(iris: Iris) -> None:
    code, out, _ = iris("job", "summary", "train", "--json")
    root = json.loads(out)
    assert (code, root["job_id"]) == (0, "/ann/train")
    assert [child["job_id"] for child in root["children"]] == ["/ann/train/eval", "/ann/train/test"]
    assert [child["job_id"] for child in root["children"][0]["children"]] == ["/ann/train/eval/deep"]
    assert root["children"][1]["children"] == []


def test_a_summary_tells_what_became_of_each_task_and_leaves_out_what_there_is_not(iris: Iris, client: Client) -> None:
    silent = SilentAttempt("/ann/train/0:1", "w9", 75.4)
    client.tasks = [
        TaskStatus("/ann/train/0", TaskState.RUNNING, 1, "w1", causes=("attempt 0 on w2: lost",), silent=(silent,)),
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
    assert f"out of reach:\n  {silent}\n" in out
    assert "    /ann/train/eval/deep  running\n  /ann/train/test  failed\n" in out
    assert "finished:" not in out, "what has not happened is left out"
    client.tasks = [TaskStatus("/ann/a/0", TaskState.SUCCEEDED, 0, "w1", started_at_ms=1000, finished_at_ms=3500)]
    client.jobs = [job("/ann/a", JobState.SUCCEEDED, deciding_task_id="/ann/a/0", replicas=1)]
    first, second, empty, _, task = iris("job", "summary", "a")[1].splitlines()
    assert (first, second, empty) == ("job:        /ann/a", "state:      succeeded", "")
    assert task.split() == ["0", "succeeded", "0", "w1", "2.5", "s"]
    client.jobs = [job("/ann/a", JobState.FAILED, deciding_task_id="/ann/a/0", error="exit code 3")]
    lines_of_end = iris("job", "summary", "a")[1].splitlines()
    assert {"decided by: /ann/a/0", "error:      exit code 3"} <= set(lines_of_end)
    counts = {TaskState.SUCCEEDED: 2, TaskState.FAILED: 1}
    client.jobs = [job("/ann/a", JobState.SUCCEEDED, replicas=3, task_counts=counts)]
    assert "failed:     1 of 3 tasks" in iris("job", "summary", "a")[1].splitlines()
    client.tasks = [TaskStatus(f"/ann/a/{index}", TaskState.PENDING) for index in range(600)]
    client.jobs = [job("/ann/a", JobState.PENDING, replicas=600, task_counts={TaskState.PENDING: 600})]
    lines_of_many = iris("job", "summary", "a")[1].splitlines()
    assert lines_of_many[-1] == "100 more tasks (600 pending in all); --json lists them"
    assert len(json.loads(iris("job", "summary", "a", "--json")[1])["tasks"]) == 600


def test_another_users_job_is_shown_as_in_the_list(iris: Iris, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "status", Mock(side_effect=Denied("user ann may not read jobs of /bob/large")))
    client.jobs = [job("/bob/large/child", JobState.PENDING), job("/bob/large", replicas=2)]
    shown = ["job:        /bob/large", "state:      running", "", "child jobs:", "  /bob/large/child  pending"]
    assert iris("job", "status", "/bob/large")[1].splitlines() == shown
    assert iris("job", "status", "/bob/lar") == (3, "", "user ann may not read jobs of /bob/large\n")


def test_a_list_tells_places_in_the_queue_and_counts_child_jobs(iris: Iris, client: Client) -> None:
    below = {JobState.SUCCEEDED: 26, JobState.FAILED: 4}
    client.jobs = [job("/ann/a", replicas=1, descendant_counts=below)]
    for place in (1, 2, 3, 4, 11, 12, 13, 101, 111):
        waits = {"queue_place": place, "queue_length": 120, "pending_reason": "needs 4 cores" if place > 1 else ""}
        client.jobs.append(job(f"/ann/w{place}", JobState.PENDING, submitted_at_ms=-place, **waits))
    header, parent, *waiting = iris("job", "list")[1].splitlines()
    assert re.split("  +", header) == ["JOB", "STATE", "SUBMITTED", "DURATION", "TASKS", "CHILD JOBS", "COMMAND"]
    assert re.split("  +", parent) == ["/ann/a", "running", "-", "-", "1", "26 succeeded, 4 failed"]
    places = ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "101st", "111th"]
    assert [line.strip() for line in waiting[1::2]] == [
        f"waits: {'needs 4 cores ' if place != '1st' else ''}({place} of 120 in its band)" for place in places
    ]
    assert "waits:      needs 4 cores (2nd of 120 in its band)" in iris("job", "status", "w2")[1].splitlines()


def test_a_list_asks_for_what_was_asked_for_and_shows_the_tree(iris: Iris, client: Client) -> None:
    _, out, _ = iris("job", "list", "--user", "ann", "--state", "failed", "--state", "running", "-n", "7")
    assert client.asked == [{"prefix": "/ann", "states": [JobState.FAILED, JobState.RUNNING], "limit": 8}]
    shown = [line.split("  running")[0].split("  failed")[0].rstrip() for line in out.splitlines()]
    assert shown[1:3] == ["/ann/train", "  /ann/train/eval"]
    assert "exit code 3" in out
    assert len(json.loads(iris("job", "list", "--json")[1])) == 4
    assert client.asked[-1] == {"prefix": "", "states": [], "limit": 51}
    assert [iris("job", "list", "-n", count)[0] for count in ("0", "1", "10000", "10001")] == [2, 0, 0, 2]
    shorter = "shown are the newest 3; -n 10000 lists more, and --prefix, --user and --state choose jobs\n"
    assert [iris("job", "list", "-n", count)[2] for count in ("3", "4")] == [shorter, ""]
    client.jobs = []
    assert iris("job", "list") == (0, "", "no jobs\n")
    assert iris("job", "list", "--json") == (0, "[]\n", "")


@pytest.mark.parametrize(
    ("words", "asked", "shown"),
    [
        (["--prefix", "tr"], "/ann/tr*", 4),
        (["--prefix", "/ann/train/eval"], "/ann/train/eval*", 2),
        (["--prefix", "/an"], "/an*", 4),
        (["--prefix", "tr", "--user", "bob"], "/bob/tr*", 0),
        (["--prefix", "tr", "-n", "3"], "/ann/tr*", 3),
    ],
)
def test_jobs_by_their_beginning(words: list[str], asked: str, shown: int, iris: Iris, client: Client) -> None:
    assert len(json.loads(iris("job", "list", "--json", *words)[1])) == shown
    assert client.asked[-1]["prefix"] == asked


def test_children_stand_below_their_parents_oldest_first() -> None:
    jobs = [
        job("/a/new", submitted_at_ms=9), job("/a/old/c2", submitted_at_ms=5), job("/a/old/c1/deep", submitted_at_ms=4),
        job("/a/old/c1", submitted_at_ms=3), job("/a/old", submitted_at_ms=1), job("/a/gone/child", submitted_at_ms=0),
    ]  # fmt: skip
    ids = [(depth, found.job_id) for depth, found in in_tree_order(jobs)]
    assert ids[:3] == [(0, "/a/new"), (0, "/a/old"), (1, "/a/old/c1")]
    assert ids[3:] == [(2, "/a/old/c1/deep"), (1, "/a/old/c2"), (0, "/a/gone/child")]


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({TaskState.RUNNING: 4}, "4"),
        ({TaskState.RUNNING: 3, TaskState.PENDING: 1}, "3 running, 1 pending"),
        ({TaskState.RUNNING: 4, TaskState.FAILED: 0}, "4"),
        ({TaskState.PENDING: 4}, "4 pending"),
        ({}, "4"),  # how they are is not known
    ],
)
def test_task_counts_are_spelled_out_only_when_they_differ(counts: dict[TaskState, int], text: str) -> None:
    assert tasks_text(job("/a/b", replicas=4, task_counts=counts)) == text


def test_stopping_says_of_each_job_what_became_of_it(iris: Iris, client: Client) -> None:
    code, _, said = iris("job", "stop", "train", "train/test", "--no-include-children")
    assert code == 0
    assert said.splitlines() == ["job /ann/train/test has ended already (failed)", "iris: job /ann/train stopped"]
    assert {"stop": ["/ann/train"], "include_children": False} in client.asked
    code, _, said = iris("job", "stop", "nothing", "train", "nor-this")
    assert code == 4
    assert {"stop": ["/ann/train"], "include_children": True} in client.asked
    stopped, first, second = said.splitlines()
    assert stopped == "job /ann/train stopped"
    assert ("no job 'nothing'" in first, "no job 'nor-this'" in second) == (True, True)
    client.refused = Denied("job /ann/train is ann's")
    code, _, said = iris("job", "stop", "train")
    assert (code, said) == (3, "job /ann/train is ann's\n"), "once"


@pytest.mark.parametrize(
    ("words", "answer", "code", "stopped", "said"),
    [
        ("--all", True, 0, ["/ann/train"], "stop 1 job of ann: /ann/train?"),
        ("--all --yes", None, 0, ["/ann/train"], ""),
        ("--all --no-include-children", True, 0, TREE, f"stop 3 jobs of ann: {', '.join(TREE)}?"),
        ("--state running", True, 0, ["/ann/train"], "stop 1 job of ann: /ann/train?"),
        ("--user bob", True, 0, None, "no live job of bob"),
        ("--state pending", True, 0, None, "no pending job of ann"),
        ("--all", False, 130, None, "interrupted"),
        ("--all", None, 3, None, "stop 1 job of ann: /ann/train? There is no terminal to ask on; add --yes."),
        ("train --all", True, 2, None, "name the jobs to stop, or choose them with --all, --user or --state"),
        ("", True, 2, None, "name the jobs to stop, or choose them with --all, --user or --state"),
    ],
)
def test_many_jobs_are_stopped_when_the_user_agrees(
    words: str, answer: bool | None, code: int, stopped: list[str] | None, said: str, client: Client, iris: Iris
) -> None:
    client.answer = answer
    found, _, shown = iris("job", "stop", *words.split())
    assert (found, said in "".join(client.questions) + shown) == (code, True)
    assert [asked["stop"] for asked in client.asked if "stop" in asked] == ([] if stopped is None else [stopped])


@pytest.mark.parametrize(
    ("words", "names", "said"),
    [
        ("--all", ["w1", "w2", "w3"], "drain 3 workers: w1, w2, w3?"),
        ("--worker-attribute zone=a", ["w1", "w2"], "drain 2 workers: w1, w2?"),
        ("--worker-attribute zone=a --state cordoned", ["w2"], "drain 1 worker: w2?"),
        ("w3 w1 w3", ["w3", "w1"], ""),
        ("--state away", [], "no worker matches; `iris cluster worker list --json` shows states and attributes"),
        ("w4 w1", [], "no worker 'w4'; `iris cluster worker list` shows what there is"),
        ("w1 --all", [], "name the workers, or choose them with --all, --worker-attribute or --state"),
    ],
)
def test_workers_are_chosen_by_name_attribute_and_state(
    words: str, names: list[str], said: str, client: Client, iris: Iris
) -> None:
    worker = WorkerStatus("w1", True, 4, 2**30, 0, "", 0, 0, 0, {"zone": "a"})
    others = replace(worker, worker_id="w2", cordon_reason="bad fan"), replace(worker, worker_id="w3", attributes={})
    client.cluster = SimpleNamespace(workers=(worker, *others))
    client.operator.cordon.return_value = []
    shown = iris("cluster", "worker", "drain", *words.split())[2]
    assert said in "".join(client.questions) + shown
    assert [asked.args[0] for asked in client.operator.cordon.mock_calls] == names


def test_jobs_are_held_and_released(iris: Iris, client: Client) -> None:
    held = "held by ann since 2026-05-03 14:00 UTC"
    client.holds = {"/ann/train/eval": held}
    lets = "`iris job release /ann/train{}` lets its waiting tasks and retries start"
    assert iris("job", "hold", "train", "train/eval")[2].splitlines() == [
        f"job /ann/train is held; {lets.format('')}",
        f"iris: job /ann/train/eval is already {held}; {lets.format('/eval')}",
    ]
    client.answer = True
    assert [iris("job", verb, "--all")[2].count("job /ann/") for verb in ("hold", "release")] == [3, 3]
    assert client.questions == [f"{verb} 3 jobs of ann: {', '.join(TREE)}?" for verb in ("hold", "release")]
    assert iris("job", "release", "train/eval", "train/test")[2].splitlines() == [
        f"job /ann/train/eval is released (it was {held})",
        "iris: job /ann/train/test was not held",
    ]
    said = "job /ann/train/test is queued again (before: failed); follow it with `iris job logs -f /ann/train/test`\n"
    assert iris("job", "requeue", "train/test") == (0, "", said)


def test_a_job_is_updated_with_what_is_given(iris: Iris, client: Client) -> None:
    words = "--priority batch --timeout 0 --scheduling-timeout 60 --max-retries 2 --cpu 0.5 --memory 2GB --disk 0"
    code, _, said = iris("job", "update", "train", *words.split())
    assert (code, said.startswith("job /ann/train is updated: priority batch, timeout 0")) == (0, True)
    assert client.asked[-1] == {
        "update": "/ann/train", "priority_band": "batch", "timeout": 0, "scheduling_timeout": 60,
        "max_retries_failure": 2, "cpu": 0.5, "memory": "2GB", "disk": "0",
    }  # fmt: skip
    code, _, said = iris("job", "update", "train")
    assert (code, "nothing to change; give e.g. --priority batch" in said) == (2, True)


def test_budgets_are_shown_and_only_what_is_named_is_changed(iris: Iris, client: Client) -> None:
    client.operator.budgets.return_value = [UserBudgetStatus("ann", 12.5, PriorityBand.INTERACTIVE, 3.0)]
    assert iris("user", "budget", "get", "ann")[1].splitlines()[1].split() == ["ann", "12.5", "3", "interactive"]
    said = "user ann: max weight no limit, most urgent band interactive\n"
    assert iris("user", "budget", "set", "ann", "--max-weight", "0") == (0, "", said)
    iris("user", "budget", "set", "ann", "--max-band", "batch")
    assert client.operator.set_budget.mock_calls == [
        call("ann", max_weight=0.0, max_band=PriorityBand.INTERACTIVE),
        call("ann", max_weight=12.5, max_band=PriorityBand.BATCH),
    ]
    code, _, said = iris("user", "budget", "set", "ann")
    assert (code, "give --max-weight, --max-band, or both" in said) == (2, True)
    assert json.loads(iris("user", "budget", "list", "--json")[1])[0]["user"] == "ann"
    client.operator.budgets.return_value = []
    assert iris("user", "budget", "list")[2] == "no user has a budget: usage is not limited\n"


def test_tokens_of_users_are_listed_and_revoked(iris: Iris, client: Client) -> None:
    anns = UserTokenStatus("ab12", "ann", "laptop", "admin root", 1)
    bobs = UserTokenStatus("signed-bob", "bob", "made by an earlier release", "", 0, "admin root", 5)
    client.operator.user_tokens.return_value = [anns, bobs]
    client.operator.revoke_user_token.return_value = anns
    header, *rows = iris("user", "token", "list")[1].splitlines()
    assert header.split() == ["TOKEN", "USER", "STATE", "MADE", "BY", "NOTE"]
    assert [row.split()[:3] for row in rows] == [["ab12", "ann", "good"], ["signed-bob", "bob", "revoked"]]
    assert json.loads(iris("user", "token", "list", "bob", "--json")[1])[1]["token_id"] == "signed-bob"
    assert client.operator.user_tokens.mock_calls == [call(""), call("bob")]
    client.operator.user_tokens.return_value = []
    assert "there are no tokens" in iris("user", "token", "list", "cyd")[2]
    assert iris("user", "token", "revoke", "ab12")[2] == "the token ab12 of user ann is revoked; jobs of ann continue\n"
    client.operator.revoke_user_token.assert_called_once_with("ab12")


def test_a_token_is_written_to_a_new_private_file_or_shown(iris: Iris, client: Client, tmp_path: Path) -> None:
    client.operator.create_token.return_value = "u:bob:token"
    assert iris("user", "token", "create", "bob", "--note", "n")[1] == "u:bob:token\n"
    client.operator.create_token.assert_called_once_with("bob", "n")
    place = tmp_path / "token"
    code, out, said = iris("user", "token", "create", "bob", "--output", str(place))
    assert (code, out, "u:bob:token" in said) == (0, "", False)
    assert (place.read_text(), place.stat().st_mode & 0o777) == ("u:bob:token\n", 0o600)
    place.write_text("another's")
    assert iris("user", "token", "create", "bob", "--output", str(place))[0] == 3
    assert place.read_text() == "another's"


def test_workers_are_taken_out_of_use_and_back(iris: Iris, client: Client) -> None:
    def worker(*words: str) -> str:
        return iris("cluster", "worker", *words)[2]

    operator = client.operator
    operator.uncordon.side_effect = ["device errors", ""]
    assert worker("cordon", "w1", "--reason", "slow") == "worker w1 is cordoned: slow\n"
    assert worker("uncordon", "w1").endswith("is in use again (it was cordoned: device errors)\n")
    assert worker("uncordon", "w2") == "worker w2 was not cordoned\n"
    assert operator.mock_calls == [call.cordon("w1", "slow"), call.uncordon("w1"), call.uncordon("w2")]
    for count, names in ((0, ""), (5, "0, 1, 2, 3, 4"), (6, "0, 1, 2, 3, 4 and 1 more")):
        operator.cordon.return_value = operator.remove_worker.return_value = [str(number) for number in range(count)]
        drained, removed = worker("drain", "w2"), worker("remove", "w1")
        words = f"sent elsewhere: {names}" if names else "it had no attempts"
        assert drained == f"worker w2 is drained: drained by an operator; {words}\n"
        words = f"no longer waited for: {names}" if names else "no attempt waited for it"
        assert removed == f"worker w1 is removed; {words}\n"
    operator.cordon.assert_called_with("w2", "drained by an operator", drain=True)
    operator.remove_worker.assert_called_with("w1", "removed by an operator")
    assert len(iris("cluster", "worker", "remove", "w1", "w2", "w1")[2].splitlines()) == 2
    operator.reset_mock()
    assert iris("cluster", "worker", "cordon", "w11") == (4, "", "no worker 'w11'; did you mean 'w1'?\n")
    assert "`iris cluster worker list` shows what there is" in worker("drain", "zebra")
    assert operator.mock_calls == []


def test_slices_are_made_and_deleted_by_name(iris: Iris, client: Client) -> None:
    client.operator.create_slice.return_value = "v5p-0"
    assert iris("cluster", "create-slice", "v5p")[:2] == (0, "v5p-0\n")
    assert iris("cluster", "delete-slice", "v5p-0", "v5p-1", "v5p-0")[2].count("is being deleted") == 2
    assert client.operator.mock_calls == [
        call.create_slice("v5p"),
        call.delete_slice("v5p-0"),
        call.delete_slice("v5p-1"),
    ]


def drained(*attempts: str, **fields: Any) -> WorkerStatus:
    left = tuple(WorkerAttempt(name, "stopping") for name in attempts)
    return replace(WorkerStatus("w1", True, 4, 2**30, 2**30, "", 2, 2**29, 1, attempts=left), **fields)


@pytest.mark.parametrize(
    ("looks", "words", "code", "said"),
    [
        (
            [["/a/b/0:0", "/a/b/1:0"], ["/a/b/1:0"], []],
            "--wait",
            0,
            ["waiting for 2 attempts on w1", "nothing is left on w1"],
        ),
        (
            [["/a/b/0:0"]] * 9,
            "--wait --deadline 3s",
            7,
            ["waiting for 1 attempt on w1", "worker w1 still has /a/b/0:0"],
        ),
        ([[]], "--wait", 0, ["nothing is left on w1"]),
        ([], "--deadline 3s", 2, ["Error: --deadline has no effect without --wait: give both, or neither"]),
        ([], "", 0, ["worker w1 is drained: drained by an operator; it had no attempts"]),
    ],
)
def test_draining_waits_until_nothing_is_left_or_the_deadline(
    looks: list[list[str]], words: str, code: int, said: list[str], iris: Iris, client: Client
) -> None:
    client.operator.cordon.return_value = []
    client.looks = iter([drained(*names)] for names in looks)
    found, _, shown = iris("cluster", "worker", "drain", "w1", *words.split())
    assert (found, [line.removeprefix("iris: ") for line in shown.splitlines()][-len(said) :]) == (code, said)


def test_a_worker_is_described(iris: Iris, client: Client) -> None:
    use = AttemptUsage("/a/b/0:0", "w1", cpu_cores=1.5, memory_bytes=2**28)
    attempts = WorkerAttempt("/a/b/0:0", "running", use), WorkerAttempt("/a/b/1:0", "stopping")
    told = {"version": "0.1.0", "protocol_version": 3, "cordoned_by": "admin bob", "cordoned_at_ms": 1_000}
    worker = drained(attributes={"zone": "a"}, cordon_reason="bad fan", address="10.0.0.2", **told)
    client.looks = iter([[replace(worker, attempts=attempts)]] * 2 + [[]])
    columns = ("at_ms", "kind", "subject", "worker_id", "caller", "address", "detail")
    last = (1_000, "failed", "/a/c/0:1", "w1", None, None, '{"exit_code": 1}')
    client.answers["'w1' IN (worker_id, subject)"] = QueryResult(columns, (last,), False)
    _, out, _ = iris("cluster", "worker", "describe", "w1", now_ms=2_000)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert {"state: cordoned", "address: 10.0.0.2", "version: 0.1.0 (protocol 3)", "zone a"} <= set(lines)
    assert any(line.startswith("cordoned: bad fan (by admin bob, ") for line in lines)
    assert {"cpu 4 2 1.50", "memory 1 GiB 512 MiB 256 MiB", "disk 1 GiB 0 B 0 B"} <= set(lines)
    assert {"/a/b/0:0 running 1.50 256 MiB", "/a/b/1:0 stopping - -"} <= set(lines)
    assert lines[-1].endswith("failed /a/c/0:1 on w1 exit_code 1")
    client.answers.clear()
    shown = json.loads(iris("cluster", "worker", "describe", "w1", "--json")[1])
    assert (shown["attempts"][1]["state"], shown["events"]) == ("stopping", [])
    assert iris("cluster", "worker", "describe", "w11") == (4, "", "no worker 'w11'; did you mean 'w1'?\n")


def test_the_list_of_workers(iris: Iris, client: Client) -> None:
    slow = WorkerStatus("w1", True, 1, 1, 1, "", 0, 0, 3, {LIMITS_ATTRIBUTE: "soft: cpu"}, cordon_reason="slow")
    slow = replace(slow, strikes=2, last_seen_at_ms=1, cordoned_at_ms=86_400_000)
    client.cluster.workers = [slow, WorkerStatus("w2", False, 1, 1, 1, "", 0, 0, 0)]
    client.now_ms = 86_401_000
    _, out, _ = iris("cluster", "worker", "list")
    assert [re.split("  +", line) for line in out.splitlines()] == [
        ["WORKER", "STATE", "TASKS", "STRIKES", "SINCE", "LIMITS", "BECAUSE"],
        ["w1", "cordoned", "3", "2", moment(86_400_000, client.now_ms), "soft: cpu", "slow"],
        ["w2", "away", "0", "0", "-", "-", "-"],
    ]
    assert [item["worker_id"] for item in json.loads(iris("cluster", "worker", "list", "--json")[1])] == ["w1", "w2"]
    client.cluster.workers = []
    assert iris("cluster", "worker", "list") == (0, "", "no worker is known\n")
    assert iris("cluster", "worker", "list", "--json") == (0, "[]\n", "")


class Answering(Client):
    def query(self, sql: str, max_rows: int) -> QueryResult:
        self.asked.append({"sql": sql, "max_rows": max_rows})
        if sql == "odd":
            return QueryResult(("state", "n", "state"), ((1, 2, 3),), False)
        return QueryResult(("a", "b", "n"), (('one\ntwo, "x"', "ä", 1.5), ("", None, b"\x00\xff")), max_rows == 1)


@pytest.mark.parametrize("client", [Answering()])
def test_a_query_is_shown_as_was_asked(iris: Iris, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert iris("query", "SELECT 1") == (0, 'A             B  N\none two, "x"  ä  1.5\n              -  00ff\n', "")
    assert client.asked[-1] == {"sql": "SELECT 1", "max_rows": 1000}
    shown = iris("query", "SELECT 1", "-f", "json")[1]
    records = [{"a": 'one\ntwo, "x"', "b": "ä", "n": 1.5}, {"a": "", "b": None, "n": "00ff"}]
    assert ("ä" in shown, json.loads(shown)) == (True, records)
    assert iris("query", "SELECT 1", "-f", "csv")[1].splitlines() == ["a,b,n", '"one', 'two, ""x""",ä,1.5', ",,00ff"]
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 2"))
    code, _, said = iris("query", "-", "--max-rows", "1")
    assert (code, client.asked[-1]) == (0, {"sql": "SELECT 2", "max_rows": 1})
    assert said.startswith("only the first 2 rows are shown; --max-rows gives more")
    for wrong in ("0", "100001"):
        assert iris("query", "SELECT 1", "--max-rows", wrong)[0] == 2


@pytest.mark.parametrize("client", [Answering()])
def test_json_does_not_lose_columns_of_one_name(iris: Iris, client: Client) -> None:
    code, _, said = iris("query", "odd", "-f", "json")
    assert code == 3
    assert "more than one column is named 'state'" in said
    assert "with AS, or take -f csv" in said
    assert iris("query", "odd")[1].splitlines()[1] == "1      2  3"
    assert iris("query", "odd", "-f", "csv")[1].splitlines()[1] == "1,2,3"
