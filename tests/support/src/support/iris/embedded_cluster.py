"""A user's local cluster, driven through the command line, for tests of whole programs."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[5]
IRIS = Path(sys.executable).with_name("iris")
INSIDE_A_JOB = ("IRIS_", "MARIN_", "FRAY_")


@dataclass(frozen=True)
class Result:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def text(self) -> str:
        return f"exit code {self.code} after {self.seconds:.1f} s\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


@dataclass
class Cluster:
    """The user's side of one local cluster: its state directory and commands."""

    state_dir: Path
    storage: Path
    home: Path
    extra: dict[str, str] = field(default_factory=dict)

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables of commands: this process's, without variables of a surrounding job."""
        base = {k: v for k, v in os.environ.items() if not k.startswith(INSIDE_A_JOB)}
        return {
            **base,
            "HOME": str(self.home),
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", os.path.expanduser("~/.cache/uv")),
            "IRIS_STATE_DIR": str(self.state_dir),
            "MARIN_PREFIX": str(self.storage),
            **self.extra,
            **(extra or {}),
        }

    def start(
        self, *arguments: str, cwd: Path = REPOSITORY, env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """Start the installed program in a separate session."""
        return subprocess.Popen(
            [str(IRIS), *arguments], cwd=cwd, env=self.environment(env), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def iris(
        self, *arguments: str, cwd: Path = REPOSITORY, env: Mapping[str, str] | None = None, timeout: float = 90
    ) -> Result:
        """Run a command of the installed program to its end."""
        begin = time.monotonic()
        process = self.start(*arguments, cwd=cwd, env=env)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            pytest.fail(f"iris {' '.join(arguments)} did not end in {timeout} s\n{out}\n{err}")
        return Result(process.returncode, out, err, time.monotonic() - begin)


@contextlib.contextmanager
def running_cluster(root: Path) -> Iterator[Cluster]:
    """Yield a cluster that the first command starts; it is stopped at the end."""
    cluster = Cluster(root / "iris", root / "storage", root / "home")
    cluster.home.mkdir(parents=True)
    try:
        yield cluster
    finally:
        cluster.iris("cluster", "stop", "--force")
