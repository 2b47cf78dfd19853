"""Commands inside running attempts, with a real guardian: streams, terminals, ends, and what goes wrong."""

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.testing.waiting import eventually_async
from iris.domain.states import TaskState
from iris.rpc.generated import iris_pb2 as pb
from iris.worker.containers.engine import Engine, find_engine
from iris.worker.exec.commands import MOST_COMMANDS
from support.iris.callers import Caller
from support.iris.images import PODMAN, make_image, podman, why_not
from support.iris.worker_fixtures import FakeController, InProcessWorker, run_command
from support.rigging.processes import is_gone

IMAGE = "localhost/iris-exec"
ATTEMPT = "/user/job/0:0"
pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    make_image(IMAGE, tmp_path_factory.mktemp("image"))
    yield IMAGE
    podman("rmi", "--force", IMAGE)


CONTAINER = pytest.param("container", marks=pytest.mark.skipif(bool(why_not()), reason=why_not()))


@pytest.fixture(params=["process", CONTAINER])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(
    kind: str, request: pytest.FixtureRequest, runner: asyncio.Runner, controller: FakeController, tmp_path: Path
) -> Iterator["Place"]:
    engine = find_engine(PODMAN, "/w") if kind == "container" else None
    start = InProcessWorker.start(tmp_path / "work", controller, dict(os.environ), engine=engine)
    worker = runner.run(start)
    runner.run(controller.until(lambda: controller.hellos))
    runtime = pb.Runtime(image=request.getfixturevalue("image")) if engine is not None else None
    place = Place(worker, controller, runtime, engine)
    yield place
    runner.run(place.worker.close())


class Place:
    """A worker with one running attempt."""

    def __init__(
        self,
        worker: InProcessWorker,
        controller: FakeController,
        runtime: pb.Runtime | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.worker, self.controller, self._runtime, self._engine = worker, controller, runtime, engine

    async def begin(self, script: str = "while true; do sleep 0.1; done", **options: object) -> None:
        run = run_command("/bin/sh", "-c", f"echo up; {script}", runtime=self._runtime, **options)  # type: ignore[arg-type]
        self.controller.send(run=[run])
        await self.controller.until(lambda: self.controller.output(ATTEMPT), timeout_s=60)

    async def restart(self) -> None:
        """Replace the worker, as if it had been killed."""
        hellos = len(self.controller.hellos)
        await self.worker.abandon()
        self.worker = await InProcessWorker.start(
            self.worker.paths.root, self.controller, dict(os.environ), engine=self._engine
        )
        await self.controller.until(lambda: len(self.controller.hellos) > hellos)

    def call(self, *argv: str, **options: object) -> Caller:
        return self.controller.call(ATTEMPT, *argv, **options)  # type: ignore[arg-type]

    def shell(self, script: str, **options: object) -> Caller:
        return self.call("/bin/sh", "-c", script, **options)


async def test_all_bytes_go_both_ways_and_the_exit_code_comes_back(place: Place) -> None:
    await place.begin()
    caller = place.shell("cat; echo over >&2; exit 7")
    data = bytes(range(256)) * 20_000
    for start in range(0, len(data), 100_000):
        caller.send(data[start : start + 100_000])
    caller.end_input()
    end = await caller.ended()
    assert (end.exit_code, end.exit_signal, end.error) == (7, 0, "")
    assert bytes(caller.stdout) == data
    assert bytes(caller.stderr) == b"over\n"


async def test_it_runs_where_the_attempt_runs(place: Place) -> None:
    bundle = place.controller.add_bundle({"a.txt": "of the bundle"})
    await place.begin("echo written > b.txt; while true; do sleep 0.1; done", bundle=bundle)
    caller = place.shell("cat a.txt b.txt; echo $IRIS_ATTEMPT_ID; echo changed > c.txt")
    assert (await caller.ended()).exit_code == 0, caller.stderr
    assert caller.stdout.decode().split() == ["of", "the", "bundle" + "written", ATTEMPT]
    again = place.shell("cat c.txt")
    await again.ended()
    assert again.stdout == b"changed\n"
    assert place.controller.output(ATTEMPT) == b"up\n", "its output is the caller's only"


async def test_a_terminal_has_the_callers_size_and_keys(place: Place) -> None:
    await place.begin()
    script = "trap 'echo interrupted; exit 5' INT; [ -t 0 ] && echo term $TERM; while true; do sleep 0.1; done"
    caller = place.shell(script, window=(31, 97), term="vt100")
    await caller.until(b"term vt100\r\n")
    caller.send(b"\x03")
    assert (await caller.ended()).exit_code == 5
    assert b"interrupted" in caller.stdout


async def test_a_terminal_can_be_resized(
    runner: asyncio.Runner, controller: FakeController, worker: InProcessWorker
) -> None:
    place = Place(worker, controller)
    await place.begin()
    caller = place.shell("trap 'stty size; exit' WINCH; stty size; while true; do sleep 0.05; done", window=(31, 97))
    await caller.until(b"31 97")
    caller.resize(1_000_000, -5)
    await caller.until(b"65535 0")
    assert (await caller.ended()).exit_code == 0, caller.stderr


async def test_it_ends_with_its_attempt(place: Place) -> None:
    await place.begin("read x < go || sleep 600")
    caller = place.shell(f"(trap '' TERM HUP; sleep 601.{os.getpid()}) & echo started; wait")
    await caller.until(b"started")
    place.controller.send(stop=[pb.StopAttempt(attempt_id=ATTEMPT, grace_ms=200)])
    end = await caller.ended()
    assert end.exit_signal == signal.SIGKILL or end.exit_code
    await place.controller.until_ended(ATTEMPT)
    await eventually_async(lambda: not _running(f"sleep 601.{os.getpid()}"), "nothing of it is left")


@pytest.mark.parametrize("window", [None, (24, 80)])
async def test_it_ends_with_its_caller_while_the_attempt_goes_on(place: Place, window: tuple[int, int] | None) -> None:
    await place.begin()
    caller = place.shell(
        f"(trap '' TERM HUP; sleep 602.{os.getpid()}) & trap '' HUP; echo started; wait", window=window
    )
    await caller.until(b"started")
    caller.hang_up()
    await eventually_async(lambda: not _running(f"sleep 602.{os.getpid()}"), "the command and its children have ended")
    assert TaskState(place.controller.observations[ATTEMPT].state) is TaskState.RUNNING
    assert (await place.shell("exit 3").ended()).exit_code == 3


async def test_a_caller_who_does_not_read_and_a_command_that_does_not_read_wait_for_each_other(place: Place) -> None:
    await place.begin()
    caller = place.shell("cat /dev/zero")
    caller.reads.clear()
    deaf = place.shell(f"echo ready; sleep 603.{os.getpid()}")
    await deaf.until(b"ready")
    for _ in range(100):
        deaf.send(bytes(100_000))
    other = place.shell("echo others go on")
    assert (await other.ended()).exit_code == 0, other.stderr
    for gone in (caller, deaf):
        gone.reads.set()
        gone.hang_up()
    await eventually_async(
        lambda: not _running(f"sleep 603.{os.getpid()}") and not _running("cat /dev/zero"), "both have ended"
    )


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (("nosuch",), 127, "command 'nosuch' not found; looked in PATH="),
        (("/etc/passwd",), 126, "'/etc/passwd' cannot be started: /etc/passwd is not an executable file"),
        (("true", "a\0b"), 126, "embedded null"),
    ],
)
async def test_a_command_that_cannot_be_started_is_told(
    controller: FakeController, worker: InProcessWorker, argv: tuple[str, ...], code: int, text: str
) -> None:
    place = Place(worker, controller)
    await place.begin()
    end = await place.call(*argv).ended()
    assert (end.exit_code, text in end.error) == (code, True), end.error


async def test_an_attempt_that_does_not_run_takes_none(controller: FakeController, worker: InProcessWorker) -> None:
    place = Place(worker, controller)
    end = await place.call("true").ended()
    assert (end.exit_code, end.error) == (126, f"{ATTEMPT} is not running on this worker")
    controller.send(run=[run_command("true")])
    await controller.until_ended(ATTEMPT)
    assert "is not running" in (await place.call("true").ended()).error


async def test_a_worker_takes_so_many_and_no_more(controller: FakeController, worker: InProcessWorker) -> None:
    place = Place(worker, controller)
    await place.begin()
    callers = [place.shell("echo started; read x") for _ in range(MOST_COMMANDS)]
    for caller in callers:
        await caller.until(b"started")
    end = await place.call("true").ended()
    assert end.error == f"this worker runs {MOST_COMMANDS} commands in its tasks already: end one of them"
    callers[0].end_input()
    await callers[0].ended()
    assert (await place.call("true").ended()).exit_code == 0


async def test_it_ends_with_its_worker_and_the_next_one_runs_others(place: Place) -> None:
    await place.begin()
    caller = place.shell(f"echo up; sleep 604.{os.getpid()} & wait")
    await caller.until(b"up\n")
    await place.restart()
    await eventually_async(lambda: not _running(f"sleep 604.{os.getpid()}"), "the command has ended")
    assert (await place.shell("exit 4").ended()).exit_code == 4


async def test_its_memory_counts_as_the_attempts(controller: FakeController, worker: InProcessWorker) -> None:
    place = Place(worker, controller)
    await place.begin(resources=pb.Resources(memory_bytes=64 << 20), enforced="memory")
    caller = place.shell("head -c 200000000 /dev/zero | tail -c 190000000 > /dev/null; echo code $?")
    end = await caller.ended(60)
    # The kernel kills the process; without control groups the worker ends the attempt.
    assert caller.stdout == b"code 137\n" or end.exit_signal == signal.SIGKILL


def _running(command: str) -> list[str]:
    """Return the processes with this command line."""
    wanted = command.replace(" ", "\0").encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if re.fullmatch(rb"(?:/\S*/)?" + re.escape(wanted) + rb"\0", words) and not is_gone(name):
            found.append(name)
    return found
