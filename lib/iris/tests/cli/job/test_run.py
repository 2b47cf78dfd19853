"""`iris job run`: each option reaches the cluster as it was typed, and what happens after the submission."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iris.cli.context import CliContext
from iris.cli.job import follow
from iris.cli.job import run as job_run
from iris.cli.main import run
from iris.cli.status_line import StatusLine
from iris.client.connection.discovery import ClusterTarget
from iris.client.job_env import JobEnv
from iris.cluster.constraints import preemptible_constraint, region_constraint, zone_constraint
from rigging.errors import AlreadyExists
from rigging.forwarding import FORWARDED_ENV_VARS


class Cluster:
    """What was asked of a cluster; it takes every job, and the job ends with `code`."""

    address = "127.0.0.1:1"

    def __init__(self) -> None:
        self.opened: dict[str, Any] = {}
        self.submitted: dict[str, Any] = {}
        self.followed: list[tuple[str, int, bool]] = []
        self.guarded: list[str] = []
        self.code = 0
        self.refusal: AlreadyExists | None = None

    def full_name_prefix(self) -> str:
        return "/ann"

    def submit(self, entrypoint: Any, name: str, resources: Any, environment: Any, **options: Any) -> Any:
        if self.refusal is not None:
            raise self.refusal
        self.submitted = {
            "command": entrypoint.argv,
            "name": name,
            "resources": resources,
            "environment": environment,
            **options,
        }
        return SimpleNamespace(job_id=f"/ann/{name}")


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


class Context(CliContext):
    """Commands reach the test's cluster."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.reached = ClusterTarget("local", lambda answered: None, is_local=True)
        self._cluster = cluster

    def target(self) -> ClusterTarget:
        return self.reached

    @contextlib.contextmanager
    def connect(self, target: ClusterTarget, workspace: Path | None = None, **options: Any) -> Iterator[Any]:
        self._cluster.opened = {"target": target, "workspace": workspace, **options}
        yield self._cluster


Iris = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def context(cluster: Cluster) -> Context:
    return Context(cluster)


@pytest.fixture
def iris(
    cluster: Cluster, context: Context, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Iris:  # fmt: skip
    """Run `iris job run` with words; its exit code, what it wrote to stdout, and what it said on stderr."""

    monkeypatch.setattr(follow, "Follower", Follower)
    for name in FORWARDED_ENV_VARS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def command(*words: str) -> tuple[int, str, str]:
        code = run(["job", "run", *words], context)
        written = capsys.readouterr()
        return code, written.out, written.err

    return command


def given(cluster: Cluster) -> dict[str, str]:
    """The variables of the job that the user gave, or has."""
    return {name: value for name, value in cluster.submitted["environment"].env_vars.items() if name[:5] != "IRIS_"}


def test_what_is_not_said_has_its_documented_default(iris: Iris, cluster: Cluster) -> None:
    code, out, said = iris("--job-name", "j", "--", "python", "x.py", "--flag")
    assert (code, out) == (0, "")
    sent = cluster.submitted
    assert sent["command"] == ("python", "x.py", "--flag")
    resources = sent.pop("resources")
    assert (resources.cpu, resources.memory, resources.disk, resources.device) == (0.1, "1GB", None, None)
    environment = sent.pop("environment")
    assert environment.env_vars.pop("IRIS_RUN_COMMAND").endswith("iris job run"), "without the job's name"
    assert (environment.pip_packages, environment.env_vars, environment.extras) == ((), {}, ())
    assert {name: sent[name] for name in sent if name not in ("command", "name")} == {
        "constraints": [],
        "coscheduling": None,
        "replicas": 1,
        "max_retries_failure": 0,
        "timeout": None,
        "priority_band": None,
        "max_retries_preemption": 1000,
        "max_task_failures": 0,
        "scheduling_timeout": None,
        "existing": "fail",
        "reserve": False,
        "reservation": [],
        "exclusive": False,
        "fence_after": None,
        "description": "",
        "notify_url": "",
        "retry_window": None,
        "health": None,
        "stall_timeout": None,
        "soft_limits": None,
        "limits_said": None,
        "cpu_quota": False,
    }
    assert cluster.guarded == ["/ann/j"]
    assert cluster.followed == [("/ann/j", 1, True)]
    assert said == "iris: job /ann/j on your local cluster at 127.0.0.1:1\n"
    assert cluster.opened["user"] is None
    assert cluster.opened["inherit_workspace"]


def test_every_option_reaches_the_cluster(iris: Iris, cluster: Cluster) -> None:
    words = (
        "--cpu 2.5 --memory 3GB --disk 7GB --gpu H100x4 --extra a --extra b --pip p --pip q -e K v -e L=w --replicas 3 "
        "--max-retries 4 --max-retries-preemption 5 --max-task-failures 2 --scheduling-timeout 6 --existing adopt "
        "--reserve --exclusive --fence-after 8 --timeout 9 --region r1 --region r2 --zone z --priority batch "
        "--job-name j --user bob --no-preemptible --no-terminate-on-exit"
    )
    iris(*words.split(), "--", "true")
    sent = cluster.submitted
    resources = sent["resources"]
    assert (resources.cpu, resources.memory, resources.disk) == (2.5, "3GB", "7GB")
    assert (resources.device.variant, resources.device.count) == ("H100", 4)
    environment = sent["environment"]
    assert (environment.extras, environment.pip_packages) == (("a", "b"), ("p", "q"))
    assert "iris job run --cpu 2.5 --memory 3GB" in environment.env_vars.pop("IRIS_RUN_COMMAND")
    assert environment.env_vars == {"K": "v", "L": "w"}
    assert sent["constraints"] == [region_constraint(("r1", "r2")), zone_constraint("z"), preemptible_constraint(False)]
    wanted = {
        "replicas": 3,
        "max_retries_failure": 4,
        "max_retries_preemption": 5,
        "max_task_failures": 2,
        "scheduling_timeout": 6,
        "existing": "adopt",
        "reserve": True,
        "exclusive": True,
        "fence_after": 8,
        "timeout": 9,
        "priority_band": "batch",
        "name": "j",
    }
    assert {name: sent[name] for name in wanted} == wanted
    assert cluster.opened["user"] == "bob"
    assert cluster.followed == [("/ann/j", 3, False)]


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


def test_a_tpu_with_what_would_do_as_well(iris: Iris, cluster: Cluster) -> None:
    iris("--tpu", "v5p-8,v4-8", "--preemptible", "--", "true")
    device = cluster.submitted["resources"].device
    assert (device.variant, device.alternatives) == ("v5p-8", ("v4-8",))
    assert cluster.submitted["constraints"] == [preemptible_constraint(True)]


def test_the_well_known_variables_go_along_and_what_is_given_wins(
    iris: Iris, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "mine")
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("SECRET", "stays here")
    iris("-e", "WANDB_MODE=offline", "-e", "E=a=b", "--", "true")
    assert given(cluster) == {"HF_TOKEN": "mine", "WANDB_MODE": "offline", "E": "a=b"}


def test_files_of_variables_go_along_and_what_is_given_wins(iris: Iris, cluster: Cluster, tmp_path: Path) -> None:
    first, second = tmp_path / "a.env", tmp_path / "b.env"
    first.write_text("A=1\nB=1\nC=1\nWANDB_MODE=disabled\n")
    second.write_text("B=2\nC=2\n")
    assert iris("--env-file", str(first), "-e", "C", "3", "--env-file", str(second), "--", "true")[0] == 0
    assert given(cluster) == {"A": "1", "B": "2", "C": "3", "WANDB_MODE": "disabled"}
    cluster.submitted = {}
    second.write_text("IRIS_TASK_ID=hunter2\n")
    code, out, said = iris("--env-file", str(second), "--", "true")
    assert (code, "Invalid value for '--env-file': IRIS_TASK_ID is what iris itself" in said) == (2, True)
    second.write_text("A=1\nhunter2\n")
    code, out, said = iris("--env-file", str(second), "--", "true")
    assert (code, f"env file {second}, line 2: there is no '='" in said) == (3, True)
    assert "hunter2" not in out + said
    assert cluster.submitted == {}


def test_without_waiting_the_id_alone_is_printed(iris: Iris, cluster: Cluster) -> None:
    code, out, said = iris("--no-wait", "--job-name", "j", "--", "true")
    assert (code, out) == (0, "/ann/j\n")
    assert "follow it with `iris job logs -f /ann/j`, stop it with `iris job stop /ann/j`" in said
    assert cluster.followed == []


def test_it_ends_as_the_job_ends(iris: Iris, cluster: Cluster) -> None:
    cluster.code = 37
    assert iris("--", "true")[0] == 37
    cluster.refusal = AlreadyExists("job /ann/j is live")
    code, _, said = iris("--", "true")
    assert (code, said) == (3, "iris: job /ann/j is live\n")


def test_a_job_that_nobody_named_is_named_after_its_command_and_never_twice(iris: Iris, cluster: Cluster) -> None:
    names = set()
    for _ in range(3):
        iris("--", "python", "train.py")
        names.add(cluster.submitted["name"])
    assert len(names) == 3
    assert all(name.startswith("train-") for name in names)


def test_help_is_help_only_before_the_separator(iris: Iris, cluster: Cluster) -> None:
    code, out, _ = iris("--cpu", "2", "--help")
    assert code == 0
    assert "-- COMMAND..." in out
    assert "--env-assignment" not in out
    assert cluster.submitted == {}
    iris("--", "ls", "--help")
    assert cluster.submitted["command"] == ("ls", "--help")


def test_which_files_go_along(iris: Iris, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'p'\nversion = '1'\n")
    iris("--", "true")
    found = cluster.opened["workspace"]
    assert found is not None
    assert Path(found).resolve() == tmp_path.resolve()
    iris("--workspace", "/elsewhere", "--", "true")
    assert cluster.opened["workspace"] == Path("/elsewhere")
    iris("--no-workspace", "--", "true")
    assert cluster.opened["workspace"] is None
    assert not cluster.opened["inherit_workspace"]
    code, _, said = iris("--no-workspace", "--workspace", "x", "--", "true")
    assert code == 2
    assert "--workspace and --no-workspace: give one of them" in said
    code, _, said = iris("--workspace", "", "--", "true")
    assert (code, "it is empty: name a folder, or give --no-workspace" in said) == (2, True)
    code, _, said = iris("--no-workspace", "-e", "IRIS_TASK_ID", "zz", "--", "true")
    assert (code, "IRIS_TASK_ID is what iris itself tells each task" in said) == (2, True)


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
    assert job_run.describe(target, cluster) == words


def test_jobs_of_a_job_take_its_files(iris: Iris, cluster: Cluster, context: Context, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'p'\nversion = '1'\n")
    inside = JobEnv("127.0.0.1:1", "/ann/a", "/ann/a/0", "/ann/a/0:0", "w", "")
    context.reached = ClusterTarget("c", lambda answered: None, inside)
    iris("--", "true")
    assert cluster.opened["workspace"] is None
    assert cluster.opened["inherit_workspace"]
