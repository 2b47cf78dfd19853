"""The operations on four machines, each in namespaces of its own, with real ssh and Ray and our generated file.

Its provider is Ray's `local` one; `docker` and `gcloud` are stand-ins (see marin.testing.machines). The
tests share a cluster, and the last one ends it.
"""

import json
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from marin.testing.documents import blocks, filled
from marin.testing.machines import Machines, missing
from marin.testing.machines.operator import FILE, Operator, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.e2e,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(missing()), reason=f"NOT TESTED on machines of their own: {missing()}"),
]

ROOT = Path(__file__).parents[5]
DOCUMENTS = Path(__file__).parents[1] / "documents"
DASHBOARD = "http://127.0.0.1:8265"
MARIN = ("python", "-m", "marin.run.cluster")


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Who brought the cluster up by our command: a head and two TPU VMs, as the generated file has them."""
    generated = yaml.safe_load((ROOT / FILE).read_text())
    types = generated["available_node_types"]
    # Ray's Google provider tells the nodes of their resources, the local one does not.
    tpu = types["tpu_v4_8"]["resources"]
    hardware = {"head": types["head_default"]["resources"], "worker-1": tpu, "worker-2": tpu}
    with Machines(tmp_path_factory.mktemp("machines"), ROOT, hardware).running() as machines:
        found = Operator(machines, generated)
        for source in ("pyproject.toml", "marin/run/ray_run.py", "tests/test_ray_cluster.py"):
            found.write(source, (ROOT / source).read_text())
        for path in (ROOT / "experiments").rglob("*.py"):
            found.write(str(path.relative_to(ROOT)), path.read_text())
        assert found.run("git", "init", "--quiet").returncode == 0
        found.up()
        yield found


def test_commands_on_the_head_end_with_their_own_exit_code(operator: Operator) -> None:
    for command, code, printed in (
        ("hostname; exit 42", 42, "head\n"),
        ("printf 'a\\nb'", 0, "a\nb"),
        ("kill -9 $BASHPID", 137, ""),
        ("echo $RAY_AUTH_MODE $MARIN_PREFIX", 0, "token gs://marin-us-central2\n"),
    ):
        done = operator.marin("ssh", "--", command)
        assert (done.returncode, done.stdout) == (code, printed), done.stdout + done.stderr
    status = operator.marin("status")
    assert status.returncode == 0
    assert "0.0/240.0 CPU" in status.stdout, status.stdout
    assert "0.0/2.0 TPU-v4-8-head" in status.stdout, "the resources of the generated file, and no work on the head"


def test_the_documents_line_that_follows_the_autoscaler(operator: Operator) -> None:
    line = f'ray exec {FILE} "tail -n 100 -f /tmp/ray/session_latest/logs/monitor*"'
    with operator.terminal(*shlex.split(line)) as terminal:
        terminal.await_text("Autoscaler status")
        terminal.press("\x03")
        assert terminal.wait() != 0


@pytest.mark.parametrize("words", [("ray", "attach", FILE), (*MARIN, "ssh")])
def test_a_shell_on_the_head(operator: Operator, words: tuple[str, ...]) -> None:
    with operator.terminal(*words) as terminal:
        terminal.await_text("head:~#")
        terminal.press("echo $((6 * 7)) on $(hostname)\r")
        terminal.await_text("42 on head\n")
        terminal.press("exit\r")
        assert terminal.wait() == 0


def test_what_the_autoscaler_says(operator: Operator) -> None:
    with operator.terminal(*MARIN, "monitor") as terminal:
        terminal.await_text("Autoscaler status")
        terminal.press("\x03")
        assert terminal.wait() != 0


@pytest.mark.parametrize(("how", "code"), [("Ctrl-C", 130), (signal.SIGTERM, 143), (signal.SIGKILL, None)])
def test_a_connection_to_the_dashboard_ends_with_its_command(
    operator: Operator, how: str | signal.Signals, code: int | None
) -> None:
    with operator.terminal(*MARIN, "dashboard") as terminal:
        terminal.await_text(f"dashboard: {DASHBOARD}")
        assert operator.run("curl", "--silent", "--fail", f"{DASHBOARD}/api/version").returncode != 7
        assert operator.tunnels(), "its ssh runs"
        if isinstance(how, str):
            terminal.press("\x03")
        else:
            operator.kill("-m marin.run.cluster dashboard", how)
        ended = terminal.wait()
        assert code is None or ended == code
        until(lambda: operator.tunnels() or True, "nothing is left of the connection", 10)
        assert operator.run("curl", "--silent", DASHBOARD).returncode == 7, "nobody listens"


def test_the_documents_two_terminals(operator: Operator) -> None:
    with operator.terminal("ray", "dashboard", FILE):
        until(lambda: operator.run("curl", "--silent", DASHBOARD).returncode == 0, "the connection is there", 60)
        line = f"ray job submit --address {DASHBOARD} --working-dir . -- python tests/test_ray_cluster.py"
        done = operator.run(*line.split())
        assert done.returncode == 0, done.stdout + done.stderr
        assert "8 of 8 tasks are well, on 2 distinct nodes" in done.stdout
        listed = operator.marin("jobs", "--all")
        assert "SUCCEEDED" in listed.stdout, listed.stdout + listed.stderr


RAY_RUN = ("python", "marin/run/ray_run.py", "--cluster", "marin-cluster", "--no-project-deps")


@pytest.mark.parametrize(
    ("experiment", "printed"),
    [
        ("experiments/hello_world.py", '{"sum": 4950, "min": 0, "max": 99}'),
        ("experiments/tutorials/fan_out.py", '{"sum": 40475, "jobs": {"outer": 50, "inner": 50}}'),
        ("experiments/tutorials/sweep.py", "best of 9: lr=0.5-momentum=0.0, loss 0"),
    ],
)
def test_experiments(operator: Operator, experiment: str, printed: str) -> None:
    variables = ("-e", "FRAY_CLIENT=ray", "-e", "MARIN_PREFIX=/srv/marin")
    done = operator.run(*RAY_RUN, *variables, "--", "python", experiment, seconds=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert printed in done.stdout
    assert not operator.tunnels()


def test_the_documents_functions_that_ask_for_a_tpu(operator: Operator) -> None:
    ask, removing = (text for text in blocks(DOCUMENTS / "internal-developers.md") if "TPU" in text)
    body = (
        "open('/tmp/libtpu_lockfile', 'w').close(); "
        "return os.uname().nodename, ray.get_runtime_context().get_assigned_resources()"
    )
    for block, left in ((ask, 1), (removing, 0)):
        start = "import json, os, ray\nray.init(log_to_driver=False)\n"
        end = "print(json.dumps(ray.get(my_tpu_job.remote())))\n"
        operator.write("tpu.py", start + filled(block, ("def my_tpu_job():", body)) + end)
        done = operator.run(*RAY_RUN, "--", "python", "tpu.py")
        assert done.returncode == 0, done.stdout + done.stderr
        host, given = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
        assert host.startswith("worker-")
        assert (given["CPU"], given["TPU"], given["TPU-v4-8-head"]) == (8, 4, 1)
        locks = list(operator.machines.all[host].folder.glob("opt/container-*/tmp/libtpu_lockfile"))
        assert len(locks) == left
        for lock in locks:
            lock.unlink()


WAITS = """
import pathlib, sys, time
with open(f"/srv/{sys.argv[1]}", "a") as notes:
    notes.write("begun\\n")
while not pathlib.Path("/srv/end").exists():
    time.sleep(0.2)
print(sys.argv[1], "is done")
"""


def test_a_restart_submits_the_jobs_again(operator: Operator) -> None:
    """One runs on the head, two have a worker each, and one waits for a worker; another was stopped before."""
    operator.write("waits.py", WAITS)
    a_worker = ("--entrypoint-num-cpus", "120")
    wanted = {"here": (), "there": a_worker, "over-there": a_worker, "later": a_worker}
    for name, resources in {"stopped": (), **wanted}.items():
        words = ("--no_wait", "--submission-id", name, *resources, "--", "python", "waits.py", name)
        done = operator.run(*RAY_RUN, *words)
        assert (done.returncode, done.stdout.strip()) == (0, name), done.stdout + done.stderr
        if name != "later":
            until(operator.shared(name).exists, f"{name} runs", 100)
    stop = operator.marin("stop-job", "stopped", "--yes", "--cluster", FILE)
    assert stop.returncode == 0, stop.stderr
    until(lambda: operator.jobs() == {**dict.fromkeys(wanted, "RUNNING"), "later": "PENDING"}, "one has ended", 60)

    done = operator.marin("restart", "--yes", seconds=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 jobs are saved" in done.stderr
    operator.await_nodes()
    until(lambda: sorted(operator.jobs().values()) == ["PENDING", *["RUNNING"] * 3], "three run, and one waits", 200)
    assert set(operator.jobs()) == set(wanted)
    until(lambda: operator.shared("here").read_text() == "begun\n" * 2, "it has begun anew", 60)
    assert operator.shared("stopped").read_text() == "begun\n"
    operator.shared("end").touch()

    def all_succeeded() -> bool | str:
        found = operator.jobs("--all")  # with the drivers that looked at the cluster
        return all(found.get(name) == "SUCCEEDED" for name in wanted) or str(found)

    until(all_succeeded, "all are done", 200)


def test_down_leaves_nothing(operator: Operator) -> None:
    done = operator.marin("down", "--yes", seconds=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in operator.machines.all:
        # Ray's ssh keeps its connection for ten seconds.
        until(lambda name=name: operator.left(name) or True, f"nothing is left on {name}", 60)
    gone = operator.marin("ssh", "--", "true")
    assert gone.returncode == 5
    assert "did not come to its end; Ray said:" in gone.stderr
