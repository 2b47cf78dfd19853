"""Tasks that take all they can get: the worker lives, its other tasks are unharmed, and the report names the limit.

Everything is real: a worker process with its guardian, as root and as an ordinary user, with control groups where the
host allows them and without.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from enum import Enum
from pathlib import Path

import pytest

from iris.domain.states import FailureKind, TaskState
from iris.rpc import iris_pb2 as pb
from iris.testing.ordinary_user import NOBODY, ordinary_user
from iris.testing.worker_fixtures import FakeController, run_command
from iris.worker.limits.groups import remove_group
from iris.worker.limits.plan import LimitsMode, hierarchies_of, needed

pytestmark = pytest.mark.e2e

MIB = 1 << 20
MAX_PROCESSES = 60
MAIN = """
import sys
from pathlib import Path
from iris.domain.resources import Resources
from iris.rpc.controller_address import ControllerAddress
from iris.worker.app import WorkerConfig, run_worker
from iris.worker.limits.plan import LimitsMode
work_dir, port, limits, most = sys.argv[1:]
address = ControllerAddress(f"127.0.0.1:{port}", "w:test:token")
size = Resources(8000, 1 << 33, 1 << 33)
config = WorkerConfig(Path(work_dir), "w1", size, stop_grace_s=1.0, limits=LimitsMode(limits), max_processes=int(most))
sys.exit(run_worker(config, lambda: address))
"""


class User(Enum):
    """Who the worker is; OWNER: an ordinary user to whom root has given a control group of version 1."""

    ROOT = "root"
    ORDINARY = "ordinary"
    OWNER = "owner"


AUTO, SOFT, OFF = LimitsMode.AUTO, LimitsMode.SOFT, LimitsMode.OFF
EVERY_WAY = pytest.mark.parametrize(
    ("limits", "user"),
    [
        pytest.param(AUTO, User.ROOT, id="groups-root"),
        pytest.param(SOFT, User.ROOT, id="soft-root", marks=pytest.mark.slow),
        pytest.param(AUTO, User.ORDINARY, id="found-out-user", marks=pytest.mark.slow),
        pytest.param(SOFT, User.ORDINARY, id="soft-user", marks=pytest.mark.slow),
        pytest.param(AUTO, User.OWNER, id="groups-user", marks=pytest.mark.slow),
    ],
)


class Place:
    """A controller with one worker process, on which a neighbour counts seconds."""

    def __init__(self, controller: FakeController, work_dir: Path, python: str) -> None:
        self.python = python  # that the worker's user can run
        self.controller = controller
        self.work_dir = work_dir
        self._jobs = 0

    def start(self, *argv: str, memory: int = 0, disk: int = 0) -> str:
        """Start a job of one task, held to these limits; its attempt."""
        self._jobs += 1
        job = f"/ann/job{self._jobs}"
        enforced = ",".join(word for word, limit in (("memory", memory), ("disk", disk)) if limit)
        resources = pb.Resources(cpu_millis=1000, memory_bytes=memory, disk_bytes=disk)
        self.controller.send(run=[run_command(*argv, job_id=job, resources=resources, enforced=enforced)])
        return f"{job}/0:0"

    async def end(self, attempt: str, timeout_s: float = 60) -> pb.Observation:
        (found,) = await self.controller.until_ended(attempt, timeout_s=timeout_s)
        return found

    async def run_python(self, code: str, *, memory: int = 0, disk: int = 0, timeout_s: float = 60) -> pb.Observation:
        """The end of a task that runs this code."""
        return await self.end(self.start(self.python, "-c", code, memory=memory, disk=disk), timeout_s)

    @property
    def guardian(self) -> int:
        return int((self.work_dir / "guardian.lock").read_text())

    def children(self, name: str) -> list[str]:
        """This file of /proc of each child of the guardian."""
        pids = Path(f"/proc/{self.guardian}/task/{self.guardian}/children").read_text().split()
        return [Path(f"/proc/{pid}/{name}").read_text() for pid in pids]

    def guardian_peak_kib(self) -> int:
        status = Path(f"/proc/{self.guardian}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))

    def has_groups(self, what: str) -> bool:
        """Whether the kernel holds tasks to this limit here."""
        return (
            f"{what} of tasks is limited softly" not in (self.work_dir / "guardian.log").read_text()
            and (self.work_dir / "guardian.groups").exists()
        )


Scenario = Callable[[Place], Awaitable[None]]


def start_worker(command: list[str], variables: dict[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, env=variables)


ENTER = 'while [ "$1" != -- ]; do echo 0 > "$1/tasks"; shift; done; shift; exec "$@"'
"""Enters the groups that come first, as root, and becomes the command after them."""


@contextlib.contextmanager
def given_groups() -> Iterator[list[str]]:
    """A group of this host in each tree of version 1, which belongs to an ordinary user."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a control group away")
    found = needed(hierarchies_of(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()))
    groups = [f"{tree.directory}/iris-test-{os.getpid()}" for tree in found if tree.version == 1]
    try:
        for group in groups:
            os.mkdir(group)
            for path in (group, f"{group}/tasks", f"{group}/cgroup.procs"):
                os.chown(path, NOBODY, NOBODY)
    except OSError as error:
        pytest.skip(f"no control groups can be made here: {error}")
    if not groups:
        pytest.skip("this host has no control groups of version 1")
    try:
        yield groups
    finally:
        for group in groups:
            remove_group(group, kill=True)


@contextlib.asynccontextmanager
async def place(open_path: Path, limits: LimitsMode, user: User) -> AsyncIterator[Place]:
    with given_groups() if user is User.OWNER else contextlib.nullcontext(list[str]()) as groups:
        async with place_in(groups, open_path, limits, user is User.ROOT) as made:
            yield made


@contextlib.asynccontextmanager
async def place_in(groups: list[str], open_path: Path, limits: LimitsMode, as_root: bool) -> AsyncIterator[Place]:
    if as_root and os.geteuid() != 0:
        pytest.skip("needs root")
    found = ([sys.executable], dict[str, str]()) if as_root else ordinary_user()
    if found is None:
        pytest.skip("no Python here that an ordinary user can run (or no setpriv)")
    command, variables = found
    work_dir, home = open_path / "work", open_path / "home"
    for directory in (work_dir, home):
        directory.mkdir(0o700)
        if os.geteuid() == 0 and not as_root:
            os.chown(directory, NOBODY, NOBODY)
    controller = FakeController()
    await controller.start()
    enter = ["sh", "-c", ENTER, "sh", *groups, "--"] if groups else []
    words = [*enter, *command, "-c", MAIN, str(work_dir), str(controller.port), limits, str(MAX_PROCESSES)]
    process = start_worker(words, {**os.environ, **variables, "HOME": str(home)})
    try:
        await controller.until(lambda: controller.hellos)
        yield Place(controller, work_dir, command[-1])
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, 30)
        await controller.stop()


def play(open_path: Path, limits: LimitsMode, user: User, scenario: Scenario) -> None:
    """Run a scenario beside a neighbour, which must not notice it, on a worker that must be there afterwards."""

    async def whole() -> None:
        async with place(open_path, limits, user) as here:
            guardian, stop = here.guardian, open_path / "stop"
            wait = 'while [ ! -e "$1" ]; do sleep 0.1; done; echo unharmed'
            neighbour = here.start("sh", "-c", wait, "sh", str(stop))
            states = here.controller.states
            await here.controller.until(lambda: TaskState.RUNNING in states.get(neighbour, ()), 30.0)
            await scenario(here)
            stop.touch()
            end = await here.end(neighbour)
            assert (end.state, end.error) == (TaskState.SUCCEEDED, "")
            assert b"unharmed" in here.controller.output(neighbour)
            assert (await here.end(here.start("true"))).state == TaskState.SUCCEEDED
            assert here.guardian == guardian
            os.kill(guardian, 0)

    asyncio.run(whole())


def failed(end: pb.Observation, *words: str) -> None:
    assert end.state == TaskState.FAILED, end
    for word in words:
        assert word in end.error, end.error


@EVERY_WAY
def test_a_memory_hog(open_path: Path, limits: LimitsMode, user: User) -> None:
    async def scenario(here: Place) -> None:
        # In pieces, so that a look every second is soon enough: what nobody holds it to it may exceed.
        code = """
import time
held = []
while True:
    held.append(bytearray(b"x") * (8 << 20))
    time.sleep(0.05)
"""
        attempt = here.start(here.python, "-c", code, memory=64 * MIB)
        end = await here.end(attempt)
        failed(end, "out of memory: limit 64 MiB (--memory)")
        assert end.failure == FailureKind.OOM
        assert end.usage.memory_peak_bytes > 32 * MIB
        notes = [record.data for record in here.controller.records(attempt) if record.note]
        assert any(b"out of memory" in note for note in notes), "the log says so, too"
        assert any(b"limits are soft here" in note for note in notes) is not here.has_groups("memory")

    play(open_path, limits, user, scenario)


@EVERY_WAY
def test_a_disk_filler(open_path: Path, limits: LimitsMode, user: User) -> None:
    async def scenario(here: Place) -> None:
        code = """
import os, time
for place in (".", os.environ["TMPDIR"]):
    with open(os.path.join(place, "large"), "wb") as file:
        for _ in range(200):
            file.write(os.urandom(1 << 20))
            file.flush()
            time.sleep(0.02)
"""
        end = await here.run_python(code, disk=20 * MIB)
        failed(end, "out of disk: limit 20 MiB (--disk), used ", "in its working directory and TMPDIR")
        assert 20 * MIB < end.usage.disk_peak_bytes < 300 * MIB

    play(open_path, limits, user, scenario)


@EVERY_WAY
def test_a_disk_filler_that_deletes_what_it_has_open(open_path: Path, limits: LimitsMode, user: User) -> None:
    async def scenario(here: Place) -> None:
        code = """
import os, time
with open("large", "wb") as file:
    os.unlink("large")
    for _ in range(200):
        file.write(os.urandom(1 << 20))
        file.flush()
        time.sleep(0.02)
time.sleep(60)
"""
        end = await here.run_python(code, disk=20 * MIB)
        failed(end, "out of disk: limit 20 MiB (--disk), used ", "in its working directory and TMPDIR")

    play(open_path, limits, user, scenario)


BOMB = """
import os, sys, time
made = 0
for _ in range(400):
    try:
        pid = os.fork()
    except OSError:
        continue
    if pid == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
    made += 1
time.sleep(3)
sys.exit(7)
"""


@EVERY_WAY
def test_a_fork_bomb(open_path: Path, limits: LimitsMode, user: User) -> None:
    async def scenario(here: Place) -> None:
        end = await here.run_python(BOMB)
        failed(end, f"too many processes: limit {MAX_PROCESSES}")
        if here.has_groups("processes"):
            failed(end, "it could start no more; exit code 7")

    play(open_path, limits, user, scenario)


ESCAPEE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "600"], {})
    os._exit(0)
os.wait()
time.sleep(0.5)
"""


@EVERY_WAY
def test_one_that_leaves_its_session_its_parents_and_its_environment(
    open_path: Path, limits: LimitsMode, user: User
) -> None:
    async def scenario(here: Place) -> None:
        end = await here.run_python(ESCAPEE)
        assert end.state == TaskState.SUCCEEDED
        assert not [words for words in here.children("cmdline") if "600" in words], "it ends with its attempt"

    play(open_path, limits, user, scenario)


@EVERY_WAY
def test_one_that_ignores_sigterm(open_path: Path, limits: LimitsMode, user: User) -> None:
    async def scenario(here: Place) -> None:
        attempt = here.start("sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done")
        await here.controller.until(lambda: b"deaf" in here.controller.output(attempt), 30.0)
        here.controller.send(stop=[pb.StopAttempt(attempt_id=attempt, grace_ms=300, reason="enough")])
        end = await here.end(attempt)
        assert (end.state, end.error) == (TaskState.KILLED, "enough")

    play(open_path, limits, user, scenario)


@EVERY_WAY
def test_one_that_waits_for_none_of_its_children(open_path: Path, limits: LimitsMode, user: User) -> None:
    async def scenario(here: Place) -> None:
        code = "import os, time\nfor _ in range(40):\n    if os.fork() == 0: os._exit(0)\ntime.sleep(0.5)"
        assert (await here.run_python(code)).state == TaskState.SUCCEEDED
        assert "Z" not in [line.rpartition(")")[2].split()[0] for line in here.children("stat")]

    play(open_path, limits, user, scenario)


@pytest.mark.slow
@EVERY_WAY
def test_a_gigabyte_on_one_line(open_path: Path, limits: LimitsMode, user: User) -> None:
    async def scenario(here: Place) -> None:
        code = "import os\npiece = b'x' * (1 << 20)\nfor _ in range(1024): os.write(1, piece)"
        end = await here.run_python(code, memory=64 * MIB, timeout_s=300)
        assert end.state == TaskState.SUCCEEDED, "what is too much for the log is no fault of the task's"
        assert here.guardian_peak_kib() < 200 * 1024, "the guardian holds no more than a little of it"

    play(open_path, limits, user, scenario)


def test_nobody_is_ended_for_a_default_or_where_limits_are_off(open_path: Path) -> None:
    async def scenario(here: Place) -> None:
        code = "held = bytearray(b'x') * (100 << 20)"
        assert (await here.run_python(code)).state == TaskState.SUCCEEDED
        assert (await here.run_python(code, memory=32 * MIB)).state == TaskState.SUCCEEDED

    play(open_path, OFF, User.ROOT if os.geteuid() == 0 else User.ORDINARY, scenario)


def test_an_ordinary_user_with_a_group_of_its_own_has_limits_that_the_kernel_holds(open_path: Path) -> None:
    async def scenario(here: Place) -> None:
        assert here.has_groups("memory")
        assert here.has_groups("processes")
        # At once, which no look every second would hold up.
        end = await here.run_python("held = bytearray(b'x') * (256 << 20)", memory=64 * MIB)
        failed(end, "out of memory: limit 64 MiB (--memory)", "the kernel killed a process of it")
        assert end.failure == FailureKind.OOM

    play(open_path, AUTO, User.OWNER, scenario)
