"""What a supervisor does with attempts, with a guardian and a preparer that are played."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iris.domain.resources import Resources
from iris.domain.runtime import TaskRuntime
from iris.domain.states import FailureKind, TaskState
from iris.rpc.logformat import decode_all
from iris.worker.attempts.attempt import adopted
from iris.worker.attempts.ports import PortChooser
from iris.worker.attempts.supervisor import Supervisor
from iris.worker.isolation.plan import IsolationMode
from iris.worker.paths import WorkPaths
from iris.worker.prepare.task_env import PreparedEnvironment, TaskEnvironment
from iris.worker.processes import Exit, InheritedAttempt, Listener, ProcessSpec, StartFailed, StartFailure
from iris.worker.types import (
    NO_RESULT,
    DesiredChange,
    Launch,
    Observation,
    PreparationFailed,
    StartRequest,
    StopRequest,
    TaskResult,
)

COMMAND = Launch("/u/job", ("true",))
BUNDLE = replace(COMMAND, bundle_digest="b1")


def is_there(path: str) -> bool:
    return Path(path).exists()


def read(path: str) -> str:
    return Path(path).read_text()


def write(path: str, text: str) -> None:
    Path(path).write_text(text)


class Command:
    """One command that was handed over."""

    def __init__(self, spec: ProcessSpec | None, listener: Listener) -> None:
        self.spec = spec
        self.listener = listener
        self.stops: list[tuple[int, Mapping[str, Any] | None]] = []

    def terminate(self, grace_ms: int, note: Mapping[str, Any] | None = None) -> None:
        self.stops.append((grace_ms, note))


class FakeRuntime:
    isolation = IsolationMode.OVERLAY

    def __init__(self) -> None:
        self.commands: dict[str, Command] = {}
        self.live_count = 0
        self.most_live = 100
        self.forgotten: list[str] = []
        self.contacts: list[int] = []
        self.is_held: list[InheritedAttempt] = []
        self.why = ""

    def start(self, spec: ProcessSpec, listener: Listener) -> Command:
        self.live_count += 1
        self.commands[spec.owner] = Command(spec.whole(), listener)
        return self.commands[spec.owner]

    def held(self) -> list[InheritedAttempt]:
        return self.is_held

    def take_up(self, owner: str, listener: Listener) -> Command:
        self.commands[owner] = Command(None, listener)
        return self.commands[owner]

    def trouble(self) -> str:
        return self.why

    def contact(self, sent_ms: int) -> None:
        self.contacts.append(sent_ms)

    def forget(self, owner: str) -> None:
        self.forgotten.append(owner)


class FakePreparer:
    def __init__(self) -> None:
        self.known: PreparedEnvironment | None = None
        self.answer: PreparedEnvironment | Exception = PreparedEnvironment(bin_dirs=("/env/bin",))
        self.go = asyncio.Event()
        self.go.set()
        self.cancelled = 0
        self.closed = False

    def ready(self, launch: Launch) -> PreparedEnvironment | None:
        return self.known

    async def prepare(self, launch: Launch) -> PreparedEnvironment:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def compiled(self, tree: Path, python: str) -> str:
        return ""

    async def close(self) -> None:
        self.closed = True


class Bench:
    """A supervisor and what it says."""

    def __init__(self, root: Path, held: list[InheritedAttempt] | None = None) -> None:
        self.paths = WorkPaths(root)
        self.paths.make()
        self.runtime, self.preparer = FakeRuntime(), FakePreparer()
        self.runtime.is_held = held or []
        self.now = 100.0
        environment = TaskEnvironment(self.paths, "w1", {"PATH": "/bin"})
        self.supervisor = Supervisor(
            self.paths,
            self.runtime,
            self.preparer,
            environment,
            lambda: "c:1",
            now=lambda: self.now,
            send_blob=self.send_blob,
        )
        self.blobs: dict[str, bytes] = {}
        self.may_send = asyncio.Event()

    async def send_blob(self, digest: str, data: bytes) -> None:
        await self.may_send.wait()
        self.blobs[digest] = data

    def ask(self, index: int = 0, attempt: int = 0, launch: Launch = COMMAND) -> str:
        task = f"{launch.job_id}/{index}"
        request = StartRequest(f"{task}:{attempt}", task, index, launch)
        self.supervisor.apply(DesiredChange(1, (request,), (), ()))
        return request.attempt_id

    async def run(self, index: int = 0, attempt: int = 0, launch: Launch = COMMAND) -> Command:
        name = self.ask(index, attempt, launch)
        await self.settle()
        command = self.runtime.commands[name]
        command.listener.on_started(4711)
        return command

    def stop(self, name: str, grace_ms: int = 50, reason: str = "enough") -> None:
        self.supervisor.apply(DesiredChange(1, (), (StopRequest(name, grace_ms, reason),), ()))

    def forget(self, *names: str) -> None:
        self.supervisor.apply(DesiredChange(1, (), (), names))

    def said(self) -> list[Observation]:
        return self.supervisor.outbox.take().observations

    def states(self) -> dict[str, TaskState]:
        return {item.attempt_id: item.state for item in self.said()}

    @staticmethod
    async def settle() -> None:
        for _ in range(10):
            await asyncio.sleep(0)


Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(scenario: Callable[[Bench], Awaitable[None]], held: list[InheritedAttempt] | None = None) -> None:
        async def inner() -> None:
            await asyncio.wait_for(scenario(Bench(tmp_path / "work", held)), 60)

        asyncio.run(inner())

    return run


def test_a_command_is_handed_over_with_all_it_needs(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        launch = replace(
            COMMAND, has_accelerator=True, exclusive=True, fence_after_ms=7000, ports=("http",), replicas=2, token="t"
        )
        command = await bench.run(1, launch=launch)
        spec = command.spec
        assert spec is not None
        assert (spec.owner, spec.argv, spec.sharer, spec.fence_ms) == ("/u/job/1:0", ("true",), "", 7000)
        assert spec.tail_bytes == 16 * 1024
        assert spec.env["IRIS_TASK_INDEX"] == "1"
        assert int(spec.env["IRIS_PORT_HTTP"]) > 0
        assert read(spec.env["IRIS_TOKEN_FILE"]) != ""
        assert is_there(spec.cwd)
        assert spec.log == bench.paths.log("/u/job/1:0")
        assert (spec.note["task"], spec.note["index"], spec.note["replicas"]) == ("/u/job/1", 1, 2)
        plain = (await bench.run(0, launch=replace(COMMAND, job_id="/u/other", fence_after_ms=7000))).spec
        assert plain is not None
        assert (plain.tail_bytes, plain.fence_ms) == (0, 0), "neither an accelerator nor exclusive"

    play(scenario)


def test_a_callable_may_share_an_interpreter_with_those_of_its_user(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.preparer.known = PreparedEnvironment(bin_dirs=("/env/bin",), payload_path="/blobs/p")
        spec = (await bench.run(launch=Launch("/ann/job", payload_digest="p"))).spec
        assert spec is not None
        assert (spec.sharer, spec.argv[-1]) == ("ann", "/blobs/p")

    play(scenario)


def test_the_life_of_an_attempt_is_told_step_by_step(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        command = await bench.run()
        (running,) = bench.said()
        assert (running.state, running.pid, running.at_ms) == (TaskState.RUNNING, 4711, 100_000)
        assert running.started_at_ms == bench.supervisor.now_ms() == 100_000, "by the clock that a session tells of"
        assert bench.supervisor.live_count == 1
        bench.now = 101.0
        command.listener.on_exit(Exit(3, 0, at_ms=100_500))
        (ended,) = bench.said()
        assert (ended.state, ended.exit_code, ended.error) == (TaskState.FAILED, 3, "exit code 3")
        assert (ended.failure, ended.at_ms, ended.started_at_ms) == (FailureKind.USER, 100_500, 100_000)
        assert bench.supervisor.live_count == 0
        bench.ask()
        assert bench.states() == {"/u/job/0:0": TaskState.FAILED}, "a known one is told again and not started"
        assert bench.runtime.live_count == 1

    play(scenario)


def test_one_that_ended_before_it_was_seen_to_run_did_not_start_after_its_end(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        command = await bench.run()  # the news came late: it is told to run from now on
        command.listener.on_exit(Exit(0, 0, at_ms=99_000))
        (ended,) = bench.said()
        assert (ended.at_ms, ended.started_at_ms) == (99_000, 99_000)

    play(scenario)


def test_the_tasks_own_words_are_its_error(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        command = await bench.run()
        write(bench.paths.error("/u/job/0:0"), "  ValueError: bad shard\n" + "x" * 9000)
        command.listener.on_exit(Exit(1, 0))
        (ended,) = [item for item in bench.said() if item.state is TaskState.FAILED]
        assert ended.error.startswith("ValueError: bad shard\nxxx")
        assert len(ended.error) <= 8192
        bench.forget("/u/job/0:0")
        assert not is_there(bench.paths.error("/u/job/0:0"))
        other = await bench.run(1)
        write(bench.paths.error("/u/job/1:0"), "said before it ended well")
        other.listener.on_exit(Exit(0, 0))
        assert bench.said()[-1].error == ""

    play(scenario)


def test_the_tasks_own_exception_goes_with_a_failure_alone(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        for index, code in enumerate((1, 0)):
            command = await bench.run(index)
            write(bench.paths.error(f"/u/job/{index}:0"), "ValueError: bad\0" + "3.12\n\0pickled")
            command.listener.on_exit(Exit(code, 0))
        told = {item.attempt_id: (item.error, item.exception) for item in bench.said()}
        assert told["/u/job/0:0"] == ("ValueError: bad", b"3.12\n\0pickled")
        assert told["/u/job/1:0"] == ("", b"")
        third = await bench.run(2)
        write(bench.paths.error("/u/job/2:0"), "text\0" + "\0" * (64 * 1024 + 1))
        third.listener.on_exit(Exit(1, 0))
        too_large = bench.said()[-1]
        assert (too_large.error, too_large.exception) == ("text", b"")

    play(scenario)


def test_what_a_callable_returned_goes_with_its_success_alone(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        for index, code in enumerate((0, 1)):
            command = await bench.run(index)
            write(bench.paths.result(f"/u/job/{index}:0"), "3.12\nsmall")
            command.listener.on_exit(Exit(code, 0))
        told = {item.attempt_id: item.result for item in bench.said()}
        assert told == {"/u/job/0:0": TaskResult(b"3.12\nsmall"), "/u/job/1:0": NO_RESULT}
        bench.forget("/u/job/0:0", "/u/job/1:0")
        assert not is_there(bench.paths.result("/u/job/0:0"))
        assert not is_there(bench.paths.result("/u/job/1:0"))

    play(scenario)


async def reaches(bench: Bench, state: TaskState) -> Observation:
    """What is told of the attempt that gets into a state; its file is read in a thread."""
    async with asyncio.timeout(30):
        while True:
            for item in bench.said():
                if item.state is state:
                    return item
            await asyncio.sleep(0.001)


def test_the_end_of_one_that_returned_much_is_told_when_that_is_there(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        command = await bench.run()
        write(bench.paths.result("/u/job/0:0"), "x" * 5000)
        command.listener.on_exit(Exit(0, 0, at_ms=90_000))
        await bench.settle()
        assert bench.states() == {"/u/job/0:0": TaskState.RUNNING}
        bench.may_send.set()
        ended = await reaches(bench, TaskState.SUCCEEDED)
        assert bench.blobs[ended.result.digest] == b"x" * 5000
        assert (ended.result.packed, ended.at_ms) == (b"", 90_000)

    play(scenario)


def test_one_that_is_stopped_while_its_result_is_sent_ends_as_stopped(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        command = await bench.run()
        write(bench.paths.result("/u/job/0:0"), "x" * 5000)
        command.listener.on_exit(Exit(0, 0))
        await bench.settle()
        bench.stop("/u/job/0:0")
        bench.may_send.set()
        ended = await reaches(bench, TaskState.KILLED)
        assert (ended.error, ended.result) == ("enough", NO_RESULT)

    play(scenario)


def test_ends_that_the_guardian_made_or_could_not_log_are_told(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        command = await bench.run()
        command.listener.on_exit(Exit(0, 9, fenced="no contact for 10 s"))
        fenced = bench.said()[-1]
        assert (fenced.state, fenced.failure) == (TaskState.WORKER_FAILED, FailureKind.PREEMPTED)
        assert fenced.error == "no contact for 10 s"
        other = await bench.run(1)
        bench.said()
        other.listener.on_exit(Exit(0, 0, lost="5 bytes lost", unmarked="5 bytes lost", at_ms=1))
        batch = bench.supervisor.outbox.take()
        assert batch.observations[0].error == "5 bytes lost"
        (record,) = decode_all(batch.logs[0].data)
        assert (record.data, record.note) == (b"5 bytes lost", True)

    play(scenario)


@pytest.mark.parametrize(
    ("why", "state", "kind"),
    [
        (StartFailure.COMMAND, TaskState.FAILED, FailureKind.START),
        (StartFailure.HOST, TaskState.WORKER_FAILED, FailureKind.WORKER),
        (StartFailure.FENCED, TaskState.WORKER_FAILED, FailureKind.PREEMPTED),
    ],
)
def test_a_refused_start_says_whose_fault_it_is(play: Play, why: StartFailure, state: TaskState, kind: Any) -> None:
    async def scenario(bench: Bench) -> None:
        bench.ask()
        await bench.settle()
        bench.runtime.commands["/u/job/0:0"].listener.on_refused(StartFailed("it cannot be", 127, why))
        (ended,) = bench.said()
        assert (ended.state, ended.failure, ended.error, ended.exit_code) == (state, kind, "it cannot be", 127)

    play(scenario)


class TestStops:
    def test_one_that_runs_is_asked_to_end_and_ends_as_killed(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            command = await bench.run()
            bench.stop("/u/job/0:0", 70)
            ((grace, note),) = command.stops
            assert grace == 70
            assert note is not None
            assert note["stop"] == ["enough", 70, False, False]
            command.listener.on_exit(Exit(0, 15))
            ended = bench.said()[-1]
            assert (ended.state, ended.error) == (TaskState.KILLED, "enough")

        play(scenario)

    def test_one_that_waits_for_its_start_never_does(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            name = bench.ask()
            bench.stop(name, reason="")
            await bench.settle()
            assert bench.runtime.commands == {}
            (ended,) = bench.said()
            assert (ended.state, ended.error) == (TaskState.KILLED, "stopped")

        play(scenario)

    def test_one_that_is_not_here_is_said_to_be_gone(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            bench.stop("/u/none/0:0", reason="")
            (gone,) = bench.said()
            assert (gone.attempt_id, gone.state, gone.at_ms) == ("/u/none/0:0", TaskState.KILLED, 100_000)
            assert gone.error == "stopped before it reached the worker"

        play(scenario)

    def test_one_that_has_ended_is_told_again_as_it_ended(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            (await bench.run()).listener.on_exit(Exit(0, 0))
            bench.said()
            bench.stop("/u/job/0:0")
            assert bench.states() == {"/u/job/0:0": TaskState.SUCCEEDED}

        play(scenario)

    def test_while_it_is_prepared_that_is_given_up(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            bench.preparer.go.clear()
            name = bench.ask(launch=BUNDLE)
            await bench.settle()
            bench.stop(name)
            await bench.settle()
            assert bench.preparer.cancelled == 1
            assert bench.states() == {name: TaskState.KILLED}

        play(scenario)

    def test_a_leaving_worker_ends_all_and_starts_nothing_more(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            command = await bench.run()
            leaving = asyncio.create_task(bench.supervisor.stop_all("the host is taken", 30, preempted=True))
            await bench.settle()
            assert not leaving.done()
            assert command.stops[0][0] == 30
            assert bench.supervisor.outbox.leaving
            late = bench.ask(1)
            command.listener.on_exit(Exit(0, 15))
            await leaving
            assert bench.preparer.closed
            found = {item.attempt_id: (item.state, item.failure, item.error) for item in bench.said()}
            end = (TaskState.WORKER_FAILED, FailureKind.PREEMPTED, "the host is taken")
            assert found == {"/u/job/0:0": end, late: end}
            assert late not in bench.runtime.commands

        play(scenario)


class TestPreparing:
    def test_what_is_there_already_is_used_at_once(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            bench.preparer.known = PreparedEnvironment(bin_dirs=("/known/bin",))
            spec = (await bench.run(launch=BUNDLE)).spec
            assert spec is not None
            assert spec.env["PATH"] == "/known/bin:/bin"

        play(scenario)

    def test_else_it_is_prepared_first_and_that_is_told_when_it_takes_time(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            bench.preparer.go.clear()
            name = bench.ask(launch=BUNDLE)
            assert bench.said() == [], "mostly it is done at once"
            await bench.supervisor.outbox.wait()
            assert bench.states() == {name: TaskState.BUILDING}
            assert bench.supervisor.live_count == 1
            bench.preparer.go.set()
            await bench.settle()
            spec = bench.runtime.commands[name].spec
            assert spec is not None
            assert spec.env["PATH"] == "/env/bin:/bin"

        play(scenario)

    @pytest.mark.parametrize(
        ("error", "state", "kind", "text"),
        [
            (PreparationFailed(FailureKind.ENVIRONMENT, "no uv.lock"), TaskState.FAILED, FailureKind.ENVIRONMENT, ""),
            (
                OSError(28, "No space"),
                TaskState.WORKER_FAILED,
                FailureKind.WORKER,
                "preparing failed: [Errno 28] No space",
            ),
            (StartFailed("no guardian"), TaskState.WORKER_FAILED, FailureKind.WORKER, "no guardian"),
        ],
    )
    def test_what_fails_is_told_with_whose_fault_it_is(
        self, play: Play, error: Exception, state: TaskState, kind: FailureKind, text: str
    ) -> None:
        async def scenario(bench: Bench) -> None:
            bench.preparer.answer = error
            bench.ask(launch=BUNDLE)
            await bench.settle()
            batch = bench.supervisor.outbox.take()
            (ended,) = batch.observations or bench.said()
            assert (ended.state, ended.failure, ended.error) == (state, kind, text or str(error))
            if kind is FailureKind.ENVIRONMENT:
                ((record,),) = [list(decode_all(chunk.data)) for chunk in batch.logs]
                assert (record.data, record.is_stderr) == (b"no uv.lock", True)
            bench.forget("/u/job/0:0")
            assert bench.runtime.forgotten == [], "the guardian never heard of it"
            assert not is_there(bench.paths.log("/u/job/0:0"))

        play(scenario)


def test_why_one_cannot_start_is_in_its_log_where_that_is_its_jobs_matter(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bundle = bench.paths.bundles / "b1"
        bundle.mkdir()
        (bundle / "notes").touch()
        bench.preparer.known = PreparedEnvironment(bin_dirs=("/env/bin",), bundle_dir=bundle)
        bench.ask(launch=replace(BUNDLE, runtime=TaskRuntime(working_dir="notes")))
        await bench.settle()
        batch = bench.supervisor.outbox.take()
        (ended,) = batch.observations or bench.said()
        assert (ended.state, ended.failure) == (TaskState.FAILED, FailureKind.START)
        ((record,),) = [list(decode_all(chunk.data)) for chunk in batch.logs]
        assert record.data.decode() == ended.error == "the working directory 'notes' is a file of the workspace"
        assert bench.runtime.commands == {}

    play(scenario)


class TestTurns:
    def test_no_more_than_the_guardian_can_hold_are_started(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            bench.runtime.most_live = 2
            names = [bench.ask(index) for index in range(4)]
            await bench.settle()
            assert list(bench.runtime.commands) == names[:2]
            first = bench.runtime.commands[names[0]]
            first.listener.on_started(1)
            bench.runtime.live_count -= 1
            first.listener.on_exit(Exit(0, 0))
            await bench.settle()
            assert list(bench.runtime.commands) == names[:3]

        play(scenario)

    def test_many_are_started_in_their_order_with_turns_in_between(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            bench.runtime.most_live = 1000
            names = [bench.ask(index) for index in range(120)]
            await asyncio.sleep(0)
            assert list(bench.runtime.commands) == names[:50]
            await bench.settle()
            assert list(bench.runtime.commands) == names

        play(scenario)

    def test_a_newer_attempt_of_a_task_waits_until_the_former_is_gone(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            former = await bench.run()
            newer = bench.ask(attempt=1)
            await bench.settle()
            assert former.stops[0][0] == 1000
            assert newer not in bench.runtime.commands
            former.listener.on_exit(Exit(0, 15))
            await bench.settle()
            assert newer in bench.runtime.commands
            ended = {item.attempt_id: item.error for item in bench.said()}
            assert ended["/u/job/0:0"] == "superseded by /u/job/0:1"

        play(scenario)


class TestForgetting:
    def test_an_ended_one_leaves_nothing_and_one_that_runs_stays(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            command = await bench.run()
            spec = command.spec
            assert spec is not None
            bench.forget("/u/job/0:0", "/u/none/0:0")
            assert [item.attempt_id for item in bench.supervisor.inventory()] == ["/u/job/0:0"]
            write(f"{spec.cwd}/left", "x")
            command.listener.on_exit(Exit(0, 0))
            assert not is_there(spec.cwd)
            bench.forget("/u/job/0:0")
            assert (bench.runtime.forgotten, bench.supervisor.inventory()) == (["/u/job/0:0"], [])
            assert not is_there(spec.env["IRIS_TOKEN_FILE"])
            assert bench.said() == []

        play(scenario)


class TestLogs:
    def test_growth_is_shipped_and_shipped_again_where_the_controller_lacks_it(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            command = await bench.run()
            write(bench.paths.log("/u/job/0:0"), "0123456789")
            bench.said()
            command.listener.on_log(10)
            (chunk,) = bench.supervisor.outbox.take().logs
            assert (chunk.offset, chunk.data) == (0, b"0123456789")
            bench.supervisor.acknowledge_log("/u/none/0:0", 3)
            bench.supervisor.acknowledge_log("/u/job/0:0", 4)
            assert bench.supervisor.outbox.take().logs == [], "the rest is on its way"
            bench.supervisor.acknowledge_log("/u/job/0:0", 4)
            (chunk,) = bench.supervisor.outbox.take().logs
            assert (chunk.offset, chunk.data) == (4, b"456789")
            bench.supervisor.resume_logs({"/u/job/0:0": 7})
            (chunk,) = bench.supervisor.outbox.take().logs
            assert (chunk.offset, chunk.data) == (7, b"789")
            bench.supervisor.resume_logs({})
            (chunk,) = bench.supervisor.outbox.take().logs
            assert (chunk.offset, chunk.data) == (0, b"0123456789"), "a controller that has nothing gets all"
            bench.supervisor.resume_logs({"/u/job/0:0": 10})
            assert bench.supervisor.outbox.take().logs == []

        play(scenario)

    def test_an_end_is_held_back_from_the_inventory_until_its_log_is_there(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            command = await bench.run()
            write(bench.paths.log("/u/job/0:0"), "0123456789")
            command.listener.on_log(10)
            command.listener.on_exit(Exit(0, 0))
            (found,) = bench.supervisor.inventory()
            assert (found.state, found.pid, found.log_size) == (TaskState.RUNNING, 4711, 0)
            bench.supervisor.outbox.clear()
            bench.supervisor.resume_logs({"/u/job/0:0": 2})
            batch = bench.supervisor.outbox.take()
            assert [item.state for item in batch.observations or bench.said()] == [TaskState.SUCCEEDED]
            assert batch.logs[0].offset == 2
            bench.supervisor.acknowledge_log("/u/job/0:0", 10)
            (found,) = bench.supervisor.inventory()
            assert (found.state, found.log_size) == (TaskState.SUCCEEDED, 10)

        play(scenario)


def test_why_nothing_can_be_started_is_what_its_guardian_says(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        assert bench.supervisor.trouble() == ""
        bench.runtime.why = "the guardian does not answer"
        assert bench.supervisor.trouble() == "the guardian does not answer"

    play(scenario)


def test_disk_is_promised_until_the_end(play: Play) -> None:
    """What is promised twice fills the disk; what is never given back leaves no room for others."""

    async def scenario(bench: Bench) -> None:
        launch = replace(COMMAND, resources=Resources(disk_bytes=5))
        first, _ = await bench.run(0, launch=launch), await bench.run(1, launch=launch)
        await bench.run(2, launch=replace(COMMAND, job_id="/u/other"))
        assert bench.supervisor.reserved_disk == 10
        first.listener.on_exit(Exit(0, 0))
        assert bench.supervisor.reserved_disk == 5, "although it is not forgotten yet"

    play(scenario)


def test_an_end_before_the_start_is_held_back_until_its_log_is_there_too(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.preparer.answer = PreparationFailed(FailureKind.ENVIRONMENT, "no uv.lock")
        name = bench.ask(launch=BUNDLE)
        await bench.settle()
        (found,) = bench.supervisor.inventory()
        assert (found.attempt_id, found.state, found.pid) == (name, TaskState.BUILDING, 0)
        bench.supervisor.acknowledge_log(name, 10_000)
        (found,) = bench.supervisor.inventory()
        assert (found.state, found.error) == (TaskState.FAILED, "no uv.lock")

    play(scenario)


def test_a_log_is_not_open_any_more_when_its_attempt_is_forgotten(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        command = await bench.run()
        path = bench.paths.log("/u/job/0:0")
        write(path, "0123456789" * 60_000)
        command.listener.on_log(600_000)
        assert len(bench.supervisor.outbox.take().logs) == 1, "a part of it: the rest is to be read"
        command.listener.on_exit(Exit(0, 0))
        assert path in opened()
        bench.forget("/u/job/0:0")
        assert path not in opened()

    play(scenario)


def opened() -> set[str]:
    """The files that this process has open."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return found


def test_contact_is_passed_on(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.supervisor.contact(7)
        assert bench.runtime.contacts == [7]

    play(scenario)


NOTE = {"task": "/u/job/3", "index": 3, "job": "/u/job", "bundle": "b1", "replicas": 5, "accelerator": True, "disk": 7}


def test_what_a_former_worker_started_goes_on_under_this_one(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        found = {item.attempt_id: item for item in bench.supervisor.inventory()}
        assert (found["/u/job/3:1"].state, found["/u/job/3:1"].pid) == (TaskState.RUNNING, 99)
        assert found["/u/job/4:0"].state is TaskState.BUILDING, "it has a place here"
        assert bench.supervisor.live_count == 2
        bench.runtime.commands["/u/job/3:1"].listener.on_exit(Exit(0, 15))
        assert bench.said()[-1].error == "enough", "it was asked to stop before"
        newer = bench.ask(4, 1)
        await bench.settle()
        assert newer not in bench.runtime.commands, "the former attempt of the task is still here"
        bench.forget("/u/job/3:1")
        assert bench.runtime.forgotten == ["/u/job/3:1"]

    stopped = {**NOTE, "stop": ["enough", 50, False, False]}
    queued = {**NOTE, "task": "/u/job/4", "index": 4}
    held = [
        InheritedAttempt("/u/job/3:1", 99, "/log", 40, 1234, stopped),
        InheritedAttempt("/u/job/4:0", 0, "/log", 0, 5, queued),
    ]
    play(scenario, held)


class TestAdoption:
    def test_a_note_gives_back_what_it_was_made_of(self) -> None:
        attempt = adopted(InheritedAttempt("/u/job/3:1", 99, "/log", 40, 1234, NOTE), None)  # type: ignore[arg-type]
        launch = attempt.request.launch
        assert (attempt.request.task_id, attempt.request.task_index) == ("/u/job/3", 3)
        assert (launch.job_id, launch.bundle_digest, launch.replicas, launch.has_accelerator) == (
            "/u/job",
            "b1",
            5,
            True,
        )
        assert attempt.note() == NOTE
        assert (attempt.log.size, attempt.at_ms, attempt.log_path) == (40, 1234, "/log")

    def test_a_note_of_another_release_may_lack_anything(self) -> None:
        attempt = adopted(InheritedAttempt("/u/job/3:1", 0, "/log", 0, 0, {}), None)  # type: ignore[arg-type]
        launch = attempt.request.launch
        assert (attempt.request.task_index, launch.replicas, launch.has_accelerator) == (0, 1, False)
        assert attempt.state.stop is None


def test_ports_are_free_and_differ() -> None:
    found = PortChooser().free_ports(tuple(f"p{number}" for number in range(20)))
    assert len(set(found.values())) == 20
    assert all(1024 < port < 65536 for port in found.values())
    assert PortChooser().free_ports(()) == {}
