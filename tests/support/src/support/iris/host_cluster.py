"""A cluster of several hosts, each a network namespace, built with users' commands."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from support.iris.hosts import Host

IRIS: Final = [str(Path(sys.executable).with_name("iris"))]
CONTROLLER: Final = "10.0.0.1:7077"
FAKETIME: Final = shutil.which("faketime")
WAIT_S: Final = 60.0


def until(condition: Callable[[], object], what: str, seconds: float = WAIT_S) -> Any:
    """Wait until `condition` returns a true value, and return it. Raise TimeoutError."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise TimeoutError(f"{what}: not within {seconds:g} s")


def fake_devices(place: Path) -> Path:
    """Create a directory with the device files of eight TPU chips, and return it."""
    place.mkdir(exist_ok=True)
    for index in range(8):
        (place / f"accel{index}").touch()
    return place


class Cluster:
    """A controller on the host `ctl`, and workers on others. Its commands run on `ctl`, as its admin."""

    def __init__(self, root: Path, hosts: dict[str, Host], lost_after: int) -> None:
        self.root = root
        self.hosts = hosts
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._config = root / "cluster.yaml"
        self._config.write_text(f"controller: {{host: 0.0.0.0, port: 7077, worker_lost_after: {lost_after}}}\n")
        self.controller = self.serve()

    def environment(self, name: str) -> dict[str, str]:
        home = self.root / "home" / name
        home.mkdir(parents=True, exist_ok=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("IRIS_", "XDG_"))}
        return {**kept, "HOME": str(home), "IRIS_STATE_DIR": str(home / "none")}

    def serve(self) -> "subprocess.Popen[bytes]":
        argv = [*IRIS, "cluster", "controller", "serve", "--config", str(self._config)]
        argv += ["--state-dir", str(self.root / "state")]
        env = self.environment("ctl")
        started = self.hosts["ctl"].start(argv, self.root / "ctl.log", env, self.root)
        until(lambda: self.iris("cluster", "status", "--json").returncode == 0, "the controller answers")
        return started

    def iris(self, *words: str, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
        """Run a command on the controller's host, as its admin."""
        token = str(self.root / "state" / "user-token")
        argv = [*IRIS, "--controller-url", CONTROLLER, "--token-file", token, *words]
        return self.hosts["ctl"].run(argv, env=self.environment("ctl"), timeout=timeout, cwd=self.root)

    def ask(self, *words: str) -> Any:
        done = self.iris(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def token(self, uses: int) -> Path:
        place = self.root / "join-token"
        done = self.iris("cluster", "token", "create", "--uses", str(uses), "--output", str(place))
        assert done.returncode == 0, done.stderr
        return place

    def start_worker(self, name: str, slice_name: str, *words: str, clock: str = "") -> None:
        argv = [*IRIS, "worker", "start", "--controller", CONTROLLER, "--name", name, "--slice", slice_name]
        argv += ["--work-dir", str(self.root / name), "--cpu", "4", "--memory", "4GB", "--disk", "1GB", *words]
        env = self.environment(name) | {"IRIS_DEVICE_DIR": str(fake_devices(self.root / "dev"))}
        if clock:
            argv = ["faketime", "-f", clock, *argv]
            env |= {"DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        self.workers[name] = self.hosts[name].start(argv, self.root / f"{name}.log", env, self.root)

    def strike(self, name: str, slice_name: str, *, kill: bool) -> Callable[[], None]:
        """Kill or freeze the controller ("ctl") or a worker. Return a function that lets it run again."""
        process = self.controller if name == "ctl" else self.workers[name]
        process.send_signal(signal.SIGKILL if kill else signal.SIGSTOP)
        if not kill:
            return lambda: process.send_signal(signal.SIGCONT)
        process.wait()

        def restart() -> None:
            if name == "ctl":
                self.controller = self.serve()
            else:
                self.start_worker(name, slice_name)

        return restart

    def tasks_left(self) -> dict[int, str]:
        """Return the running processes of tasks, found by their environment."""
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environ = (place / "environ").read_bytes()
                if b"IRIS_ATTEMPT_ID=" in environ and str(self.root).encode() in environ:
                    found[int(place.name)] = (place / "cmdline").read_bytes().decode(errors="replace")
        return found

    def connected(self) -> set[str]:
        return {worker["worker_id"] for worker in self.ask("cluster", "status")["workers"] if worker["connected"]}

    def submit(self, name: str, *words: str) -> str:
        """Submit a job without waiting, given options of `job run`, "--" and a command."""
        done = self.iris("job", "run", "--no-wait", "--no-workspace", "--job-name", name, *words)
        assert done.returncode == 0, done.stderr
        found = re.search(rf"/\S+/{name}\b", done.stdout + done.stderr)
        assert found is not None
        return found[0]

    def state(self, job: str) -> str:
        return str(self.ask("job", "summary", job)["state"])

    def finish(self, job: str, seconds: float = WAIT_S) -> str:
        """Wait for a job's end, and return its state."""
        ended = ("succeeded", "failed", "killed", "worker_failed", "unschedulable")
        return str(until(lambda: (found := self.state(job)) in ended and found, f"the end of {job}", seconds))
