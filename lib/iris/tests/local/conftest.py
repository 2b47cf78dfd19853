"""A stand-in for the controller's process, so that starting can be tested without what is started."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iris.local.start import LocalCluster
from iris.local.state import LocalPaths, lock_holder

# It listens, tells so and stays; each start leaves a line in "starts".
CONTROLLER = """
import os, signal, socket, sys
from iris.local.state import *
from iris.rpc.protocol import PROTOCOL_VERSION
paths, fd, mode = LocalPaths(Path(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
if os.fork():
    os._exit(0)
with held_lock(paths.controller_lock, timeout=5):
    with open(paths.root / "starts", "a") as file:
        file.write(f"{os.getpid()}\\n")
    print("mode", mode, flush=True)
    if mode == "dies":
        sys.exit("a reason in the log")
    if mode == "complains":
        os.write(fd, b"error: no port is free\\n")
        sys.exit(1)
    if mode == "worker":
        os.write(fd, b"worker: its disk is bad\\n")
    if mode == "works":
        server = socket.create_server(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % server.getsockname()[1]
        write_record(paths, ClusterRecord(os.getpid(), address, "u", "w", PROTOCOL_VERSION, "0", 1, 5.0, True))
        os.write(fd, b"ready\\n")
        os.close(fd)
    signal.pause()
"""


@pytest.fixture
def paths(tmp_path: Path) -> LocalPaths:
    return LocalPaths(tmp_path / "state")


@pytest.fixture
def starts(paths: LocalPaths) -> Callable[[], list[int]]:
    """The pids of the controllers started so far."""
    file = paths.root / "starts"
    return lambda: [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.fixture
def make_cluster(paths: LocalPaths, starts: Callable[[], list[int]]) -> Iterator[Callable[..., LocalCluster]]:
    def make(mode: str = "works", **options) -> LocalCluster:
        def command(state: LocalPaths, ready_fd: int, idle: float) -> list[str]:
            return [sys.executable, "-c", CONTROLLER, str(state.root), str(ready_fd), mode]

        return LocalCluster(paths, command=command, **options)

    yield make
    for pid in starts():
        if lock_holder(paths.controller_lock) == pid:
            os.kill(pid, signal.SIGKILL)
