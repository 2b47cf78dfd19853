"""The operator of a test cluster: commands at the laptop, in a project like that of the documents."""

import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from marin.testing.machines import PROJECT, Machines, local_cluster_file
from marin.testing.machines.terminal import CONTROLLED, Terminal

FILE: Final = "infra/marin-cluster.yaml"
_ATTEMPTS: Final = 3
_LOOK_SECONDS: Final = 0.5
_TUNNEL: Final = re.compile(r"(\S*/)?ssh .* -L ")
_FROM_THE_START: Final = re.compile(r"bash .*/boot\.sh |cat$|sshd: /usr/sbin/sshd ")
_COUNT_NODES: Final = (
    "import ray; ray.init(logging_level=40, log_to_driver=False); print(sum(node['Alive'] for node in ray.nodes()))"
)


class Operator:
    """Commands at the laptop."""

    def __init__(self, machines: Machines, generated: dict[str, Any]) -> None:
        self.machines = machines
        self.laptop = machines.laptop
        self.write(FILE, yaml.safe_dump(local_cluster_file(generated, machines), sort_keys=False))

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        path = self.laptop.path(PROJECT) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, *words: str, seconds: float = 400) -> subprocess.CompletedProcess[str]:
        """Run a command in the project."""
        return self.laptop.run(*words, seconds=seconds, cwd=PROJECT)

    def marin(self, *words: str, seconds: float = 400) -> subprocess.CompletedProcess[str]:
        """Run `python -m marin.run.cluster` in the project."""
        return self.run("python", "-m", "marin.run.cluster", *words, seconds=seconds)

    def terminal(self, *words: str) -> Terminal:
        """Start a command in a terminal."""
        # Inside: what leads there would end by Ctrl-C before it could tell the command's exit code.
        return Terminal(self.laptop.command([*CONTROLLED, *words], cwd=PROJECT))

    def up(self) -> None:
        """Have the cluster, with all of its nodes. (A busy computer may be too slow for Ray to start a head.)"""
        for attempt in range(1, _ATTEMPTS + 1):
            done = self.marin("up", "--yes", seconds=900)
            if done.returncode == 0:
                break
            assert attempt < _ATTEMPTS, done.stdout + done.stderr
        self.await_nodes()

    def await_nodes(self) -> None:
        """Wait until all machines are nodes."""
        count = len(self.machines.hardware)
        until(lambda: (there := self.nodes()) == count or there, f"{count} nodes are there", 600)

    def nodes(self) -> int:
        """How many nodes there are; -1: it cannot be told."""
        done = self.marin("ssh", "--", "python", "-c", _COUNT_NODES)
        return int(done.stdout) if done.returncode == 0 else -1

    def jobs(self, *options: str) -> dict[str, str]:
        """Return the status of each job."""
        done = self.marin("jobs", "--cluster", FILE, *options)
        assert done.returncode == 0, done.stderr
        return {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()}

    def tunnels(self) -> list[str]:
        """Return the programs at the laptop that forward ports to the head."""
        return [line for line in self.laptop.processes() if _TUNNEL.match(line)]

    def kill(self, text: str, number: signal.Signals) -> None:
        """Send a signal to the processes of the laptop whose command line has this text."""
        self.laptop.run("pkill", f"-{number.value}", "--full", "--", text)

    def left(self, name: str) -> list[str]:
        """Processes on a machine besides those that run there from its start on."""
        return [line for line in self.machines.all[name].processes() if not _FROM_THE_START.match(line)]

    def shared(self, name: str) -> Path:
        """Return a file that all machines see below /srv."""
        return self.machines.shared / name


def until(condition: Callable[[], object], what: str, seconds: float) -> None:
    """Wait until a condition is true.

    Args:
        condition: Called until it returns True; any other value says what is missing.
        what: What is waited for, for the message.
        seconds: How long to wait.

    Raises:
        AssertionError: The time is over.
    """
    deadline = time.monotonic() + seconds
    while (found := condition()) is not True:
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}; {found}"
        time.sleep(_LOOK_SECONDS)
