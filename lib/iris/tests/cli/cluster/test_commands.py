import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest

from iris.cli.main import run
from iris.client import ClusterStatus, JobStatus, ScaleGroupStatus, SliceStatus, WorkerStatus
from iris.cluster.types import JobState
from iris.local import start
from iris.local.settings import LocalSettings, read_settings
from iris.local.state import LocalPaths, held_lock
from iris.local.stop import ClusterProcesses
from rigging.errors import Conflict, Unavailable
from support.iris.cli import Client, Context, Iris

NOW_MS = 1_700_000_000_000
WORKER = WorkerStatus(
    "w1",
    True,
    8,
    16 * 2**30,
    0,
    "H100 x 8",
    committed_cpu=2.5,
    committed_memory_bytes=3 * 2**30,
    running_tasks=4,
    used_cpu=0.4,
    used_memory_bytes=2**30,
)
STATUS = ClusterStatus("1.2", 2, 77, "/state", NOW_MS - 125_000, 900, 5, 6, (WORKER,))


class Local:
    """The user's local cluster, as far as the commands ask about it."""

    running = False
    idle = 900.0
    worker_trouble = ""
    refusal: Exception | None = None

    def __init__(self, paths: LocalPaths) -> None:
        self.paths = paths
        self.asked: list[dict[str, Any]] = []

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


class Stoppable(Client):
    """A client of the cluster that is stopped."""

    address = "127.0.0.1:7"

    def __init__(self) -> None:
        super().__init__()
        self.cluster = STATUS
        self.stopped: list[str] = []
        self.error: Exception | None = None
        self.forced: list[bool] = []

    def stop_cluster(self, *, stop_jobs: bool) -> list[str]:
        self.forced.append(stop_jobs)
        if self.error is not None:
            raise self.error
        return self.stopped


class Executed(BaseException):
    """Another program took this one's place."""


class Cluster(Context):
    """Commands reach what the test made."""

    def __init__(self, local: Local, client: Stoppable) -> None:
        super().__init__(client, NOW_MS)
        self.local, self.executed = local, list[Any]()
        self.silent: set[str] = set()
        self.ended = create_autospec(ClusterProcesses, instance=True)
        self.ended.holders.return_value, self.ended.wake.return_value = {}, []

    def local_cluster(self, **options: Any) -> Any:
        return self.local(**options)

    @contextlib.contextmanager
    def connect(self, *target: Any, **options: Any) -> Iterator[Any]:
        if target and target[0].name in self.silent:
            raise Unavailable("it does not answer")
        yield self.reached

    def processes(self, paths: LocalPaths) -> Any:
        assert paths is self.local.paths
        return self.ended

    def execute(self, command: list[str], environ: Mapping[str, str]) -> None:
        self.executed += [command, environ]
        raise Executed


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Local:
    for name in [name for name in os.environ if name.startswith("IRIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    return Local(LocalPaths(tmp_path / "state"))


@pytest.fixture
def client() -> Stoppable:
    return Stoppable()


@pytest.fixture
def context(local: Local, client: Stoppable) -> Cluster:
    return Cluster(local, client)


@pytest.fixture
def processes(context: Cluster) -> Any:
    return context.ended


def ended(processes: Any) -> list[str]:
    """How processes of the local cluster were ended."""
    return [name for name, _, _ in processes.mock_calls if name in ("wait_stopped", "kill")]


@pytest.fixture
def iris(context: Cluster, capsys: pytest.CaptureFixture[str]) -> Iris:
    def command(*words: str, first: tuple[str, ...] = ()) -> tuple[int, str, str]:
        code = run([*first, "cluster", *words], context)
        written = capsys.readouterr()
        return code, written.out, written.err.removeprefix("iris: ")

    return command


@pytest.mark.parametrize(
    ("words", "running", "idle", "more"),
    [
        ((), True, 900.0, ""),
        (("--idle-timeout", "0"), False, 0.0, ""),
        (("--idle-timeout", "900"), True, 900.0, ""),
        (("--idle-timeout", "5"), True, 5.0, "iris: its idle timeout stays 900 s; stop it first to change that\n"),
    ],
)
def test_a_cluster_is_started_once(
    iris: Iris, local: Local, words: tuple[str, ...], running: bool, idle: float, more: str
) -> None:
    local.running = running
    state = "runs already" if running else "is ready"
    said = f"the local cluster {state} at 127.0.0.1:7\n{more}"
    assert iris("start", "--local", *words) == (0, "", said)
    assert local.asked[-1]["idle_exit_seconds"] == idle
    assert not (local.paths.root / "settings.json").exists(), "nothing was said of its settings"
    local.worker_trouble = "its disk is bad"
    assert iris("start", "--local") == (5, "", "the local cluster runs at 127.0.0.1:7 without a worker\n")


def test_only_the_local_cluster_can_be_started_also_by_its_name(iris: Iris, local: Local) -> None:
    for words, first in ((("start",), ()), (("start", "--local"), ("--controller-url", "h:1"))):
        code, _, said = iris(*words, first=first)
        assert (code, "iris cluster start --local" in said, local.running) == (2, True, False)
    assert iris("start", "--local", first=("--cluster", "local"))[0] == 0
    assert local.running


def test_what_is_said_of_the_state_is_kept_and_only_that_is_changed(iris: Iris, local: Local, tmp_path: Path) -> None:
    remote, other, config = str(tmp_path / "remote"), str(tmp_path / "other"), tmp_path / "here.yaml"
    config.write_text("scale_groups: {}\n")
    for words, first, kept in (
        (("--remote-state-dir", remote, "--durability", "remote"), (), LocalSettings("", remote, "remote")),
        (("--remote-state-dir", other), (), LocalSettings("", other, "remote")),
        (("--durability", "local"), (), LocalSettings("", other, "local")),
        # Nowhere else: nothing can be awaited there.
        (("--remote-state-dir", ""), (), LocalSettings("", "", "")),
        ((), ("--config", str(config)), LocalSettings(str(config), "", "")),
        (("--durability", "local"), (), LocalSettings(str(config), "", "local")),
    ):
        local.running = False
        assert iris("start", "--local", *words, first=first)[0] == 0
        assert read_settings(local.paths) == kept


def test_settings_cannot_change_under_a_running_cluster_and_a_mistake_does_not_stay(iris: Iris, local: Local) -> None:
    local.running = True
    code, _, said = iris("start", "--local", "--durability", "local")
    assert (code, "stop it first with `iris cluster stop`" in said) == (2, True)
    assert not (local.paths.root / "settings.json").exists()
    local.running = False
    assert iris("start", "--local", "--durability", "remote")[0] == 3
    assert (read_settings(local.paths), local.running) == (LocalSettings(), False)


def test_in_the_foreground_it_takes_the_place_of_the_command(iris: Iris, local: Local, context: Cluster) -> None:
    with pytest.raises(Executed):
        iris("start", "--local", "--foreground", "--idle-timeout", "7")
    command, environment = context.executed
    assert command == start.foreground_command(local.paths, 7.0)
    assert environment["IRIS_STATE_DIR"] == str(local.paths.root)
    assert local.paths.root.is_dir()
    local.running, context.executed = True, []
    code, _, said = iris("start", "--local", "--foreground")
    assert (code, "is already running" in said, context.executed) == (2, True, [])


def test_the_status_of_a_cluster(iris: Iris, local: Local, client: Stoppable) -> None:
    local.running = True
    code, out, _ = iris("status")
    assert code == 0
    assert out.splitlines() == [
        "controller: 127.0.0.1:7 (iris 1.2, process 77, up 2 min 5 s, exits after 15 min 0 s idle)",
        "state:      /state",
        "tasks:      6 running, 5 pending",
        "",
        "WORKER  STATE      CPU USED  PROMISED  MEMORY USED  PROMISED      DEVICE    TASKS",
        "w1      connected  0.4       2.5/8     1 GiB        3 GiB/16 GiB  H100 x 8  4",
    ]
    found = json.loads(iris("status", "--json")[1])
    assert (found["running"], found["address"], found["pid"]) == (True, "127.0.0.1:7", 77)
    away = WorkerStatus("w", False, 1, 1, 1, "", 0, 0, 0, {"slice": "s1"}, trouble="its guardian sleeps")
    client.cluster = ClusterStatus("1", 2, 1, "/s", NOW_MS, 0, 0, 0, (away,))
    lines = iris("status")[1].splitlines()
    assert "worker:     w takes no tasks: its guardian sleeps" in lines
    assert lines[0].endswith("up 0.0 s, never exits when idle)")
    assert (lines[-1].startswith("w       away"), lines[-1].split()[-8:]) == (
        True, ["0/1", "0", "B", "0", "B/1", "B", "-", "0"],
    )  # fmt: skip
    assert (lines[-4].split()[:3], client.asked[-1]) == (["s1", "-", "0/1"], {"all_workers": True})
    closed = ScaleGroupStatus("v5e", 8, 1, "", 4, 0, 9, {}, 3, 0, 2, 1, "stock-out: none left", NOW_MS)
    forever = replace(closed, name="v4", demand=0, booting=0, failed=0, outcome="config: no zone", next_try_ms=0)
    broken = SliceStatus("v5e-0", "v5e", "booting", 0, NOW_MS - 43_000, words="h1: installing iris failed")
    lost = replace(broken, name="v5e-2", state="failed", reason="PREEMPTED", asked_by="ann")
    client.operator.slices.return_value = [
        broken,
        *(replace(broken, name="x", state=it) for it in ("gone", "failed")),
        lost,
    ]
    part = replace(away, connected=True, trouble="", attributes={"slice": "s1", "scale-group": "v5e"})
    groups = (closed, replace(forever, name="cpu", outcome="", trouble="h7 is out of reach"), forever)
    client.cluster = replace(STATUS, scale_groups=groups, workers=(part,))
    lines = iris("status")[1].splitlines()
    joining = [line.split()[:3] for line in lines if line.startswith(("v5e ", "s1 "))]
    assert joining == [["v5e", "0/9", "4"], ["s1", "v5e", "1/4"]], "a slice of 4 hosts boots, the first has joined"
    assert lines[8:11] == [
        "v5e: 3 wanted, 2 booting, 1 failed, closed until 22:13:20 UTC (stock-out: none left)",
        "cpu: h7 is out of reach",
        "v4: closed until the cluster file changes (config: no zone)",
    ]
    assert lines[11:14] == [
        "v5e-0: booting for 43.0 s (h1: installing iris failed)",
        "v5e-2: failed for 43.0 s (PREEMPTED)",
        "",
    ]
    assert json.loads(iris("status", "--json")[1])["slices"][0]["name"] == "v5e-0"


def test_the_status_of_nothing_starts_nothing_and_one_that_hangs_is_told(iris: Iris, local: Local) -> None:
    code, out, said = iris("status")
    assert (code, out) == (5, "")
    assert said.startswith(f"no local cluster runs (state in {local.paths.root})")
    _, out, said = iris("status", "--json")
    assert (json.loads(out), said) == ({"running": False, "state_dir": str(local.paths.root)}, "")
    local.paths.make()
    with held_lock(local.paths.controller_lock, timeout=1):
        code, out, said = iris("status")
        assert (code, out) == (5, "")
        assert said.startswith(f"the local cluster's controller (process {os.getpid()}) does not answer")
        assert json.loads(iris("status", "--json")[1])["pid"] == os.getpid()


@pytest.mark.parametrize(
    ("stopped", "said"), [([], ""), (["/a/b"], " and 1 job"), (["/a/b", "/a/c"], " and 2 jobs")], ids=len
)
def test_stopping_says_what_was_stopped(
    iris: Iris, local: Local, client: Stoppable, processes: Any, stopped: list[str], said: str
) -> None:
    local.running, client.stopped, processes.wake.return_value = True, stopped, ["worker"]
    assert iris("stop") == (0, "", f"cluster local{said} stopped\n")
    assert (client.forced, ended(processes)) == ([False], ["wait_stopped"])
    assert iris("stop", "--force")[2].startswith("the local cluster's worker was suspended; resuming it")
    assert client.forced == [False, True]


def test_live_jobs_are_named_and_stay(iris: Iris, local: Local, client: Stoppable, processes: Any) -> None:
    local.running, client.error = True, Conflict("there are live jobs")
    assert iris("stop")[::2] == (3, "there are live jobs\n"), "which have all ended in between"
    assert client.asked[-1]["states"] == [JobState.PENDING, JobState.BUILDING, JobState.RUNNING]
    client.jobs = [JobStatus(f"/a/{number}", JobState.RUNNING) for number in range(5)]
    said = iris("stop")[2]
    assert said.startswith("the cluster has live jobs: /a/0, /a/1, /a/2, /a/3, /a/4; stop them with `iris job stop`")
    client.jobs.append(JobStatus("/a/5", JobState.PENDING))
    assert "/a/4 and 1 more; stop them" in iris("stop")[2]
    assert ended(processes) == []


def test_one_that_is_deaf_is_ended_by_force(iris: Iris, local: Local, client: Stoppable, processes: Any) -> None:
    local.running = True
    processes.wait_stopped.side_effect = Unavailable("the controller did not end within 20 s")
    assert (iris("stop")[0], ended(processes)) == (5, ["wait_stopped"])
    assert (iris("stop", "--force")[0], ended(processes)[1:]) == (0, ["wait_stopped", "kill"])
    client.error = Unavailable("the controller is gone")
    processes.reset_mock()
    assert (iris("stop")[0], ended(processes)) == (5, [])
    said = "the local cluster's controller does not answer; killing it\niris: cluster local stopped\n"
    assert iris("stop", "--force") == (0, "", said)
    assert ended(processes) == ["kill"]


def test_of_another_machines_cluster_no_process_is_touched(iris: Iris, client: Stoppable, processes: Any) -> None:
    client.operator.end_cluster.return_value = [], []
    assert iris("stop", first=("--controller-url", "h:1"))[2] == "cluster h:1 stopped\n"
    client.operator.end_cluster.return_value = [], ["v5e-0"]
    assert "the deletion of v5e-0 is not confirmed" in iris("stop", first=("--controller-url", "h:1"))[2]
    client.operator.end_cluster.side_effect = Unavailable("no route")
    assert iris("stop", "--force", first=("--controller-url", "h:1"))[0] == 5
    assert ended(processes) == []


@pytest.mark.parametrize("is_foreign", [False, True])
def test_what_is_left_of_a_cluster(iris: Iris, local: Local, processes: Any, is_foreign: bool) -> None:
    processes.holders.return_value = {"worker": 12, "guardian": 13}
    local.refusal = Conflict("it speaks protocol 1") if is_foreign else None
    code, _, said = iris("stop")
    told = "worker (process 12) and guardian (process 13) of the local cluster runs but does not answer"
    assert (code, said.partition(";")[0]) == ((3, "it speaks protocol 1\n") if is_foreign else (5, told))
    assert ended(processes) == []
    assert iris("stop", "--force") == (0, "", "ended worker (process 12) and guardian (process 13)\n")
    assert ended(processes) == ["kill"]
    processes.holders.return_value = {}
    assert iris("stop", "--force") == (0, "", "no local cluster runs\n")
    assert ended(processes) == ["kill"] * 2, "tasks may have outlived all of them"
    if not is_foreign:
        assert iris("stop") == (0, "", "no local cluster runs\n")
        assert ended(processes) == ["kill"] * 2


def test_the_clusters_that_can_be_named_are_listed_with_what_they_answer(
    context: Cluster, iris: Iris, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "infra" / "clusters").mkdir(parents=True)
    for name, address in (("far", "address: '10.0.0.1:7'"), ("dead", "address: '10.0.0.2:7'"), ("bad", "")):
        (tmp_path / "infra" / "clusters" / f"{name}.yaml").write_text(f"controller: {{{address}}}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    context.silent = {"dead"}
    code, out, _ = iris("list", "--json")
    found = {item["cluster"]: (item["state"], item["address"], item["workers"]) for item in json.loads(out)}
    assert (code, found) == (
        0,
        {
            "local": ("not running", "", None), "far": ("answers", "127.0.0.1:7", 1),
            "dead": ("unreachable", "", None), "bad": ("unusable", "", None),
        },
    )  # fmt: skip
    assert "has no controller.address" in iris("list")[1]
    assert context.local.running is False, "nothing is started"
