"""Tasks that take all they can get: the worker lives, its other tasks are unharmed, and the report names the limit.

Everything is real: a worker process with its guardian, as root and as an ordinary user, with control groups where the
host allows them and without.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from iris.domain.states import FailureKind, TaskState
from iris.rpc.generated import iris_pb2 as pb
from iris.worker.limits.groups import remove_group
from iris.worker.limits.plan import LimitsMode, hierarchies_of, needed
from support.iris.ordinary_user import NOBODY
from support.iris.user_worker import OneTaskJobs, WorkerPlace, worker_place

pytestmark = pytest.mark.process

MIB = 1 << 20
MAX_PROCESSES = 60


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
        pytest.param(SOFT, User.ROOT, id="soft-root", marks=pytest.mark.soak),
        pytest.param(AUTO, User.ORDINARY, id="found-out-user", marks=pytest.mark.soak),
        pytest.param(SOFT, User.ORDINARY, id="soft-user", marks=pytest.mark.soak),
        pytest.param(AUTO, User.OWNER, id="groups-user", marks=pytest.mark.soak),
    ],
)


def start(here: OneTaskJobs, *argv: str, memory: int = 0, disk: int = 0) -> str:
    """Start a job of one task, held to these limits; its attempt."""
    enforced = ",".join(word for word, limit in (("memory", memory), ("disk", disk)) if limit)
    resources = pb.Resources(cpu_millis=1000, memory_bytes=memory, disk_bytes=disk)
    return here.start(*argv, resources=resources, enforced=enforced)


async def run_python(here: WorkerPlace, code: str, *, timeout_s: float = 60, **limits: int) -> pb.Observation:
    """The end of a task that runs this code."""
    return await here.end(start(here, here.python, "-c", code, **limits), timeout_s)


def has_groups(here: WorkerPlace, what: str) -> bool:
    """Whether the kernel holds tasks to this limit here."""
    is_soft = f"soft limit on {what} of tasks" in here.guardian_log()
    return not is_soft and (here.work_dir / "guardian.groups").exists()


Scenario = Callable[[WorkerPlace], Awaitable[None]]


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


@pytest.fixture
def play(runner: asyncio.Runner, open_path: Path) -> Callable[[LimitsMode, User, Scenario], None]:
    """Runs a scenario beside a neighbour, which must not notice it, on a worker that must be there afterwards."""

    async def whole(limits: LimitsMode, user: User, scenario: Scenario) -> None:
        with given_groups() if user is User.OWNER else contextlib.nullcontext(list[str]()) as groups:
            options: dict[str, Any] = {"limits": limits, "max_processes": MAX_PROCESSES, "groups": groups}
            async with worker_place(open_path, user is User.ROOT, **options) as here:
                guardian, stop = here.guardian, open_path / "stop"
                wait = 'while [ ! -e "$1" ]; do sleep 0.1; done; echo unharmed'
                neighbour = start(here, "sh", "-c", wait, "sh", str(stop))
                states = here.controller.states
                await here.controller.until(lambda: TaskState.RUNNING in states.get(neighbour, ()), 30.0)
                await scenario(here)
                await asyncio.to_thread(stop.touch)
                assert await here.output(neighbour) == "unharmed\n"
                assert (await here.end(neighbour)).error == ""
                await here.run("true")
                assert here.guardian == guardian
                os.kill(guardian, 0)

    return lambda limits, user, scenario: runner.run(whole(limits, user, scenario))


def failed(end: pb.Observation, *words: str) -> None:
    assert end.state == TaskState.FAILED, end
    for word in words:
        assert word in end.error, end.error


async def hogs_memory(here: WorkerPlace) -> None:
    # In pieces, so that a look every second is soon enough: what nobody holds it to it may exceed.
    code = """
import time
held = []
while True:
    held.append(bytearray(b"x") * (8 << 20))
    time.sleep(0.05)
"""
    attempt = start(here, here.python, "-c", code, memory=64 * MIB)
    end = await here.end(attempt)
    failed(end, "out of memory: limit 64 MiB (--memory)")
    assert end.failure == FailureKind.OOM
    assert end.usage.memory_peak_bytes > 32 * MIB
    notes = [record.data for record in here.controller.records(attempt) if record.note]
    assert any(b"out of memory" in note for note in notes), "the log says so, too"
    assert any(b"soft limits: memory" in note for note in notes) is not has_groups(here, "memory")


OUT_OF_DISK = ("out of disk: limit 20 MiB (--disk), used ", "in its working directory and TMPDIR")


async def fills_the_disk(here: WorkerPlace) -> None:
    code = """
import os, time
for place in (".", os.environ["TMPDIR"]):
    with open(os.path.join(place, "large"), "wb") as file:
        for _ in range(200):
            file.write(os.urandom(1 << 20))
            file.flush()
            time.sleep(0.02)
"""
    end = await run_python(here, code, disk=20 * MIB)
    failed(end, *OUT_OF_DISK)
    assert 20 * MIB < end.usage.disk_peak_bytes < 300 * MIB


async def fills_the_disk_with_what_it_deletes_while_it_is_open(here: WorkerPlace) -> None:
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
    failed(await run_python(here, code, disk=20 * MIB), *OUT_OF_DISK)


async def forks_without_end(here: WorkerPlace) -> None:
    code = """
import os, sys, time
for _ in range(400):
    try:
        pid = os.fork()
    except OSError:
        continue
    if pid == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
time.sleep(3)
sys.exit(7)
"""
    end = await run_python(here, code)
    failed(end, f"too many processes: limit {MAX_PROCESSES}")
    if has_groups(here, "processes"):
        failed(end, "the kernel refused further processes", "exit code 7")


async def writes_a_gigabyte_on_one_line(here: WorkerPlace) -> None:
    code = "import os\npiece = b'x' * (1 << 20)\nfor _ in range(1024): os.write(1, piece)"
    end = await run_python(here, code, memory=64 * MIB, timeout_s=300)
    assert end.state == TaskState.SUCCEEDED, "what is too much for the log is no fault of the task's"
    peak = next(line.split()[1] for line in here.of_guardian("status").splitlines() if line.startswith("VmHWM"))
    assert int(peak) < 200 * 1024, "the guardian holds no more than a little of it"


@EVERY_WAY
@pytest.mark.parametrize(
    "scenario",
    [
        hogs_memory,
        fills_the_disk,
        fills_the_disk_with_what_it_deletes_while_it_is_open,
        forks_without_end,
        pytest.param(writes_a_gigabyte_on_one_line, marks=pytest.mark.soak),
    ],
)
def test_a_task_that(play: Callable[..., None], limits: LimitsMode, user: User, scenario: Scenario) -> None:
    play(limits, user, scenario)


def test_nobody_is_ended_for_a_default_or_where_limits_are_off(play: Callable[..., None]) -> None:
    async def scenario(here: WorkerPlace) -> None:
        code = "held = bytearray(b'x') * (100 << 20)"
        for memory in (0, 32 * MIB):
            assert (await run_python(here, code, memory=memory)).state == TaskState.SUCCEEDED

    play(OFF, User.ROOT if os.geteuid() == 0 else User.ORDINARY, scenario)


def test_an_ordinary_user_with_a_group_of_its_own_has_limits_that_the_kernel_holds(play: Callable[..., None]) -> None:
    async def scenario(here: WorkerPlace) -> None:
        assert has_groups(here, "memory")
        assert has_groups(here, "processes")
        # At once, which no look every second would hold up.
        end = await run_python(here, "held = bytearray(b'x') * (256 << 20)", memory=64 * MIB)
        failed(end, "out of memory: limit 64 MiB (--memory)", "the kernel killed one of its processes")
        assert end.failure == FailureKind.OOM

    play(AUTO, User.OWNER, scenario)
