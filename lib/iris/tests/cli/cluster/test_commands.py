"""`iris cluster start|status|stop`: what they ask of the local cluster, and what they say of one."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iris.cli.context import CliContext
from iris.cli.main import run
from iris.client import ClusterStatus, JobStatus, WorkerStatus
from iris.client.connection.discovery import ClusterTarget
from iris.cluster.types import JobState
from iris.local import start
from iris.local.settings import LocalSettings, read_settings
from iris.local.state import LocalPaths, held_lock
from rigging.errors import Conflict, Unavailable

NOW_MS = 1_700_000_000_000
WORKER = WorkerStatus(
    "w1", True, 8, 16 * 2**30, 0, "H100 x 8", committed_cpu=2.5, committed_memory_bytes=3 * 2**30, running_tasks=4
)
STATUS = ClusterStatus("1.2", 2, 77, "/state", NOW_MS - 125_000, 900, 5, 6, (WORKER,))


class Local:
    """The user's local cluster, as far as the commands ask about it."""

    running = False
    idle = 900.0
    worker_trouble = ""
    refusal: Exception | None = None
    asked: list[dict[str, Any]]

    def __init__(self, paths: LocalPaths) -> None:
        self.paths = paths
        self.asked = []

    def __call__(self, **options: Any) -> "Local":
        self.asked.append(options)
        return self

    def find(self) -> Any:
        if self.refusal is not None:
            raise self.refusal
        return self._record() if self.running else None

    def ensure(self) -> Any:
        started, self.running = not self.running, True
        return SimpleNamespace(started=started, record=self._record())

    def _record(self) -> Any:
        return SimpleNamespace(
            address="127.0.0.1:7", token="", idle_exit_seconds=self.idle, worker_trouble=self.worker_trouble
        )


class Client:
    """A client of the cluster that is stopped."""

    address = "127.0.0.1:7"

    def __init__(self) -> None:
        self.status = STATUS
        self.jobs: list[JobStatus] = []
        self.stopped: list[str] = []
        self.error: Exception | None = None
        self.asked: list[Any] = []

    def cluster_status(self) -> ClusterStatus:
        return self.status

    def stop_cluster(self, *, stop_jobs: bool) -> list[str]:
        self.asked.append(stop_jobs)
        if self.error is not None:
            raise self.error
        return self.stopped

    def list_jobs(self, states: list[JobState]) -> list[JobStatus]:
        self.asked.append(states)
        return self.jobs


class Executed(BaseException):
    """Another program took this one's place."""


class Processes:
    """The processes of the local cluster."""

    def __init__(self) -> None:
        self.running: dict[str, int] = {}
        self.ended: list[str] = []
        self.delay: Exception | None = None

    def holders(self) -> dict[str, int]:
        return self.running

    def wake(self) -> list[str]:
        return []

    def wait_stopped(self, on_wait: Callable[[str], None]) -> None:
        if self.delay is not None:
            raise self.delay
        self.ended.append("waited")

    def kill(self) -> None:
        self.ended.append("killed")


class Context(CliContext):
    """Commands reach what the test made."""

    def __init__(self, local: Local, client: Client, processes: Processes) -> None:
        super().__init__()
        self._local, self._client, self._processes = local, client, processes
        self.executed: list[Any] = []

    def local_cluster(self, **options: Any) -> Any:
        return self._local(**options)

    def processes(self, paths: LocalPaths) -> Any:
        assert paths is self._local.paths
        return self._processes

    @contextlib.contextmanager
    def connect(self, target: ClusterTarget, workspace: Path | None = None, **options: Any) -> Iterator[Any]:
        yield self._client

    def now_ms(self) -> int:
        return NOW_MS

    def execute(self, command: list[str], environ: Mapping[str, str]) -> None:
        self.executed += [command, environ]
        raise Executed


Iris = Callable[..., tuple[int, str, str]]


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Local:
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    for name in [name for name in os.environ if name.startswith("IRIS_") and name != "IRIS_STATE_DIR"]:
        monkeypatch.delenv(name)
    return Local(LocalPaths(tmp_path / "state"))


@pytest.fixture
def processes() -> Processes:
    return Processes()


@pytest.fixture
def ended(processes: Processes) -> list[str]:
    """How processes of the local cluster were ended."""
    return processes.ended


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def context(local: Local, client: Client, processes: Processes) -> Context:
    return Context(local, client, processes)


@pytest.fixture
def iris(context: Context, capsys: pytest.CaptureFixture[str]) -> Iris:
    def command(*words: str) -> tuple[int, str, str]:
        code = run(["cluster", *words], context)
        written = capsys.readouterr()
        return code, written.out, written.err.removeprefix("iris: ")

    return command


@pytest.mark.parametrize(
    ("words", "running", "idle", "said"),
    [
        ((), False, 900.0, "the local cluster is ready at 127.0.0.1:7\n"),
        ((), True, 900.0, "the local cluster runs already at 127.0.0.1:7\n"),
        (("--idle-timeout", "0"), False, 0.0, "the local cluster is ready at 127.0.0.1:7\n"),
        (("--idle-timeout", "900"), True, 900.0, "the local cluster runs already at 127.0.0.1:7\n"),
        (
            ("--idle-timeout", "5"),
            True,
            5.0,
            "the local cluster runs already at 127.0.0.1:7\n"
            "iris: its idle timeout stays 900 s; stop it first to change that\n",
        ),
    ],
)
def test_a_cluster_is_started_once(
    iris: Iris, local: Local, words: tuple[str, ...], running: bool, idle: float, said: str
) -> None:
    local.running = running
    assert iris("start", "--local", *words) == (0, "", said)
    assert local.asked[-1]["idle_exit_seconds"] == idle
    assert not (local.paths.root / "settings.json").exists(), "nothing was said of its settings"


def test_a_cluster_without_a_worker_is_not_said_to_be_ready(iris: Iris, local: Local) -> None:
    local.running, local.worker_trouble = True, "its disk is bad"
    assert iris("start", "--local") == (5, "", "the local cluster runs at 127.0.0.1:7 without a worker\n")


@pytest.mark.parametrize(
    "words",
    [("cluster", "start"), ("--controller-url", "h:1", "cluster", "start", "--local")],
)
def test_only_the_local_cluster_can_be_started(
    context: Context, local: Local, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(list(words), context) == 2
    assert "iris cluster start --local" in capsys.readouterr().err
    assert not local.running


def test_a_cluster_may_be_named_local(context: Context, local: Local) -> None:
    assert run(["--cluster", "local", "cluster", "start", "--local"], context) == 0
    assert local.running


def test_what_is_said_of_the_state_is_kept_and_only_that_is_changed(iris: Iris, local: Local, tmp_path: Path) -> None:
    remote, other = str(tmp_path / "remote"), str(tmp_path / "other")
    iris("start", "--local", "--remote-state-dir", remote, "--durability", "remote")
    assert read_settings(local.paths) == LocalSettings("", remote, "remote")
    local.running = False
    iris("start", "--local", "--remote-state-dir", other)
    assert read_settings(local.paths) == LocalSettings("", other, "remote")
    local.running = False
    iris("start", "--local", "--durability", "local")
    assert read_settings(local.paths) == LocalSettings("", other, "local")
    local.running = False
    iris("start", "--local", "--remote-state-dir", "")
    assert read_settings(local.paths) == LocalSettings("", "", ""), "nowhere else: nothing can be awaited there"


def test_settings_cannot_change_under_a_running_cluster(iris: Iris, local: Local) -> None:
    local.running = True
    code, _, said = iris("start", "--local", "--durability", "local")
    assert code == 2
    assert "end it first with `iris cluster stop`" in said
    assert not (local.paths.root / "settings.json").exists()


def test_a_mistake_in_the_settings_does_not_stay(iris: Iris, local: Local) -> None:
    code, _, said = iris("start", "--local", "--durability", "remote")
    assert code == 3, said
    assert read_settings(local.paths) == LocalSettings()
    assert not local.running


def test_the_config_that_is_given_is_kept(iris: Iris, context: Context, local: Local, tmp_path: Path) -> None:
    config = tmp_path / "here.yaml"
    config.write_text("scale_groups: {}\n")
    assert run(["--config", str(config), "cluster", "start", "--local"], context) == 0
    assert read_settings(local.paths) == LocalSettings(str(config), "", "")
    local.running = False
    iris("start", "--local", "--durability", "local")
    assert read_settings(local.paths) == LocalSettings(str(config), "", "local")


def test_in_the_foreground_it_takes_the_place_of_the_command(iris: Iris, local: Local, context: Context) -> None:
    with pytest.raises(Executed):
        iris("start", "--local", "--foreground", "--idle-timeout", "7")
    command, environment = context.executed
    assert command == start.foreground_command(local.paths, 7.0)
    assert environment["IRIS_STATE_DIR"] == str(local.paths.root)
    assert local.paths.root.is_dir()
    local.running, context.executed = True, []
    code, _, said = iris("start", "--local", "--foreground")
    assert code == 2
    assert "runs already" in said
    assert context.executed == []


def test_the_status_of_a_cluster(iris: Iris, local: Local, client: Client) -> None:
    local.running = True
    code, out, _ = iris("status")
    assert code == 0
    assert out.splitlines() == [
        "controller: 127.0.0.1:7 (iris 1.2, process 77, up 2 min 5 s, leaves after 15 min 0 s idle)",
        "state:      /state",
        "tasks:      6 running, 5 pending",
        "",
        "WORKER  STATE      CPU USED  MEMORY USED   DEVICE    TASKS",
        "w1      connected  2.5/8     3 GiB/16 GiB  H100 x 8  4",
    ]
    found = json.loads(iris("status", "--json")[1])
    assert (found["running"], found["address"], found["pid"]) == (True, "127.0.0.1:7", 77)
    client.status = ClusterStatus("1", 2, 1, "/s", NOW_MS, 0, 0, 0, (WorkerStatus("w", False, 1, 1, 1, "", 0, 0, 0),))
    lines = iris("status")[1].splitlines()
    assert lines[0].endswith("up 0.0 s, stays when idle)")
    assert lines[-1].split() == ["w", "away", "0/1", "0", "B/1", "B", "-", "0"]


def test_the_status_of_nothing_starts_nothing(iris: Iris, local: Local) -> None:
    code, out, said = iris("status")
    assert (code, out) == (5, "")
    assert said.startswith(f"no local cluster runs (state in {local.paths.root})")
    assert iris("status", "--json")[1:] == (
        json.dumps({"running": False, "state_dir": str(local.paths.root)}, indent=1) + "\n", "",
    )  # fmt: skip


def test_a_controller_that_does_not_answer_is_not_said_to_be_none(iris: Iris, local: Local) -> None:
    local.paths.make()
    with held_lock(local.paths.controller_lock, timeout=1):
        code, out, said = iris("status")
        assert (code, out) == (5, "")
        assert said.startswith(f"the local cluster's controller (process {os.getpid()}) does not answer")
        assert json.loads(iris("status", "--json")[1])["pid"] == os.getpid()


@pytest.mark.parametrize(
    ("stopped", "said"),
    [
        ([], "cluster local stopped\n"),
        (["/a/b"], "cluster local and 1 job stopped\n"),
        (["/a/b", "/a/c"], "cluster local and 2 jobs stopped\n"),
    ],
)
def test_stopping_says_what_was_stopped(
    iris: Iris, local: Local, client: Client, ended: list[str], stopped: list[str], said: str
) -> None:
    local.running, client.stopped = True, stopped
    assert iris("stop") == (0, "", said)
    assert (client.asked, ended) == ([False], ["waited"])
    iris("stop", "--force")
    assert client.asked == [False, True]


def test_live_jobs_are_named_and_stay(iris: Iris, local: Local, client: Client, ended: list[str]) -> None:
    local.running, client.error = True, Conflict("there are live jobs")
    code, _, said = iris("stop")
    assert (code, said) == (3, "there are live jobs\n"), "which have all ended in between"
    assert client.asked[-1] == [JobState.PENDING, JobState.BUILDING, JobState.RUNNING]
    client.jobs = [JobStatus(f"/a/{number}", JobState.RUNNING) for number in range(5)]
    said = iris("stop")[2]
    assert said.startswith("the cluster has live jobs: /a/0, /a/1, /a/2, /a/3, /a/4; stop them with `iris job stop`")
    client.jobs.append(JobStatus("/a/5", JobState.PENDING))
    assert "/a/4 and 1 more; stop them" in iris("stop")[2]
    assert ended == []


def test_a_cluster_that_answers_no_more_is_ended_only_by_force(
    iris: Iris, local: Local, client: Client, processes: Processes, ended: list[str]
) -> None:
    local.running, processes.delay = True, Unavailable("the controller did not end within 20 s")
    assert iris("stop")[0] == 5
    assert ended == []
    assert iris("stop", "--force")[0] == 0
    assert ended == ["killed"]
    client.error = Unavailable("the controller is gone")
    assert iris("stop")[0] == 5
    assert ended == ["killed"]
    said = "the local cluster's controller does not answer; ending it by signal\niris: cluster local stopped\n"
    assert iris("stop", "--force") == (0, "", said)
    assert ended == ["killed", "killed"]


def test_another_machines_cluster_is_asked_and_no_process_is_touched(
    iris: Iris, context: Context, client: Client, ended: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--controller-url", "h:1", "cluster", "stop"], context) == 0
    assert capsys.readouterr().err == "iris: cluster h:1 stopped\n"
    client.error = Unavailable("no route")
    assert run(["--controller-url", "h:1", "cluster", "stop", "--force"], context) == 5
    assert ended == []


@pytest.mark.parametrize("is_foreign", [False, True])
def test_what_is_left_of_a_cluster(
    iris: Iris, local: Local, processes: Processes, ended: list[str], is_foreign: bool
) -> None:
    processes.running = {"worker": 12, "guardian": 13}
    if is_foreign:
        local.refusal = Conflict("it speaks protocol 1")
        assert iris("stop")[0] == 3
    else:
        code, _, said = iris("stop")
        assert code == 5
        assert said.startswith("worker (process 12) and guardian (process 13) of the local cluster runs but does not")
    assert ended == []
    assert iris("stop", "--force") == (0, "", "ended worker (process 12) and guardian (process 13)\n")
    assert ended == ["killed"]
    processes.running = {}
    assert iris("stop", "--force") == (0, "", "no local cluster runs\n")
    assert ended == ["killed", "killed"], "tasks may have outlived all of them"
    if not is_foreign:
        assert iris("stop") == (0, "", "no local cluster runs\n")
        assert len(ended) == 2
