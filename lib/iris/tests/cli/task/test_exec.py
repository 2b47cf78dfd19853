"""`iris task exec`: the task that is meant; and with a real cluster, pipes, a terminal, and what ends it."""

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from iris.cli.task.exec import find_task
from rigging.errors import InvalidRequest, NotFound
from support.iris.cli import Client, job
from support.iris.embedded_cluster import IRIS, Cluster, running_cluster
from support.rigging.processes import is_gone

BODY = bytes(range(256)) * 4000


def test_a_task_is_named_by_its_id_or_by_its_job() -> None:
    client = Client(job("/ann/one"), job("/ann/many", replicas=3))
    assert find_task(client, "one") == find_task(client, "/ann/one") == find_task(client, "one/0") == "/ann/one/0"  # type: ignore[arg-type]
    assert find_task(client, "many/2") == "/ann/many/2"  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="job /ann/many has 3 tasks; name one of them"):
        find_task(client, "many")  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="no task 3"):
        find_task(client, "many/3")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("exec")) as cluster:
        script = "echo up; while true; do sleep 0.1; done"
        begun = cluster.iris("job", "run", "--no-workspace", "--no-wait", "--job-name", "it", "--", "sh", "-c", script)
        assert begun.code == 0, begun.text
        eventually(lambda: "up" in cluster.iris("job", "logs", "it").out, "the task runs")
        yield cluster


def started(cluster: Cluster, *words: str, **options: object) -> "subprocess.Popen[bytes]":
    command, env = [str(IRIS), "task", "exec", *words], cluster.environment({"TERM": "vt100"})
    return subprocess.Popen(command, env=env, start_new_session=True, **options)  # type: ignore[call-overload,no-any-return]


class Terminal:
    """A program of this test on a terminal of its own."""

    def __init__(self, cluster: Cluster, *words: str) -> None:
        self.master, slave = pty.openpty()
        os.set_blocking(self.master, False)
        self.shown = b""
        with contextlib.closing(os.fdopen(slave, "r+b", buffering=0)) as end:
            controls = partial(fcntl.ioctl, 0, termios.TIOCSCTTY, 0)  # changes of the size are told
            self.process = started(cluster, *words, stdin=end, stdout=end, stderr=end, preexec_fn=controls)

    def until(self, text: bytes) -> None:
        def look() -> bool:
            with contextlib.suppress(BlockingIOError, OSError):
                self.shown += os.read(self.master, 65536)
            return text in self.shown

        eventually(look, f"{text!r} is shown", instead=lambda: self.shown)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.mark.process
def test_pipes_carry_all_bytes_and_the_exit_code(cluster: Cluster) -> None:
    pipe = subprocess.PIPE
    with started(
        cluster, "it", "--", "sh", "-c", "cat; echo over >&2; exit 9", stdin=pipe, stdout=pipe, stderr=pipe
    ) as done:
        out, err = done.communicate(BODY, timeout=60)
    assert (done.returncode, out == BODY, err) == (9, True, b"over\n")
    assert cluster.iris("task", "exec", "it", "--", "sh", "-c", "kill -KILL $$").code == 137
    missing = cluster.iris("task", "exec", "it/0", "--", "nosuch")
    assert (missing.code, missing.err.startswith("iris: command 'nosuch' not found; looked in PATH=")) == (127, True)


@pytest.mark.process
def test_a_terminal_passes_on_keys_and_its_size(cluster: Cluster) -> None:
    terminal = Terminal(cluster, "-t", "it", "--", "sh")
    try:
        terminal.until(b"# " if os.geteuid() == 0 else b"$ ")
        fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("4H", 41, 123, 0, 0))
        os.write(terminal.master, b"until stty size | grep '41 123'; do sleep 0.1; done; echo re''sized $TERM\n")
        terminal.until(b"resized vt100")
        os.write(terminal.master, b"echo sl''eeps; sleep 600\n")
        terminal.until(b"sleeps\r\n")
        os.write(terminal.master, b"\x03")
        os.write(terminal.master, b"exit 6\n")
        assert terminal.process.wait(60) == 6
    finally:
        terminal.close()


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_it_ends_with_its_caller(cluster: Cluster, tmp_path: Path, number: signal.Signals) -> None:
    place = tmp_path / "pid"
    with started(
        cluster, "it", "--", "sh", "-c", f"echo $$ > {place}; exec sleep 600", stdin=subprocess.DEVNULL
    ) as caller:
        eventually(lambda: place.exists() and place.read_text(), "it runs")
        caller.send_signal(number)
        assert caller.wait(60) == (-9 if number == signal.SIGKILL else 130)
    eventually(lambda: is_gone(place.read_text().strip()), "the command has ended")


@pytest.mark.process
def test_it_ends_with_its_task(cluster: Cluster) -> None:
    script = ("sh", "-c", "echo up; sleep 600")
    assert cluster.iris("job", "run", "--no-workspace", "--no-wait", "--job-name", "short", "--", *script).code == 0
    eventually(lambda: "up" in cluster.iris("job", "logs", "short").out, "the task runs")
    with started(
        cluster, "short", "--", "sh", "-c", "echo in; sleep 600", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == b"in\n"
        assert cluster.iris("job", "stop", "short").code == 0
        assert caller.wait(60) == 137
    over = cluster.iris("task", "exec", "short", "--", "true")
    assert "short/0 is killed: it must be running" in over.err
