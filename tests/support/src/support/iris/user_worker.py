"""A worker process of root or an ordinary user with its controller, and one-task jobs on it."""

import asyncio
import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from iris.domain.states import TaskState
from iris.rpc.generated import iris_pb2 as pb
from iris.worker.isolation.plan import IsolationMode
from iris.worker.limits.plan import LimitsMode
from support.iris.ordinary_user import NOBODY, ordinary_user
from support.iris.worker_fixtures import FakeController, run_command

WORK: Final = "work, dir"  # with characters that options of mounts must escape
_MAIN: Final = """
import sys
from pathlib import Path
from iris.domain.resources import Resources
from iris.rpc.controller_address import ControllerAddress
from iris.worker.app import WorkerConfig, run_worker
from iris.worker.isolation.plan import IsolationMode
from iris.worker.limits.plan import LimitsMode
from iris.worker.users.uids import TaskUsers, parse_uid_range
work_dir, port, isolation, limits, most, uids, containers = sys.argv[1:]
address = ControllerAddress(f"127.0.0.1:{port}", "w:w1:token")
config = WorkerConfig(
    Path(work_dir), "w1", Resources(8000, 1 << 33, 1 << 33), stop_grace_s=1.0, guardian_linger_s=1,
    isolation=IsolationMode(isolation), limits=LimitsMode(limits), max_processes=int(most),
    task_users=TaskUsers(Path(work_dir), parse_uid_range(uids)) if uids else None, containers=containers,
)
sys.exit(run_worker(config, lambda: address))
"""
_ENTER: Final = 'while [ "$1" != -- ]; do echo 0 > "$1/tasks"; shift; done; shift; exec "$@"'
"""Enters the control groups given first, as root, then execs the command after them."""


class OneTaskJobs:
    """Jobs of one task for the worker of a controller."""

    def __init__(self, controller: FakeController) -> None:
        self.controller = controller
        self._jobs = 0

    def start(self, *argv: str, user: str = "ann", place: str = "", health_cmd: str = "", **launch: Any) -> str:
        """Start a job in a folder of its workspace, launched like by `run_command`. Return its attempt."""
        self._jobs += 1
        request = run_command(*argv, job_id=f"/{user}/job{self._jobs}", **launch)
        request.launch.runtime.working_dir = place
        if health_cmd:
            watch = pb.Launch(health_cmd=health_cmd, health_interval_ms=50, health_timeout_ms=10_000, health_retries=1)
            request.launch.MergeFrom(watch)
        self.controller.send(run=[request])
        return f"/{user}/job{self._jobs}/0:0"

    def start_call(self, code: str, **launch: Any) -> str:
        """Start a job whose task is a callable that runs this code. Return its attempt."""
        return self.start(payload=self.controller.add_blob(pickle.dumps((exec, (code, {}), {}))), **launch)

    async def end(self, attempt: str, timeout_s: float = 60) -> pb.Observation:
        (found,) = await self.controller.until_ended(attempt, timeout_s=timeout_s)
        return found

    async def output(self, attempt: str) -> str:
        """Wait for a task's success, and return its output."""
        end = await self.end(attempt)
        output = self.controller.output(attempt).decode()
        assert TaskState(end.state) is TaskState.SUCCEEDED, (end.error, self.controller.output(attempt, stderr=True))
        return output

    async def run(self, *argv: str, **launch: Any) -> str:
        return await self.output(self.start(*argv, **launch))

    async def call(self, code: str, **launch: Any) -> str:
        return await self.output(self.start_call(code, **launch))


class WorkerPlace(OneTaskJobs):
    """A controller with one worker process, and a Python that the worker's user can run."""

    def __init__(
        self, controller: FakeController, work_dir: Path, python: str, restart: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(controller)
        self.restart = restart
        """Waits until the worker process ends by itself, and starts another."""
        self.work_dir = work_dir
        self.python = python

    @property
    def guardian(self) -> int:
        return int((self.work_dir / "guardian.lock").read_text())

    @property
    def worker_pid(self) -> int:
        return int((self.work_dir / "worker.lock").read_text())

    def of_guardian(self, name: str) -> str:
        """Return the content of a /proc file of the guardian."""
        return Path(f"/proc/{self.guardian}/{name}").read_text()

    def guardian_log(self) -> str:
        return (self.work_dir / "guardian.log").read_text()


@contextlib.asynccontextmanager
async def worker_place(
    open_path: Path,
    as_root: bool,
    *,
    isolation: IsolationMode = IsolationMode.OVERLAY,
    limits: LimitsMode = LimitsMode.AUTO,
    max_processes: int = 0,
    groups: Sequence[str] = (),
    task_users: str = "",
    containers: str = "off",
) -> AsyncIterator[WorkerPlace]:
    """Start a worker below a directory that all users can access. `groups`: its control groups of version 1.

    Skip the test without such a user or, with `task_users` (a range), without a Python that they can run.
    """
    if as_root and os.geteuid() != 0:
        pytest.skip("needs root")
    found = ([sys.executable], dict[str, str]()) if as_root and not task_users else ordinary_user()
    if found is None:
        pytest.skip("no Python here that an ordinary user can run (or no setpriv)")
    command, variables = found
    if task_users:
        # One that has a `python` beside it, which all can reach.
        await asyncio.to_thread(
            subprocess.run, [command[-1], "-m", "venv", "--without-pip", str(open_path / "venv")], check=True
        )
        command = [str(open_path / "venv" / "bin" / "python")]
    # Engines cannot mount what is below a directory with a comma.
    work_dir, home = open_path / (WORK if containers == "off" else "work dir"), open_path / "home"
    for directory in (work_dir, home):
        directory.mkdir(0o700)
        if os.geteuid() == 0 and not as_root:
            os.chown(directory, NOBODY, NOBODY)
    controller = FakeController()  # type: ignore[abstract]
    await controller.start()
    enter = ["sh", "-c", _ENTER, "sh", *groups, "--"] if groups else []
    options = [str(work_dir), str(controller.port), isolation, limits, str(max_processes), task_users, containers]
    own = {"HOME": str(home), "UV_CACHE_DIR": str(home / "uv"), "UV_OFFLINE": "1"}
    processes: list[subprocess.Popen[bytes]] = []

    async def start() -> None:
        if processes:
            await asyncio.to_thread(processes[-1].wait)
        count, argv = len(controller.hellos), [*enter, *command, "-c", _MAIN, *options]
        processes.append(await asyncio.to_thread(subprocess.Popen, argv, env={**os.environ, **variables, **own}))
        await controller.until(lambda: len(controller.hellos) > count)

    try:
        await start()
        yield WorkerPlace(controller, work_dir, command[-1], start)
    finally:
        processes[-1].send_signal(signal.SIGTERM)
        await asyncio.to_thread(processes[-1].wait, 30)
        await controller.stop()
