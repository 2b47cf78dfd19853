"""Several processes run one pipeline while they are killed, ended, interrupted and stopped, and their clocks jump.

No output ever has two writers at once, and none of which only a part is there is called SUCCESS. The seed is printed;
MARIN_STORM_SEED repeats it.
"""

import collections
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import fsspec
import pytest

from fray.testing.waiting import eventually
from marin.execution.artifact import Artifact
from rigging.filesystem import read_bytes_or_none
from rigging.lease.identity import HolderState, holder_state
from rigging.lease.record import Lease
from support.rigging.shared import shared_gcs_server, shared_s3_server

SCRIPT = Path(__file__).with_name("storm_pipeline.py")
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSTOP]
LONGEST_JUMP = 3 * 3600.0


@dataclass
class Storm:
    """Processes that run one pipeline with a local directory of all, and what happens to them."""

    prefix: str
    directory: Path
    processes: int
    steps: int
    signals: int
    seed: int
    environment: dict[str, str]
    sent: collections.Counter[str] = field(default_factory=collections.Counter)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._continue_at: dict[int, float] = {}
        self._struck: set[int] = set()

    def run(self) -> None:
        """Send all the signals, then let every process come to its end."""
        try:
            for slot in range(self.processes):
                self._set_clock(slot)
                self._start(slot)
            eventually((self.directory / "attempts").exists, "a step is at work", timeout=400)
            while self.sent.total() < self.signals:
                time.sleep(self._dice.uniform(0.02, 0.5))
                self._strike(self._dice.randrange(self.processes))
                self._set_clock(self._dice.randrange(self.processes))
                self._let_go_on()
                self._start_again()
            while any(process.poll() != 0 for process in self._running.values()):
                time.sleep(0.05)
                self._let_go_on()
                self._start_again()
        finally:
            for process in self._running.values():
                process.kill()
                process.wait()

    def _start(self, slot: int) -> None:
        # One that was about to end when it was told to stop has ended: its successor is not the one to go on.
        self._continue_at.pop(slot, None)
        command = [sys.executable, str(SCRIPT), self.prefix, str(self.directory), str(self.steps), str(slot)]
        with open(self.directory / "log", "ab") as log:
            self._running[slot] = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def _start_again(self) -> None:
        for slot, process in self._running.items():
            if process.poll() in (None, 0) and self.sent.total() >= self.signals:
                continue
            if process.poll() is not None:
                code, told = process.returncode, f"seed {self.seed}: see {self.directory}/log"
                assert code == 0 or process.pid in self._struck, f"{told}: process {process.pid} ended with {code}"
                self._start(slot)

    def _strike(self, slot: int) -> None:
        if slot in self._continue_at or self._running[slot].poll() is not None:
            return
        # A process takes longer to start than most of its steps take: mostly those that are at work are struck.
        if not (self.directory / f"at-work-{self._running[slot].pid}").exists() and self._dice.random() < 0.8:
            return
        number = self._dice.choice(SIGNALS)
        self._running[slot].send_signal(number)
        self._struck.add(self._running[slot].pid)
        self.sent[number.name] += 1
        if number is signal.SIGSTOP:
            self._continue_at[slot] = time.monotonic() + self._dice.uniform(0.1, 4)

    def _let_go_on(self) -> None:
        for slot, moment in list(self._continue_at.items()):
            if time.monotonic() >= moment:
                del self._continue_at[slot]
                self._running[slot].send_signal(self._dice.choice([signal.SIGCONT, signal.SIGCONT, signal.SIGKILL]))

    def _set_clock(self, slot: int) -> None:
        new = self.directory / f"clock-{slot}.new"
        new.write_text(str(self._dice.choice([0.0, 600.0, self._dice.uniform(-LONGEST_JUMP, LONGEST_JUMP)])))
        new.rename(self.directory / f"clock-{slot}")

    def findings(self) -> list[str]:
        trouble = self.directory / "trouble"
        found = [trouble.read_text()] if trouble.exists() else []
        paths = json.loads((self.directory / "paths").read_text())
        if len(paths) != self.steps:
            found.append(f"{len(paths)} of {self.steps} steps have a path")
        return found + [f"{path}: {wrong}" for name, path in paths.items() for wrong in wrong_with(name, path)]

    def summary(self) -> str:
        attempts = (self.directory / "attempts").read_text().split("\n")[:-1]
        return f"seed {self.seed}: {dict(self.sent)}; {len(attempts)} attempts at {self.steps} steps"


def wrong_with(name: str, path: str) -> list[str]:
    """Everything that is wrong with a step's output, when all processes have ended."""
    first, second = (read_bytes_or_none(f"{path}/{part}") for part in ("first", "second"))
    if first is None or read_bytes_or_none(f"{path}/.executor_status") != b"SUCCESS":
        return ["it is not SUCCESS, or has no first part"]
    info = json.loads(read_bytes_or_none(f"{path}/.executor_info") or b"{}")
    # A process that is killed between its last word and its unlocking leaves the lock, which nobody needs.
    lock = Lease.from_bytes(read_bytes_or_none(f"{path}/.executor_status.lock") or b"")
    checks = {
        "it has parts of two attempts": first == second,
        "it has another attempt's artifact": Artifact.load(path) == first.decode(),
        "what describes it is of another step": info.get("name") == name,
        "a process that lives has its lock": lock is None or holder_state(lock.worker_id) is HolderState.GONE,
    }
    return [wrong for wrong, holds in checks.items() if not holds]


def storm(tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch, **size: int) -> list[str]:
    seed = int(os.environ.get("MARIN_STORM_SEED") or secrets.randbits(32))
    prefix = str(tmp_path / "prefix")
    if scheme:
        server = shared_gcs_server() if scheme == "gs" else shared_s3_server()
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        fsspec.filesystem(scheme).clear_instance_cache()
        bucket = f"storm-{seed}"
        server.create_bucket(bucket)
        prefix = f"{scheme}://{bucket}/prefix"
    print(f"storm on {prefix}: seed {seed}")
    one = Storm(prefix, tmp_path, seed=seed, environment=dict(os.environ), **size)
    one.run()
    print(one.summary())
    return one.findings()


@pytest.mark.process
def test_a_small_storm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert storm(tmp_path, "", monkeypatch, processes=3, steps=8, signals=6) == []


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scheme", ["", "gs", "s3"])
def test_eight_pipelines_in_a_large_storm(tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert storm(tmp_path, scheme, monkeypatch, processes=8, steps=100, signals=70) == []
