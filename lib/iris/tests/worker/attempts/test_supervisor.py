"""What a supervisor does with attempts, with a guardian and a preparer that are played."""

import asyncio
import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fray.testing.waiting import eventually_async
from iris.domain.resources import Resources
from iris.domain.runtime import TaskRuntime
from iris.domain.states import FailureKind, PreemptionReason, TaskState
from iris.rpc.logformat import decode_all
from iris.worker.attempts.attempt import adopted
from iris.worker.prepare.task_env import PreparedEnvironment
from iris.worker.processes import Exit, InheritedAttempt, StartFailed, StartFailure
from iris.worker.reports import outbox
from iris.worker.types import (
    NO_RESULT,
    Launch,
    PreparationFailed,
    TaskResult,
)

from .conftest import BUNDLE, COMMAND, Bench, settle


async def test_a_command_is_handed_over_with_all_it_needs(bench: Bench) -> None:
    launch = replace(
        COMMAND, has_accelerator=True, exclusive=True, fence_after_ms=7000, ports=("http",), replicas=2, token="t"
    )
    spec = (await bench.run(1, launch=launch)).spec
    assert (spec.owner, spec.argv, spec.sharer, spec.fence_ms) == ("/u/job/1:0", ("true",), "", 7000)
    assert spec.tail_bytes == 16 * 1024
    assert spec.env["IRIS_TASK_INDEX"] == "1"
    assert int(spec.env["IRIS_PORT_HTTP"]) > 0
    assert Path(spec.env["IRIS_TOKEN_FILE"]).stat().st_size
    assert os.path.isdir(spec.cwd)
    assert spec.log == bench.paths.log("/u/job/1:0")
    assert (spec.note["task"], spec.note["index"], spec.note["replicas"]) == ("/u/job/1", 1, 2)
    plain = (await bench.run(0, launch=replace(COMMAND, job_id="/u/other", fence_after_ms=7000))).spec
    assert (plain.tail_bytes, plain.fence_ms) == (0, 0), "neither an accelerator nor exclusive"
    bench.preparer.known = PreparedEnvironment(bin_dirs=("/known/bin",), payload_path="/blobs/p")
    callable_ = (await bench.run(launch=Launch("/ann/job", payload_digest="p"))).spec
    assert (callable_.sharer, callable_.argv[-1]) == ("ann", "/blobs/p"), "with those of its user"
    assert callable_.env["PATH"] == "/known/bin:/bin"


async def test_the_life_of_an_attempt_is_told_step_by_step(bench: Bench) -> None:
    command = await bench.run()
    (running,) = bench.said()
    assert (running.state, running.pid, running.at_ms) == (TaskState.RUNNING, 4711, 100_000)
    assert running.started_at_ms == bench.supervisor.now_ms() == 100_000, "by the clock that a session tells of"
    assert (bench.supervisor.live_count, bench.supervisor.live_attempts) == (1, ["/u/job/0:0"])
    bench.now = 101.0
    command.listener.on_exit(Exit(3, 0, at_ms=100_500))
    (ended,) = bench.said()
    assert (ended.state, ended.exit_code, ended.error) == (TaskState.FAILED, 3, "exit code 3")
    assert (ended.failure, ended.at_ms, ended.started_at_ms) == (FailureKind.USER, 100_500, 100_000)
    assert bench.supervisor.live_count == 0
    bench.ask()
    assert bench.states() == {"/u/job/0:0": TaskState.FAILED}, "a known one is told again and not started"
    assert bench.runtime.live_count == 1
    late = await bench.run(1)  # it is told to run from now on
    late.listener.on_exit(Exit(0, 0, at_ms=99_000))
    ended = bench.said()[-1]
    assert (ended.at_ms, ended.started_at_ms) == (99_000, 99_000), "it did not start after its end"


async def test_a_tasks_own_words_and_exception_go_with_a_failure_and_its_value_with_a_success(bench: Bench) -> None:
    bench.preparer.known = PreparedEnvironment(bin_dirs=("/known/bin",), payload_path="/blobs/p")
    called = replace(COMMAND, argv=(), payload_digest="p")
    for index, code in enumerate((1, 0)):
        command = await bench.run(index, launch=called)
        files = [Path(bench.paths.error(f"/u/job/{index}:0")), Path(bench.paths.result(f"/u/job/{index}:0"))]
        files[0].write_text("  ValueError: bad\0" + "3.12\n\0pickled")
        files[1].write_text("3.12\nsmall")
        command.listener.on_exit(Exit(code, 0))
        ended = bench.said()[-1]
        assert (ended.error, ended.exception, ended.result) == (
            ("ValueError: bad", b"3.12\n\0pickled", NO_RESULT) if code else ("", b"", TaskResult(b"3.12\nsmall"))
        )
        bench.forget(f"/u/job/{index}:0")
        assert not any(file.exists() for file in files)
    (await bench.run(2, launch=called)).listener.on_exit(Exit(0, 0))
    ended = bench.said()[-1]
    assert (ended.state, ended.failure) == (TaskState.FAILED, FailureKind.USER)
    assert ended.error == "the process exited with code 0 before its function returned"


async def test_the_end_of_one_that_returned_much_is_told_when_that_is_there(bench: Bench) -> None:
    for index in range(2):
        command = await bench.run(index)
        Path(bench.paths.result(f"/u/job/{index}:0")).write_text("x" * 5000)
        command.listener.on_exit(Exit(0, 0, at_ms=90_000))
        await settle()
    assert set(bench.states().values()) == {TaskState.RUNNING}
    bench.stop("/u/job/1:0")
    bench.may_send.set()
    ended = await bench.reaches(TaskState.SUCCEEDED)
    assert bench.blobs[ended.result.digest] == b"x" * 5000
    assert (ended.result.packed, ended.at_ms) == (b"", 90_000)
    ends = (TaskState.SUCCEEDED, TaskState.KILLED)
    await eventually_async(lambda: all(i.state in ends for i in bench.supervisor.inventory()), "both have ended")
    stopped = {item.attempt_id: item for item in bench.supervisor.inventory()}["/u/job/1:0"]
    assert (stopped.state, stopped.error, stopped.result) == (TaskState.KILLED, "enough", NO_RESULT)


async def test_ends_that_the_guardian_made_or_could_not_log_are_told(bench: Bench) -> None:
    command = await bench.run()
    command.listener.on_exit(Exit(0, 9, fenced="no contact for 10 s"))
    fenced = bench.said()[-1]
    assert (fenced.state, fenced.failure) == (TaskState.WORKER_FAILED, FailureKind.PREEMPTED)
    assert fenced.error == "no contact for 10 s"
    broken = await bench.run(2, launch=replace(COMMAND, job_id="/u/tpu", has_accelerator=True))
    broken.listener.on_exit(Exit(1, 0, tail=b"The TPU is already in use by process with pid 7"))
    assert bench.said()[-1].failure == FailureKind.DEVICE
    other = await bench.run(1)
    bench.said()
    other.listener.on_exit(Exit(0, 0, lost="5 bytes lost", unmarked="5 bytes lost", at_ms=1))
    batch = bench.outbox.take()
    assert batch.observations[0].error == "5 bytes lost"
    (record,) = decode_all(batch.logs[0].data)
    assert (record.data, record.note) == (b"5 bytes lost", True)


@pytest.mark.parametrize(
    ("why", "state", "kind"),
    [
        (StartFailure.COMMAND, TaskState.FAILED, FailureKind.START),
        (StartFailure.HOST, TaskState.WORKER_FAILED, FailureKind.WORKER),
        (StartFailure.FENCED, TaskState.WORKER_FAILED, FailureKind.PREEMPTED),
    ],
)
async def test_whose_fault_a_refusal_is(bench: Bench, why: StartFailure, state: TaskState, kind: FailureKind) -> None:
    bench.ask()
    await settle()
    bench.runtime.commands["/u/job/0:0"].listener.on_refused(StartFailed("it cannot be", 127, why))
    (ended,) = bench.said()
    assert (ended.state, ended.failure, ended.error, ended.exit_code) == (state, kind, "it cannot be", 127)


class TestStops:
    async def test_one_that_runs_is_asked_to_end_and_ends_as_killed(self, bench: Bench) -> None:
        command = await bench.run()
        bench.stop("/u/job/0:0", 70)
        ((grace, note),) = command.stops
        assert grace == 70
        assert note is not None
        assert note["stop"] == ["enough", 70, False, False, ""]
        command.listener.on_exit(Exit(0, 15))
        ended = bench.said()[-1]
        assert (ended.state, ended.error) == (TaskState.KILLED, "enough")
        bench.stop("/u/job/0:0", reason="again")
        (again,) = bench.said()
        assert (again.state, again.error) == (TaskState.KILLED, "enough"), "it is told again as it ended"
        bench.stop("/u/none/0:0", reason="")
        (gone,) = bench.said()
        assert (gone.attempt_id, gone.state, gone.at_ms) == ("/u/none/0:0", TaskState.KILLED, 100_000)
        assert gone.error == "stopped before it reached the worker"

    async def test_a_preempted_one_has_a_notice_before_the_signal_and_time_if_it_asks(self, bench: Bench) -> None:
        deaf, asks = await bench.run(), await bench.run(1)
        place = Path(bench.paths.notice("/u/job/1:0"))
        place.touch()
        for index in range(2):
            bench.stop(f"/u/job/{index}:0", 100, notice="drain")
        assert [grace for grace, _ in deaf.stops] == [100]
        assert (place.read_text(), asks.stops) == ("drain 100.100\n", [])
        bench.stop("/u/job/1:0", 5, reason="a repetition")
        await eventually_async(lambda: asks.stops, "SIGTERM")
        assert [grace for grace, _ in asks.stops] == [20], "a fifth of its grace"
        asks.listener.on_exit(Exit(0, 15))
        bench.forget("/u/job/1:0")
        assert not place.exists()

    async def test_a_second_notice_does_not_put_off_the_end_that_the_first_one_told(self, bench: Bench) -> None:
        command = await bench.run()
        bench.stop("/u/job/0:0", 100, notice="drain")
        leaving = asyncio.create_task(bench.supervisor.stop_all("the host is taken", 30, PreemptionReason.SPOT))
        await settle()
        assert Path(bench.paths.notice("/u/job/0:0")).read_text() == "spot 100.100\n"
        assert [grace for grace, _ in command.stops] == [100, 100]
        command.listener.on_exit(Exit(0, 15))
        await leaving

    async def test_one_that_waits_or_is_prepared_never_starts(self, bench: Bench) -> None:
        waits = bench.ask()
        bench.stop(waits, reason="")
        await settle()
        assert bench.runtime.commands == {}
        (ended,) = bench.said()
        assert (ended.state, ended.error) == (TaskState.KILLED, "stopped")
        bench.preparer.go.clear()
        prepared = bench.ask(1, launch=BUNDLE)
        await settle()
        bench.stop(prepared)
        await settle()
        assert bench.preparer.cancelled == 1
        assert bench.states() == {prepared: TaskState.KILLED}

    async def test_one_that_is_withdrawn_is_handed_back_unless_it_has_begun(self, bench: Bench) -> None:
        running, prefilled = (await bench.run()).spec.owner, bench.ask(1, prefilled=True)
        bench.preparer.go.clear()
        prepared = bench.ask(2, launch=BUNDLE)
        await settle()
        bench.said()
        bench.withdraw(running, prefilled, prepared, "/u/none/0:0")
        await settle()
        assert bench.states() == {
            running: TaskState.RUNNING, prefilled: TaskState.PENDING, prepared: TaskState.PENDING,
            "/u/none/0:0": TaskState.PENDING,
        }  # fmt: skip
        assert bench.preparer.cancelled == 1
        assert list(bench.runtime.commands) == [running]
        assert bench.runtime.commands[running].stops == []

    async def test_a_leaving_worker_ends_all_and_starts_nothing_more(self, bench: Bench) -> None:
        command = await bench.run()
        prefilled = bench.ask(2, prefilled=True)
        leaving = asyncio.create_task(bench.supervisor.stop_all("the host is taken", 30, PreemptionReason.SPOT))
        await settle()
        assert not leaving.done()
        assert command.stops[0][0] == 25_000, "what Compute Engine gives"
        assert Path(bench.paths.notice("/u/job/0:0")).read_text() == "spot 125.000\n"
        assert bench.outbox.leaving
        late = bench.ask(1)
        command.listener.on_exit(Exit(0, 15))
        await leaving
        assert bench.preparer.closed
        found = {item.attempt_id: (item.state, item.failure, item.error) for item in bench.said()}
        end = (TaskState.WORKER_FAILED, FailureKind.PREEMPTED, "the host is taken")
        back = (TaskState.PENDING, FailureKind.UNSPECIFIED, "handed back before its start: the host is taken")
        assert found == {"/u/job/0:0": end, late: end, prefilled: back}
        assert list(bench.runtime.commands) == ["/u/job/0:0"]


class TestPreparing:
    async def test_what_is_not_there_is_prepared_first_and_that_is_told_when_it_takes_time(self, bench: Bench) -> None:
        bench.preparer.go.clear()
        name = bench.ask(launch=BUNDLE)
        assert bench.said() == [], "mostly it is done at once"
        await bench.outbox.wait()
        assert bench.states() == {name: TaskState.BUILDING}
        assert bench.supervisor.live_count == 1
        bench.preparer.go.set()
        await settle()
        assert bench.runtime.commands[name].spec.env["PATH"] == "/env/bin:/bin"

    @pytest.mark.parametrize(
        ("error", "state", "kind", "text"),
        [
            (
                PreparationFailed(FailureKind.ENVIRONMENT, "no lock", "uv"),
                TaskState.FAILED,
                FailureKind.ENVIRONMENT,
                "",
            ),
            (OSError(28, "No space"), TaskState.WORKER_FAILED, FailureKind.WORKER, "preparing failed: "),
            (StartFailed("no guardian"), TaskState.WORKER_FAILED, FailureKind.WORKER, ""),
        ],
        ids=["job", "disk", "guardian"],
    )
    async def test_what_fails_is_told_with_whose_fault_it_is_and_its_end_comes_after_its_log(
        self, bench: Bench, error: Exception, state: TaskState, kind: FailureKind, text: str
    ) -> None:
        bench.preparer.answer = error
        name = bench.ask(launch=BUNDLE)
        await settle()
        is_jobs = kind is FailureKind.ENVIRONMENT
        (found,) = bench.supervisor.inventory()
        assert (found.state, found.pid) == (TaskState.BUILDING if is_jobs else state, 0)
        ended, records = await bench.failure()
        assert (ended.state, ended.failure, ended.error) == (state, kind, f"{text}{error}")
        assert [(record.data, record.is_stderr) for record in records] == (
            [(b"no lock", True), (b"uv", True)] if is_jobs else []
        )
        bench.supervisor.acknowledge_log(name, 10_000)
        assert [item.state for item in bench.supervisor.inventory()] == [state]
        bench.forget(name)
        assert bench.runtime.forgotten == [], "the guardian never heard of it"
        assert not os.path.exists(bench.paths.log(name))

    async def test_why_one_cannot_start_is_in_its_log_where_that_is_its_jobs_matter(self, bench: Bench) -> None:
        bundle = bench.paths.bundles / "b1"
        bundle.mkdir()
        (bundle / "notes").touch()
        bench.preparer.known = PreparedEnvironment(bin_dirs=("/env/bin",), bundle_dir=bundle)
        bench.ask(launch=replace(BUNDLE, runtime=TaskRuntime(working_dir="notes")))
        ended, (record,) = await bench.failure()
        assert (ended.state, ended.failure) == (TaskState.FAILED, FailureKind.START)
        assert record.data.decode() == ended.error == "the working directory 'notes' is a file in the workspace"
        assert bench.runtime.commands == {}


class TestPrefilling:
    """Those that were prefilled begin in the places of others."""

    async def test_an_end_and_the_start_in_its_place_are_told_in_one_message(self, bench: Bench) -> None:
        """Else the controller would take the place for free, and fill it too."""
        first = await bench.run()
        second, third = bench.ask(1, prefilled=True), bench.ask(2, prefilled=True)
        await settle()
        assert list(bench.runtime.commands) == ["/u/job/0:0"], "there is nothing to take the place of"
        bench.forget(third)
        assert [item.state for item in bench.supervisor.inventory()][1:] == [TaskState.ASSIGNED] * 2
        bench.said()
        first.listener.on_exit(Exit(0, 0))
        assert list(bench.runtime.commands) == ["/u/job/0:0", second]
        assert bench.states() == {"/u/job/0:0": TaskState.SUCCEEDED, second: TaskState.BUILDING}
        (await bench.begun(second)).listener.on_exit(Exit(0, 0))
        assert list(bench.runtime.commands)[2:] == [third]

    async def test_news_waits_while_there_is_more_to_begin(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(outbox, "COMPANY_S", 60.0)
        command = await bench.run()
        names = [bench.ask(index, prefilled=True) for index in range(1, 5)]
        assert bench.said()
        command.listener.on_exit(Exit(0, 0))
        news = asyncio.create_task(bench.outbox.wait())
        await settle()
        assert not news.done()
        (await bench.begun(names[0])).listener.on_exit(Exit(0, 0))
        await settle()
        assert news.done(), "half of what waited has begun"

    async def test_the_place_of_a_stopped_one_is_passed_on_to_nobody_and_it_never_begins(self, bench: Bench) -> None:
        running = [await bench.run(index) for index in range(2)]
        names = [bench.ask(index, prefilled=True) for index in (2, 3)]
        bench.stop("/u/job/0:0")
        running[0].listener.on_exit(Exit(0, 15))
        assert len(bench.runtime.commands) == 2
        bench.stop(names[0])
        assert bench.states()[names[0]] is TaskState.KILLED
        running[1].listener.on_exit(Exit(0, 0))
        await settle()
        assert list(bench.runtime.commands)[2:] == names[1:]
        again = bench.ask(4, prefilled=True)
        bench.ask(4)
        await settle()
        assert list(bench.runtime.commands)[-1] == again, "one that is asked for again need not wait"


async def test_an_ended_one_leaves_nothing_and_one_that_runs_is_not_forgotten(bench: Bench) -> None:
    command = await bench.run()
    spec, log = command.spec, bench.paths.log("/u/job/0:0")
    bench.forget("/u/job/0:0", "/u/none/0:0")
    assert [item.attempt_id for item in bench.supervisor.inventory()] == ["/u/job/0:0"]
    Path(spec.cwd, "left").touch()
    Path(log).write_text("0123456789" * 60_000)
    command.listener.on_log(600_000)
    assert len(bench.outbox.take().logs) == 1, "a part of it: the rest is to be read"
    command.listener.on_exit(Exit(0, 0))
    assert not os.path.exists(spec.cwd)
    assert log in opened()
    bench.forget("/u/job/0:0")
    assert (bench.runtime.forgotten, bench.supervisor.inventory()) == (["/u/job/0:0"], [])
    assert not os.path.exists(spec.env["IRIS_TOKEN_FILE"])
    assert log not in opened()
    assert bench.said() == []


def opened() -> set[str]:
    """The files that this process has open."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return found


class TestLogs:
    async def test_growth_is_shipped_and_shipped_again_where_the_controller_lacks_it(self, bench: Bench) -> None:
        def shipped() -> list[tuple[int, bytes]]:
            return [(chunk.offset, chunk.data) for chunk in bench.outbox.take().logs]

        name, acknowledge = "/u/job/0:0", bench.supervisor.acknowledge_log
        command = await bench.run()
        Path(bench.paths.log(name)).write_text("0123456789")
        bench.said()
        command.listener.on_log(10)
        assert shipped() == [(0, b"0123456789")]
        acknowledge("/u/none/0:0", 3)
        acknowledge(name, 4)
        assert shipped() == [], "the rest is on its way"
        acknowledge(name, 4)
        assert shipped() == [(4, b"456789")]
        bench.supervisor.resume_logs({name: 7})
        assert shipped() == [(7, b"789")]
        bench.supervisor.resume_logs({})
        assert shipped() == [(0, b"0123456789")], "a controller that has nothing gets all"
        bench.supervisor.resume_logs({name: 10})
        assert shipped() == []

    async def test_an_end_is_held_back_from_the_inventory_until_its_log_is_there(self, bench: Bench) -> None:
        command = await bench.run()
        Path(bench.paths.log("/u/job/0:0")).write_text("0123456789")
        command.listener.on_log(10)
        command.listener.on_exit(Exit(0, 0))
        (found,) = bench.supervisor.inventory()
        assert (found.state, found.pid, found.log_size) == (TaskState.RUNNING, 4711, 0)
        bench.outbox.clear()
        bench.supervisor.resume_logs({"/u/job/0:0": 2})
        batch = bench.outbox.take()
        assert [item.state for item in batch.observations or bench.said()] == [TaskState.SUCCEEDED]
        assert batch.logs[0].offset == 2
        bench.supervisor.acknowledge_log("/u/job/0:0", 10)
        (found,) = bench.supervisor.inventory()
        assert (found.state, found.log_size) == (TaskState.SUCCEEDED, 10)


async def test_disk_is_promised_until_the_end_and_the_guardian_hears_of_contact(bench: Bench) -> None:
    """What is promised twice fills the disk; what is never given back leaves no room for others."""
    launch = replace(COMMAND, resources=Resources(disk_bytes=5))
    first, _ = await bench.run(0, launch=launch), await bench.run(1, launch=launch)
    await bench.run(2, launch=replace(COMMAND, job_id="/u/other"))
    assert bench.supervisor.reserved_disk == 10
    first.listener.on_exit(Exit(0, 0))
    assert bench.supervisor.reserved_disk == 5, "although it is not forgotten yet"
    bench.supervisor.contact(7)
    bench.runtime.why = "the guardian does not answer"
    assert (bench.runtime.contacts, bench.supervisor.trouble()) == ([7], "the guardian does not answer")


NOTE = {"task": "/u/job/3", "index": 3, "job": "/u/job", "bundle": "b1", "replicas": 5, "accelerator": True, "disk": 7}


async def test_what_a_former_worker_started_goes_on_under_this_one(tmp_path: Path) -> None:
    stopped = {**NOTE, "stop": ["enough", 50, False, False]}
    queued = {**NOTE, "task": "/u/job/4", "index": 4}
    bench = Bench(
        tmp_path,
        [
            InheritedAttempt("/u/job/3:1", 99, "/log", 40, 1234, stopped),
            InheritedAttempt("/u/job/4:0", 0, "/log", 0, 5, queued),
        ],
    )
    found = {item.attempt_id: item for item in bench.supervisor.inventory()}
    assert (found["/u/job/3:1"].state, found["/u/job/3:1"].pid) == (TaskState.RUNNING, 99)
    assert found["/u/job/4:0"].state is TaskState.BUILDING, "it has a place here"
    assert bench.supervisor.live_count == 2
    bench.runtime.commands["/u/job/3:1"].listener.on_exit(Exit(0, 15))
    assert bench.said()[-1].error == "enough", "it was asked to stop before"
    newer = bench.ask(4, 1)
    await settle()
    assert newer not in bench.runtime.commands, "the former attempt of the task is still here"
    bench.forget("/u/job/3:1")
    assert bench.runtime.forgotten == ["/u/job/3:1"]


def test_a_note_gives_back_what_it_was_made_of_and_may_lack_anything() -> None:
    attempt = adopted(InheritedAttempt("/u/job/3:1", 99, "/log", 40, 1234, NOTE), None)  # type: ignore[arg-type]
    request, launch = attempt.request, attempt.request.launch
    assert (request.task_id, request.task_index, launch.job_id, launch.bundle_digest) == ("/u/job/3", 3, "/u/job", "b1")
    assert (launch.replicas, launch.has_accelerator) == (5, True)
    assert attempt.note() == NOTE
    assert (attempt.log.size, attempt.at_ms, attempt.log_path) == (40, 1234, "/log")
    attempt = adopted(InheritedAttempt("/u/job/3:1", 0, "/log", 0, 0, {}), None)  # type: ignore[arg-type]
    launch = attempt.request.launch
    assert (attempt.request.task_index, launch.replicas, launch.has_accelerator) == (0, 1, False)
    assert attempt.state.stop is None
    as_ann = InheritedAttempt("/ann/job/3:1", 99, "/log", 40, 1234, {**NOTE, "uid": 70_001})
    attempt = adopted(as_ann, None)  # type: ignore[arg-type]
    assert attempt.room == 70_001
    assert attempt.note() == {**NOTE, "uid": 70_001}
