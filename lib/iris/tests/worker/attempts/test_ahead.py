"""What a worker does with attempts that were assigned ahead, against a fake controller and with real processes."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from iris.domain.states import FailureKind, TaskState
from iris.rpc import iris_pb2 as pb
from iris.testing.worker_fixtures import FakeController, InProcessWorker, run_command
from iris.worker.attempts import ahead
from iris.worker.reports import outbox

pytestmark = pytest.mark.e2e

Scenario = Callable[[FakeController, InProcessWorker], Awaitable[None]]
Play = Callable[[Scenario], None]
JOB = "/user/job"


def name(index: int) -> str:
    return f"{JOB}/{index}:0"


def some(
    script: str, indexes: Iterable[int], is_ahead: bool = False, cpu_millis: int = 1000, bundle: str = ""
) -> pb.RunAttempts:
    run = run_command("sh", "-c", script, indexes=indexes, bundle=bundle)
    run.launch.resources.cpu_millis = cpu_millis
    run.launch.replicas = 100
    for ref in run.attempts:
        ref.ahead = is_ahead
    return run


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is handed back for lack of time."""
    monkeypatch.setattr(ahead, "HAND_BACK_S", 60.0)


def until_file(path: Path) -> str:
    return f"while [ ! -e {path} ]; do sleep 0.01; done"


@pytest.mark.usefixtures("patient")
def test_each_begins_when_one_ends_and_in_order(play: Play, tmp_path: Path) -> None:
    gate, marks = tmp_path / "gate", tmp_path / "marks"

    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[some(until_file(gate), [0])])
        mark = f"echo $IRIS_TASK_INDEX >> {marks}"
        controller.send(run=[some(mark, range(1, 6), is_ahead=True)])
        await controller.until(lambda: name(0) in controller.observations)
        await controller.until(lambda: controller.applied_revision == 2)
        assert not marks.exists(), "one began with nothing to take the place of"
        gate.touch()
        ends = await controller.until_ended(*(name(index) for index in range(6)))
        assert {end.state for end in ends} == {TaskState.SUCCEEDED}
        assert marks.read_text().split() == ["1", "2", "3", "4", "5"]
        assert all(0 < end.started_at_ms <= end.at_ms for end in ends)

    play(scenario)


@pytest.mark.usefixtures("patient")
def test_an_end_and_the_start_in_its_place_are_told_in_one_message(play: Play, tmp_path: Path) -> None:
    """Else the controller would take the place for free, and fill it too."""
    gate = tmp_path / "gate"

    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[some(until_file(gate), [0]), some("sleep 60", [1], is_ahead=True)])
        await controller.until(lambda: name(0) in controller.observations)
        gate.touch()
        await controller.until(lambda: controller.has_ended(name(0)))
        assert controller.observations[name(1)].state in (TaskState.BUILDING, TaskState.RUNNING)

    play(scenario)


@pytest.mark.usefixtures("patient")
def test_one_that_needs_more_than_came_free_goes_on_waiting(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        large = some("true", [1], is_ahead=True, cpu_millis=2000)
        small = some("true", [2], is_ahead=True, cpu_millis=500)
        controller.send(run=[large, small, some("true", [0])])
        await controller.until_ended(name(0), name(2))
        states = {seen.attempt_id: seen.state for seen in worker.supervisor.inventory()}
        assert states[name(1)] is TaskState.ASSIGNED

    play(scenario)


@pytest.mark.usefixtures("patient")
def test_one_that_need_not_wait_begins_at_once(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[some("true", [1, 2], is_ahead=True)])
        controller.send(run=[some("true", [1])])
        ended = await controller.until_ended(name(1), name(2))
        assert [TaskState(one.state) for one in ended] == [TaskState.SUCCEEDED, TaskState.SUCCEEDED]

    play(scenario)


def test_what_does_not_begin_in_time_is_handed_back_and_never_runs(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "HAND_BACK_S", 0.05)
    gate, mark = tmp_path / "gate", tmp_path / "mark"

    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[some(until_file(gate), [0]), some(f"touch {mark}", [1], is_ahead=True)])
        await controller.until(lambda: name(1) in controller.observations)
        back = controller.observations[name(1)]
        assert (back.state, back.error) == (
            TaskState.PENDING,
            "handed back, not begun: its turn did not come within 0.05 s",
        )
        controller.send(run=[some(f"touch {mark}", [1])])  # too late
        gate.touch()
        await controller.until_ended(name(0))
        controller.send(forget=[name(0), name(1)])
        await controller.until(lambda: worker.supervisor.inventory() == [])
        assert not mark.exists()
        assert list(worker.paths.attempts.iterdir()) == []

    play(scenario)


@pytest.mark.usefixtures("patient")
def test_a_stopped_one_never_begins(play: Play, tmp_path: Path) -> None:
    gate, mark = tmp_path / "gate", tmp_path / "mark"

    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[some(until_file(gate), [0]), some(f"touch {mark}", [1], is_ahead=True)])
        controller.send(stop=[pb.StopAttempt(attempt_id=name(1), grace_ms=1000, reason="stopped by user")])
        (end,) = await controller.until_ended(name(1))
        assert (end.state, end.error) == (TaskState.KILLED, "stopped by user")
        gate.touch()
        await controller.until_ended(name(0))
        assert not mark.exists()

    play(scenario)


@pytest.mark.usefixtures("patient")
def test_the_place_of_a_stopped_attempt_is_passed_on_to_nobody(play: Play) -> None:
    """It was stopped to make room for something else."""

    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[some("exec sleep 60", [0]), some("true", [1], is_ahead=True)])
        await controller.until(lambda: name(0) in controller.observations)
        controller.send(stop=[pb.StopAttempt(attempt_id=name(0), grace_ms=1000, reason="preempted")])
        await controller.until_ended(name(0))
        states = {seen.attempt_id: seen.state for seen in worker.supervisor.inventory()}
        assert states[name(1)] is TaskState.ASSIGNED

    play(scenario)


@pytest.mark.usefixtures("patient")
def test_after_a_fault_of_the_host_all_are_handed_back(play: Play, tmp_path: Path) -> None:
    """Each would fail there, one after the other."""

    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        shutil.rmtree(worker.paths.slots)
        worker.paths.slots.write_text("no directory")
        controller.send(run=[some("true", [1, 2, 3], is_ahead=True), some("true", [0])])
        (end,) = await controller.until_ended(name(0))
        assert end.failure == FailureKind.WORKER
        await controller.until(lambda: all(name(index) in controller.observations for index in (1, 2, 3)))
        back = [controller.observations[name(index)] for index in (1, 2, 3)]
        assert {seen.state for seen in back} == {TaskState.PENDING}
        assert "failed by a fault of the host" in back[0].error

    play(scenario)


@pytest.mark.usefixtures("patient")
def test_a_worker_that_leaves_hands_them_back(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[some("exec sleep 60", [0]), some("true", [1], is_ahead=True)])
        await controller.until(lambda: name(0) in controller.observations)
        await worker.supervisor.stop_all("the host goes away", 100)
        await controller.until(lambda: name(1) in controller.observations and controller.has_ended(name(0)))
        assert controller.observations[name(1)].state == TaskState.PENDING

    play(scenario)


@pytest.mark.usefixtures("patient")
def test_the_inventory_tells_what_waits_from_what_has_its_place(play: Play, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[some(until_file(gate), [0]), some("true", [1], is_ahead=True)])
        await controller.until(lambda: name(0) in controller.observations)
        controller.send_message(None)  # hangs up
        await controller.until(lambda: len(controller.hellos) == 2)
        seen = {item.attempt_id: item.state for item in controller.hellos[1].inventory}
        assert seen == {name(0): TaskState.RUNNING, name(1): TaskState.ASSIGNED}
        gate.touch()
        await controller.until_ended(name(0), name(1))

    play(scenario)


@pytest.mark.usefixtures("patient")
def test_many_short_ones_travel_in_few_messages(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """While there is more to begin, news waits for company; at the end it does not."""
    monkeypatch.setattr(outbox, "COMPANY_S", 30.0)

    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.heartbeat_ms = 60_000  # a heartbeat takes news along
        controller.send_message(None)
        await controller.until(lambda: len(controller.hellos) == 2)
        told: list[int] = []
        controller.on_message = lambda message: told.append(len(message.observations))
        controller.send(run=[some("true", range(2, 60), is_ahead=True), some("true", [0, 1])])
        await controller.until_ended(*(name(index) for index in range(60)))
        assert sum(map(bool, told)) < 12, f"their ends and starts travel together: {told}"

    play(scenario)


def test_only_ended_attempts_are_forgotten(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[some("true", [1], is_ahead=True)], forget=[name(1)])
        await asyncio.sleep(0)
        await controller.until(lambda: controller.applied_revision == 1)
        assert [seen.attempt_id for seen in worker.supervisor.inventory()] == [name(1)]

    play(scenario)


@pytest.mark.usefixtures("patient")
def test_what_was_made_ready_before_its_turn_is_removed_when_it_does_not_come(play: Play, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[some("true", [0]), some(until_file(gate), [1], is_ahead=True)])
        controller.send(run=[some("true", [2], is_ahead=True)])
        await controller.until(lambda: name(1) in controller.observations)
        await controller.until_ended(name(0))
        stop = pb.StopAttempt(attempt_id=name(2), grace_ms=1000, reason="stopped by user")
        controller.send(stop=[stop])
        await controller.until_ended(name(2))
        gate.touch()
        await controller.until_ended(name(1))
        assert list(worker.paths.attempts.iterdir()) == []
        assert list(worker.paths.temporaries.iterdir()) == []

    play(scenario)
