"""Words and exit codes of `ray_run` when something goes wrong between it and a real Ray cluster."""

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.e2e, pytest.mark.timeout(400)]

LINES = [f"line {number}" for number in range(60)]
COUNT = "import time\nfor i in range(60): print('line', i, flush=True); time.sleep(0.1)\n"
AWAY_SECONDS = 2.0


class Wire:
    """Stands between a user and a cluster; cuts the first connection to a log when so many bytes have come by it.

    Args:
        how: "fin": it is closed in good order; "rst": reset; "stall": nothing more comes; "away": nothing at all can be
            reached for a while.
    """

    def __init__(self, address: str, how: str, after: int) -> None:
        self._there = int(address.rpartition(":")[2])
        self._how, self._left = how, after
        self._server = socket.create_server(("127.0.0.1", 0))
        self._port = self._server.getsockname()[1]
        self._open: list[socket.socket] = []
        self.address = f"http://127.0.0.1:{self._port}"
        self.is_cut = False
        self._accept_in_background()

    def close(self) -> None:
        for each in (self._server, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept_in_background(self) -> None:
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = server.accept()
                far = socket.create_connection(("127.0.0.1", self._there))
                self._open += [near, far]
                of_log = threading.Event()
                threading.Thread(target=self._ask, args=(near, far, of_log), daemon=True).start()
                threading.Thread(target=self._answer, args=(far, near, of_log), daemon=True).start()

    def _ask(self, near: socket.socket, far: socket.socket, of_log: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(65536):
                if b"/logs/tail HTTP" in data:
                    of_log.set()
                far.sendall(data)
            far.shutdown(socket.SHUT_WR)

    def _answer(self, far: socket.socket, near: socket.socket, of_log: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                if of_log.is_set() and not self.is_cut:
                    near.sendall(data[: self._left])
                    self._left -= len(data)
                    if self._left <= 0:
                        self.is_cut = True
                        self._cut(near)
                        return
                else:
                    near.sendall(data)
            near.shutdown(socket.SHUT_WR)

    def _cut(self, near: socket.socket) -> None:
        if self._how == "stall":
            return
        if self._how == "rst":
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # As long as the other thread reads from it, it is not closed.
            near.shutdown(socket.SHUT_RD)
            near.close()
        elif self._how == "fin":
            near.shutdown(socket.SHUT_RDWR)
        else:
            self.close()
            threading.Timer(AWAY_SECONDS, self._come_back).start()

    def _come_back(self) -> None:
        self._server = socket.create_server(("127.0.0.1", self._port))
        self._accept_in_background()


@contextlib.contextmanager
def wire(address: str, how: str, after: int) -> Iterator[Wire]:
    found = Wire(address, how, after)
    try:
        yield found
    finally:
        found.close()


def ray_run(address: str, cwd: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MARIN_")}
    return subprocess.run(
        [sys.executable, "-m", "marin.run.ray_run", *words],
        cwd=cwd,
        env={**kept, "RAY_ADDRESS": address, **env},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("fin", "the log broke off (it was closed with code 1006); connecting again"),
        ("rst", "the log broke off ("),
        ("stall", "the log had ended early: its last "),
        ("away", "the log broke off ("),
    ],
)
def test_a_connection_that_drops_in_the_middle_of_a_log_loses_nothing(
    jobs_address: str, tmp_path: Path, how: str, said: str
) -> None:
    (tmp_path / "count.py").write_text(COUNT)
    with wire(jobs_address, how, after=700) as between:
        done = ray_run(between.address, tmp_path, "--", "python", "count.py")
        assert between.is_cut
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("line")] == LINES
    assert said in done.stderr
    assert "succeeded" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["python", "-c", "import os; os.kill(os.getpid(), 9)"], 137, "SIGKILL"),
        (["python", "-c", "import os; os.kill(os.getpid(), 15)"], 143, "SIGTERM"),
        (["bash", "-c", "sleep 60 & kill -9 $!; wait $!; exit $?"], 137, "exit code 137 (128 + SIGKILL)"),
    ],
)
def test_a_job_whose_process_is_killed_names_the_signal(
    jobs_address: str, tmp_path: Path, command: list[str], code: int, said: str
) -> None:
    done = ray_run(jobs_address, tmp_path, "--", *command)
    assert done.returncode == code, done.stderr
    assert "failed: " in done.stderr.splitlines()[-1]
    assert said in done.stderr.splitlines()[-1]


def test_a_job_whose_supervisor_is_killed_was_lost(jobs_address: str, tmp_path: Path) -> None:
    """Ray's own process for a job, as when its node goes or has no memory left; it takes the job with it."""
    script = "import os, signal\nprint('begun', flush=True)\nos.kill(os.getppid(), signal.SIGKILL)\nsignal.pause()\n"
    (tmp_path / "orphan.py").write_text(script)
    done = ray_run(jobs_address, tmp_path, "--", "exec", "python", "orphan.py")
    assert done.returncode == 1, done.stderr
    assert "it was lost with its node or with the cluster's head" in done.stderr


def test_a_working_directory_that_is_too_large(jobs_address: str, tmp_path: Path) -> None:
    """Refused here with the largest files; with a limit that was raised, by the cluster."""
    (tmp_path / "weights.bin").write_bytes(os.urandom(101 << 20))
    (tmp_path / "small.py").write_text("")
    refused = ray_run(jobs_address, tmp_path, "--", "true")
    assert refused.returncode == 3
    assert "is too large to go along with a job" in refused.stderr
    assert "weights.bin" in refused.stderr
    assert "submitted" not in refused.stderr
    by_ray = ray_run(jobs_address, tmp_path, "--", "true", MARIN_RAY_MAX_WORKING_DIR_MB="500")
    assert by_ray.returncode == 3, by_ray.stderr
    assert "the cluster refuses a working directory that is so large when packed" in by_ray.stderr


def test_a_cluster_that_nobody_answers_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    done = ray_run(f"http://127.0.0.1:{port}", tmp_path, "--", "true")
    assert done.returncode == 5
    assert f"no Ray cluster answers at http://127.0.0.1:{port} (RAY_ADDRESS): Connect" in done.stderr
    assert "ray dashboard infra/marin-cluster.yaml" in done.stderr
