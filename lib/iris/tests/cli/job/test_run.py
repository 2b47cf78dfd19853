import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iris.cli.job import follow
from iris.cli.job import run as job_run
from iris.cli.job.run import unused_option
from iris.cli.main import run
from iris.cli.status_line import StatusLine
from iris.client.connection.discovery import ClusterTarget
from iris.client.job_env import JobEnv
from iris.cluster.constraints import (
    Constraint,
    ConstraintOp,
    preemptible_constraint,
    region_constraint,
    worker_constraint,
    zone_constraint,
)
from iris.cluster.types import CoschedulingConfig, HealthCheck
from rigging.errors import AlreadyExists
from rigging.project import FORWARDED_ENV_VARS
from rigging.project.checkout import git_commit
from rigging.project.code_state import handed_code_state
from support.iris.cli import Client, Context, Iris


class Cluster(Client):
    """What was asked of a cluster; it takes every job, and the job ends with `code`."""

    def __init__(self) -> None:
        super().__init__()
        self.target = ClusterTarget("local", lambda answered: None, is_local=True)
        self.opened: dict[str, Any] = {}
        self.submitted: dict[str, Any] = {}
        self.followed: list[tuple[str, int, bool]] = []
        self.guarded: list[str] = []
        self.code = 0
        self.refusal: AlreadyExists | None = None

    def submit(self, entrypoint: Any, name: str, resources: Any, environment: Any, **options: Any) -> Any:
        if self.refusal is not None:
            raise self.refusal
        known = {"command": entrypoint.argv, "name": name, "resources": resources, "environment": environment}
        self.submitted = {**known, **options}
        return SimpleNamespace(job_id=f"/ann/{name}")

    def given(self) -> dict[str, str]:
        """The variables of the job that the user gave, or has."""
        variables: dict[str, str] = self.submitted["environment"].env_vars
        return {name: value for name, value in variables.items() if name[:5] != "IRIS_"}


class Follower:
    """Notes what it is to follow."""

    def __init__(self, cluster: Cluster, *, terminate_on_exit: bool, status: StatusLine) -> None:
        self._cluster, self._stops = cluster, terminate_on_exit

    @contextlib.contextmanager
    def guard_submission(self, expected_id: str) -> Iterator[None]:
        self._cluster.guarded.append(expected_id)
        yield

    def follow(self, job_id: str, *, replicas: int) -> int:
        self._cluster.followed.append((job_id, replicas, self._stops))
        return self._cluster.code


class Reaching(Context):
    def target(self) -> ClusterTarget:
        return self.reached.target

    @contextlib.contextmanager
    def connect(self, target: ClusterTarget, workspace: Path | None = None, **options: Any) -> Iterator[Any]:
        self.reached.opened = {"target": target, "workspace": workspace, **options}
        yield self.reached


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def iris(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iris:
    """Runs `iris job run` with words."""
    monkeypatch.setattr(follow, "Follower", Follower)
    for name in FORWARDED_ENV_VARS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def command(*words: str) -> tuple[int, str, str]:
        code = run(["job", "run", *words], Reaching(cluster))
        written = capsys.readouterr()
        return code, written.out, written.err

    return command


def test_what_is_not_said_has_its_documented_default(iris: Iris, cluster: Cluster) -> None:
    said = "iris: job /ann/j on your local cluster at 127.0.0.1:1\n"
    assert iris("--job-name", "j", "--", "python", "x.py", "--flag") == (0, "", said)
    sent = cluster.submitted
    assert (sent.pop("command"), sent.pop("name")) == (("python", "x.py", "--flag"), "j")
    resources = sent.pop("resources")
    assert (resources.cpu, resources.memory, resources.disk, resources.device) == (0.1, "1GB", None, None)
    environment = sent.pop("environment")
    assert environment.env_vars.pop("IRIS_RUN_COMMAND").endswith("iris job run"), "without the job's name"
    assert (environment.pip_packages, environment.env_vars, environment.extras) == ((), {}, ())
    nothing = (
        "coscheduling timeout priority_band scheduling_timeout fence_after retry_window health stall_timeout "
        "soft_limits limits_said start_at max_running task_image grace"
    )
    assert sent == {
        **dict.fromkeys(nothing.split()), "constraints": [], "after": (), "replicas": 1, "max_retries_failure": 0,
        "max_retries_preemption": 1000, "max_task_failures": 0, "existing": "fail", "reserve": False, "reservation": [],
        "exclusive": False, "description": "", "notify_url": "", "cpu_quota": False, "retry_delay": 1.0,
    }  # fmt: skip
    assert (cluster.guarded, cluster.followed) == (["/ann/j"], [("/ann/j", 1, True)])
    assert (cluster.opened["user"], cluster.opened["inherit_workspace"]) == (None, True)


def test_every_option_reaches_the_cluster(iris: Iris, cluster: Cluster) -> None:
    words = (
        "--cpu 2.5 --memory 3GB --disk 7GB --gpu H100x4 --extra a --extra b --pip p --pip q -e K v -e L=w --replicas 3 "
        "--max-retries 4 --max-retries-preemption 5 --max-task-failures 2 --scheduling-timeout 6 --existing adopt "
        "--reserve --exclusive --fence-after 8 --timeout 9 --region r1 --region r2 --zone z --priority batch "
        "--job-name j --user bob --no-preemptible --no-terminate-on-exit --description d --notify-url http://n "
        "--retry-delay 3 --retry-window 1h --stall-timeout 20m --health-cmd true --health-interval 5 "
        "--health-timeout 2s --health-retries 7 --cpu-quota --gang rack --host w1 --host w2 --not-host w3 "
        "--constraint disks>=4 --start-at 2026-05-03T14:00+00:00 --max-running 2 --after a --after /bob/b:any "
        "--image py:3 --grace 2m"
    )
    iris(*words.split(), "--constraint", "kind in a, b", "--", "true")
    sent = cluster.submitted
    resources = sent["resources"]
    assert (resources.cpu, resources.memory, resources.disk) == (2.5, "3GB", "7GB")
    assert (resources.device.variant, resources.device.count) == ("H100", 4)
    environment = sent["environment"]
    assert (environment.extras, environment.pip_packages) == (("a", "b"), ("p", "q"))
    assert "iris job run --cpu 2.5 --memory 3GB" in environment.env_vars.pop("IRIS_RUN_COMMAND")
    assert environment.env_vars == {"K": "v", "L": "w"}
    assert sent["constraints"] == [
        Constraint("disks", ConstraintOp.GE, ("4",)), Constraint("kind", ConstraintOp.IN, ("a", "b")),
        worker_constraint(["w1", "w2"]), Constraint("worker-name", ConstraintOp.NE, ("w3",)),
        region_constraint(("r1", "r2")), zone_constraint("z"), preemptible_constraint(False),
    ]  # fmt: skip
    assert sent["coscheduling"] == CoschedulingConfig("rack")
    wanted = {
        "replicas": 3, "max_retries_failure": 4, "max_retries_preemption": 5, "max_task_failures": 2,
        "scheduling_timeout": 6, "existing": "adopt", "reserve": True, "exclusive": True, "fence_after": 8,
        "timeout": 9, "priority_band": "batch", "name": "j", "description": "d", "notify_url": "http://n",
        "retry_delay": 3, "retry_window": 3600, "stall_timeout": 1200, "health": HealthCheck("true", 5, 2, 7),
        "cpu_quota": True, "start_at": 1_777_816_800.0, "max_running": 2, "after": ("a", "/bob/b:any"),
        "task_image": "py:3", "grace": 120,
    }  # fmt: skip
    assert {name: sent[name] for name in wanted} == wanted
    assert cluster.opened["user"] == "bob"
    assert cluster.followed == [("/ann/j", 3, False)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"health_interval"}, "--health-interval has no effect without --health-cmd CMD: give both, or neither"),
        (
            {"health_timeout", "memory"},
            "--health-timeout has no effect without --health-cmd CMD: give both, or neither",
        ),
        ({"health_retries"}, "--health-retries has no effect without --health-cmd CMD: give both, or neither"),
        ({"retry_window"}, "--retry-window has no effect without --max-retries N: give both, or neither"),
        ({"gang"}, "--gang has no effect without --replicas N: give both, or neither"),
        ({"gang", "tpu"}, ""),
        ({"health_interval", "health_cmd"}, ""),
        ({"retry_window", "max_retries"}, ""),
        (set(), ""),
    ],
)
def test_an_option_without_the_one_that_it_is_of(given: set[str], said: str) -> None:
    assert unused_option(given) == said


def test_no_memory_at_all_is_refused(iris: Iris, cluster: Cluster) -> None:
    code, _, said = iris("--memory", "0MB", "--", "true")
    assert code == 2
    assert "'0MB' is not an amount of memory; use at least 1MB" in said


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["--memory", "1GB"], (None, True)),
        (["--soft-limits"], (True, None)),
        (["--no-soft-limits", "--memory", "2GB"], (False, True)),
    ],
)
def test_what_is_a_limit_is_told_apart_from_who_chose_so(
    iris: Iris, cluster: Cluster, words: list[str], chosen: tuple[bool | None, bool | None]
) -> None:
    iris(*words, "--", "true")
    assert (cluster.submitted["soft_limits"], cluster.submitted["limits_said"]) == chosen


@pytest.mark.parametrize(("tpu", "hosts"), [("v5p-8,v4-8", 1), ("v4-16", 2)])
def test_a_tpu_with_alternatives_and_a_gang_of_its_hosts(iris: Iris, cluster: Cluster, tpu: str, hosts: int) -> None:
    iris("--tpu", tpu, "--preemptible", "--reserve", "2:H100x8", "--", "true")
    sent = cluster.submitted
    device = sent["resources"].device
    assert (device.variant, *device.alternatives) == tuple(tpu.split(","))
    assert sent["constraints"] == [preemptible_constraint(True)]
    assert (sent["replicas"], sent["coscheduling"] is not None) == (hosts, hosts > 1)
    assert ([device.count for device in sent["reservation"]], sent["reserve"]) == ([8, 8], False)
    iris("--tpu", tpu, "--replicas", "3", "--", "true")
    assert (cluster.submitted["replicas"], cluster.submitted["coscheduling"]) == (3, None)


@pytest.mark.parametrize(
    ("words", "tasks", "group_by"),
    [
        ("--replicas 4", 4, "arch"),
        ("--replicas 4 --gpu 8", 4, "pool"),
        ("--replicas 2 --tpu v4-16", 2, "tpu-name"),
        ("--tpu v4-16", 2, "tpu-name"),
    ],
)
def test_a_gang_is_of_hosts_that_belong_together(
    iris: Iris, cluster: Cluster, words: str, tasks: int, group_by: str
) -> None:
    iris(*words.split(), "--gang", "--", "true")
    assert cluster.submitted["replicas"] == tasks
    assert cluster.submitted["coscheduling"] == CoschedulingConfig(group_by)


def test_given_variables_win(iris: Iris, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"HF_TOKEN": "mine", "WANDB_MODE": "online", "SECRET": "stays here"}.items():
        monkeypatch.setenv(name, value)
    iris("-e", "WANDB_MODE=offline", "-e", "E=a=b", "--", "true")
    assert cluster.given() == {"HF_TOKEN": "mine", "WANDB_MODE": "offline", "E": "a=b"}
    iris("--workspace", os.path.dirname(__file__), "--", "true")
    handed = handed_code_state(cluster.given())
    assert handed is not None
    assert handed.commit == git_commit(os.path.dirname(__file__))
    first, second = tmp_path / "a.env", tmp_path / "b.env"
    first.write_text("A=1\nB=1\nC=1\nWANDB_MODE=disabled\n")
    second.write_text("B=2\nC=2\n")
    assert iris("--env-file", str(first), "-e", "C", "3", "--env-file", str(second), "--", "true")[0] == 0
    assert cluster.given() == {"HF_TOKEN": "mine", "A": "1", "B": "2", "C": "3", "WANDB_MODE": "disabled"}
    cluster.submitted = {}
    for text, code, complaint in (
        ("IRIS_TASK_ID=hunter2\n", 2, "Invalid value for '--env-file': IRIS_TASK_ID is what iris itself"),
        ("A=1\nhunter2\n", 3, f"env file {second}, line 2: there is no '='"),
    ):
        second.write_text(text)
        found, out, said = iris("--env-file", str(second), "--", "true")
        assert (found, complaint in said, "hunter2" in out + said) == (code, True, False)
    code, _, said = iris("-e", "IRIS_TASK_ID", "zz", "--", "true")
    assert (code, "'-e': IRIS_TASK_ID is what iris itself tells each task" in said) == (2, True)
    assert cluster.submitted == {}


def test_without_waiting_the_id_alone_is_printed_else_it_ends_as_the_job_ends(iris: Iris, cluster: Cluster) -> None:
    code, out, said = iris("--no-wait", "--job-name", "j", "--", "true")
    assert (code, out, cluster.followed) == (0, "/ann/j\n", [])
    assert "follow it with `iris job logs -f /ann/j`, stop it with `iris job stop /ann/j`" in said
    cluster.code = 37
    assert iris("--", "true")[0] == 37
    cluster.refusal = AlreadyExists("job /ann/j is live")
    assert iris("--", "true") == (3, "", "iris: job /ann/j is live\n")


def test_a_job_that_nobody_named_is_named_after_its_command_and_never_twice(iris: Iris, cluster: Cluster) -> None:
    names = set()
    for _ in range(3):
        iris("--", "python", "train.py")
        names.add(cluster.submitted["name"])
    assert len([name for name in names if name.startswith("train-")]) == 3


def test_help_is_help_only_before_the_separator(iris: Iris, cluster: Cluster) -> None:
    code, out, _ = iris("--cpu", "2", "--help")
    assert (code, "-- COMMAND..." in out, "--env-assignment" in out) == (0, True, False)
    assert cluster.submitted == {}
    iris("--", "ls", "--help")
    assert cluster.submitted["command"] == ("ls", "--help")


def test_which_files_go_along(iris: Iris, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'p'\nversion = '1'\n")
    iris("--", "true")
    assert Path(cluster.opened["workspace"]).resolve() == tmp_path.resolve()
    iris("--workspace", "/elsewhere", "--", "true")
    assert cluster.opened["workspace"] == Path("/elsewhere")
    iris("--no-workspace", "--", "true")
    assert (cluster.opened["workspace"], cluster.opened["inherit_workspace"]) == (None, False)
    for words, complaint in (
        (("--no-workspace", "--workspace", "x"), "--workspace and --no-workspace: give only one"),
        (("--workspace", ""), "it is empty; name a folder, or use --no-workspace"),
    ):
        code, _, said = iris(*words, "--", "true")
        assert (code, complaint in said) == (2, True)
    inside = JobEnv("127.0.0.1:1", "/ann/a", "/ann/a/0", "/ann/a/0:0", "w", "")
    cluster.target = ClusterTarget("c", lambda answered: None, inside)
    iris("--", "true")
    assert (cluster.opened["workspace"], cluster.opened["inherit_workspace"]) == (None, True), "those of its job"


@pytest.mark.parametrize(
    ("name", "is_local", "words"),
    [
        ("local", True, "your local cluster at 127.0.0.1:1"),
        ("127.0.0.1:1", False, "cluster 127.0.0.1:1"),
        ("prod", False, "cluster prod at 127.0.0.1:1"),
    ],
)
def test_the_cluster_is_named_once(name: str, is_local: bool, words: str, cluster: Cluster) -> None:
    target = ClusterTarget(name, lambda answered: None, is_local=is_local)
    client: Any = cluster
    assert job_run.describe(target, client) == words
