"""A local cluster of its own for every test module, driven through the command line as a user would."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fray.testing import BackendHarness
from tests.e2e.warm_commands import CommandTimeout, warm_commands

REPOSITORY = Path(__file__).resolve().parents[2]
IRIS = Path(sys.executable).with_name("iris")
INSIDE_A_JOB = ("IRIS_", "MARIN_", "FRAY_")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str
    seconds: float

    @property
    def text(self) -> str:
        return f"exit code {self.code} after {self.seconds:.1f} s\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


@dataclass
class Cluster:
    """The user's side of one local cluster: its state directory, and commands that run against it."""

    state_dir: Path
    storage: Path
    home: Path
    extra: dict[str, str] = field(default_factory=dict)

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
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
        return subprocess.Popen(
            [str(IRIS), *arguments],
            cwd=cwd,
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def iris(
        self,
        *arguments: str,
        cwd: Path = REPOSITORY,
        env: Mapping[str, str] | None = None,
        timeout: float = 90,
        program: bool = False,
    ) -> Result:
        """Run a command to its end.

        Args:
            arguments: The words after `iris`.
            cwd: Where it runs.
            env: Variables besides those of the test's process.
            timeout: Seconds after which the test fails.
            program: Start the installed program; else a fork that has imported it, which costs a tenth.
        """
        begin = time.monotonic()
        if not program:
            try:
                code, out, err = warm_commands().run(list(arguments), cwd, self.environment(env), timeout)
            except CommandTimeout as late:
                pytest.fail(f"iris {' '.join(arguments)} did not end in {timeout} s\n" + "\n".join(late.args))
            return Result(code, out, err, time.monotonic() - begin)
        process = self.start(*arguments, cwd=cwd, env=env)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            pytest.fail(f"iris {' '.join(arguments)} did not end in {timeout} s\n{out}\n{err}")
        return Result(process.returncode, out, err, time.monotonic() - begin)

    def controller_pid(self) -> int:
        import json

        return int(json.loads((self.state_dir / "cluster.json").read_text())["pid"])


@contextlib.contextmanager
def running_cluster(root: Path) -> Iterator[Cluster]:
    cluster = Cluster(root / "iris", root / "storage", root / "home")
    cluster.home.mkdir(parents=True)
    try:
        yield cluster
    finally:
        cluster.iris("cluster", "stop", "--force")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One local cluster for the tests of a module."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A local cluster that the test may break."""
    with running_cluster(tmp_path / "own") as running:
        yield running


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A git workspace without dependencies, so that jobs start at once."""
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    (root / "raises.py").write_text(
        "import sys\nprint('before')\nsys.stdout.flush()\nraise ValueError('the step is wrong')\n"
    )
    (root / "count.py").write_text(
        "import sys, time\nn, delay = int(sys.argv[1]), float(sys.argv[2])\n"
        "for i in range(n):\n    print('line', i, flush=True)\n    time.sleep(delay)\n"
    )
    return root


def run_module(module: str, spec: str, root: Path) -> str:
    """Run an experiment on a fray backend as a user does, from a directory without a project to install.

    Returns what it printed; outputs go below `root / "prefix"`.
    """
    workspace = root / "workspace"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "experiments", workspace / "experiments", ignore=ignored, dirs_exist_ok=True)
    environment = {
        **os.environ,
        "FRAY_CLIENT": spec,
        "MARIN_PREFIX": str(root / "prefix"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", module]
    done = subprocess.run(command, cwd=workspace, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def run(tmp_path: Path, fray_harness: BackendHarness) -> Callable[[str], str]:
    """Runs an experiment on the backend under test, with outputs below `tmp_path / "prefix"`."""
    return lambda module: run_module(module, fray_harness.spec, tmp_path)


@pytest.fixture(scope="module")
def run_here(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Runs an experiment in a process of its own without any cluster; returns the prefix with its outputs."""

    def run_local(module: str) -> Path:
        root = tmp_path_factory.mktemp("here")
        run_module(module, "local", root)
        return root / "prefix"

    return run_local
