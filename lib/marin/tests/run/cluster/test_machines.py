"""The operations on four machines, each in namespaces of its own, with real ssh and Ray and our generated file.

Its provider is Ray's `local` one; `docker` and `gcloud` are stand-ins (see marin.run.cluster.testing_machines). The
tests share a cluster, and the last one ends it.
"""

import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from marin.run.cluster.testing_machines import Machines, missing
from marin.run.cluster.testing_machines.operator import FILE, Operator, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.e2e,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(missing()), reason=f"NOT TESTED on machines of their own: {missing()}"),
]

ROOT = Path(__file__).parents[5]
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
        assert terminal.wait() == 1


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
        until(lambda: not operator.tunnels(), "nothing is left of the connection", 5)
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


def test_down_leaves_nothing(operator: Operator) -> None:
    done = operator.marin("down", "--yes", seconds=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in operator.machines.all:
        # Ray's ssh keeps its connection for ten seconds.
        until(lambda name=name: not operator.left(name), f"nothing is left on {name}", 60)  # type: ignore[misc]
    gone = operator.marin("ssh", "--", "true")
    assert gone.returncode == 5
    assert "did not come to its end; Ray said:" in gone.stderr
