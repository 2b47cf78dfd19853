"""`ray_run` and the documents' `ray job` lines against a real Ray cluster with token authentication."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.testing.ray_harness import need_namespaces
from fray.testing.waiting import eventually
from support.marin.programs import printed_address
from support.marin.ssh import SshMachine

pytestmark = [pytest.mark.soak, pytest.mark.ray, pytest.mark.process, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[4]
TOKEN = "0123456789abcdef" * 4
# In a process of its own: what Ray is told of tokens holds for the whole process.
# And with the agent's usual port taken, as by another cluster: it would never start a job.
SERVE = f"""
import contextlib, socket, sys
from fray.testing.ray_jobs import jobs_cluster
with contextlib.suppress(OSError):
    taken = socket.create_server(("127.0.0.1", 52365))
with jobs_cluster(cpus=2, token={TOKEN!r}) as cluster:
    print(cluster.jobs_address, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    need_namespaces()
    with printed_address([sys.executable, "-c", SERVE]) as url:
        yield url


def ray_run(address: str, home: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MARIN_", "RAY_"))}
    (home / "project").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "marin.run.ray_run", *words, "--", "echo", "let in"],
        cwd=home / "project",
        env={**kept, "RAY_ADDRESS": address, "HOME": str(home), **env},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(("env", "said"), [({}, "it requires a token"), ({"RAY_AUTH_TOKEN": "f" * 64}, "is not the")])
def test_without_it_the_cluster_stays_shut(address: str, tmp_path: Path, env: dict[str, str], said: str) -> None:
    done = ray_run(address, tmp_path, **env)
    assert done.returncode == 3
    assert said in done.stderr


@pytest.fixture
def machine(address: str, tmp_path: Path) -> Iterator[SshMachine]:
    """A user's machine, with a cluster file whose head is the cluster with the token."""
    found = SshMachine(tmp_path, int(address.rpartition(":")[2]))
    (found.head / ".ray").mkdir()
    (found.head / ".ray" / "auth_token").write_text(f"{TOKEN}\n")
    found.write(head_start_ray_commands=["RAY_AUTH_MODE=token true ulimit -n ray start --autoscaling-config"])
    yield found
    found.forget()


def test_the_documents_lines_with_the_token_that_our_commands_have_taken(machine: SshMachine) -> None:
    """One terminal keeps the connection, in the other jobs are submitted, with nothing else set."""
    up = machine.run("up", "--yes")
    assert up.returncode == 0, up.stdout + up.stderr
    token_file = machine.home / ".ray" / "auth_token"
    assert f"the cluster's token is in {token_file}" in up.stderr
    token_file.unlink()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    dashboard = machine.command("dashboard", "-p", str(port))
    with subprocess.Popen(dashboard, env=machine.environment, stderr=subprocess.PIPE, text=True) as connection:
        try:
            assert any("Ctrl-C ends the connection" in line for line in connection.stderr)
            assert token_file.read_text() == TOKEN
            submit_ask_read_stop(machine, f"http://127.0.0.1:{port}")
            assert "let in" in ray_run(f"http://127.0.0.1:{port}", machine.home).stdout
        finally:
            connection.terminate()
            connection.communicate(timeout=60)


def submit_ask_read_stop(machine: SshMachine, address: str) -> None:
    """The lines of the documents, word for word but for the port, the jobs' ids, and the script that is stopped."""
    submit = f"ray job submit --address {address} --working-dir . --no-wait --"
    job_id = job_of(line(machine, f"{submit} python tests/test_ray_cluster.py"))

    def has(status: str) -> bool:
        return status in line(machine, f"ray job status --address {address} {job_id}")

    eventually(lambda: has("succeeded"), "it succeeds", timeout=200)
    logs = line(machine, f"ray job logs --address {address} {job_id}")
    assert "4 of 4 tasks are well, on 1 distinct nodes" in logs
    job_id = job_of(line(machine, f"{submit} sleep 600"))
    eventually(lambda: has("RUNNING"), "it runs", timeout=100)
    stopped = line(machine, f"ray job stop --address {address} {job_id}")
    assert "was stopped" in stopped
    # Without --no-wait Ray follows the log by a connection of another kind.
    followed = line(machine, f"ray job submit --address {address} -- echo followed")
    assert "\nfollowed\n" in followed
    assert TOKEN not in logs + stopped + followed
    assert has("was stopped")


def line(machine: SshMachine, text: str) -> str:
    """What a line prints in a user's shell, in the repository's root."""
    done = subprocess.run(
        text, shell=True, cwd=ROOT, env=machine.environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{text}: {done.stdout} {done.stderr}"
    return done.stdout + done.stderr


def job_of(printed: str) -> str:
    found = re.search(r"raysubmit_\w+", printed)
    assert found is not None, printed
    return found[0]
