"""In which order attempts start, how many, what waits, and what is told of those that cannot; no process is started."""

import asyncio
from dataclasses import replace

import pytest

from iris.domain.states import FailureKind, TaskState
from iris.worker.attempts.ports import PortsInUse
from iris.worker.processes import Exit, StartFailed

from .conftest import COMMAND, Bench, settle

NOT_FOUND = StartFailed("no such program", 127)
NO_SPACE = OSError("no space")


async def test_they_start_in_their_order_so_many_in_a_turn(bench: Bench) -> None:
    bench.runtime.most_live = 1000
    names = [bench.ask(index) for index in range(101)]
    seen = [len(bench.runtime.commands)]
    for _ in range(4):
        await asyncio.sleep(0)
        seen.append(len(bench.runtime.commands))
    assert seen == [0, 50, 100, 101, 101], "who asks for them is not held up"
    assert list(bench.runtime.commands) == names


async def test_what_has_no_room_waits_for_an_end_and_what_was_stopped_takes_no_turn(bench: Bench) -> None:
    bench.runtime.most_live = 2
    names = [bench.ask(index) for index in range(5)]
    bench.stop(names[0])
    await settle()
    assert list(bench.runtime.commands) == names[1:3]
    bench.runtime.live_count -= 1
    (await bench.begun(names[1])).listener.on_exit(Exit(0, 0))
    await settle()
    assert list(bench.runtime.commands) == names[1:4]


async def test_who_is_short_of_ports_waits_for_an_end_and_is_not_the_hosts_fault(bench: Bench) -> None:
    first = await bench.run()
    bench.ports.error = PortsInUse("no port is free")
    names = [bench.ask(index) for index in range(1, 4)]
    await settle()
    assert list(bench.runtime.commands) == ["/u/job/0:0"]
    words = "no port is free; waiting for another attempt on this worker to end"
    assert {item.waits_for for item in bench.said() if item.attempt_id in names} == {words}
    bench.ports.released.clear()
    bench.stop(names[2])
    bench.ports.error = None
    first.listener.on_exit(Exit(0, 0))
    await settle()
    assert list(bench.runtime.commands) == ["/u/job/0:0", *names[:2]]
    assert bench.ports.released[:2] == [names[2], "/u/job/0:0"]
    assert {item.waits_for for item in bench.supervisor.inventory()} == {""}


async def test_a_later_one_of_a_task_waits_until_the_former_is_gone(bench: Bench) -> None:
    first, other = await bench.run(), await bench.run(5)
    second, third = bench.ask(attempt=1), bench.ask(attempt=2)
    await settle()
    assert [grace for grace, _ in first.stops] == [1000, 1000]
    other.listener.on_exit(Exit(0, 0))
    await settle()
    assert list(bench.runtime.commands) == ["/u/job/0:0", "/u/job/5:0"]
    first.listener.on_exit(Exit(0, 15))
    await settle()
    assert list(bench.runtime.commands)[2:] == [second]
    assert {item.attempt_id: item.error for item in bench.said()}["/u/job/0:0"] == "superseded by /u/job/0:1"
    bench.stop(third)  # it never began: the one that runs is not gone
    fourth = bench.ask(attempt=3)
    await settle()
    assert list(bench.runtime.commands)[2:] == [second]
    (await bench.begun(second)).listener.on_exit(Exit(0, 0))
    await settle()
    assert list(bench.runtime.commands)[2:] == [second, fourth]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NOT_FOUND, (TaskState.FAILED, FailureKind.START, "no such program", 127)),
        (NO_SPACE, (TaskState.WORKER_FAILED, FailureKind.WORKER, "the worker cannot start it: no space", 0)),
    ],
)
async def test_one_that_cannot_start_blocks_none(bench: Bench, error: Exception, told: tuple[object, ...]) -> None:
    bench.ports.error = error
    bench.ask()
    ended, _ = await bench.failure()
    assert (ended.state, ended.failure, ended.error, ended.exit_code) == told
    bench.ports.error = None
    newer = bench.ask(attempt=1)
    await settle()
    assert list(bench.runtime.commands) == [newer]


@pytest.mark.parametrize("error", [NOT_FOUND, NO_SPACE])
async def test_what_was_made_ready_starts_and_what_failed_is_told_at_the_start(bench: Bench, error: Exception) -> None:
    running = [await bench.run(index) for index in range(2)]
    second, third, fourth = (bench.ask(index, launch=replace(COMMAND), prefilled=True) for index in (2, 3, 4))
    running[0].listener.on_exit(Exit(0, 0))
    await settle()
    bench.ports.error = error
    running[1].listener.on_exit(Exit(0, 0))
    assert list(bench.runtime.commands)[2:] == [second, third], "it was made before"
    slots = len(list(bench.paths.slots.iterdir()))
    await settle()
    assert len(list(bench.paths.slots.iterdir())) == slots
    assert bench.ports.released[-1] == fourth, "it leaves nothing"
    bench.said()
    (await bench.begun(second)).listener.on_exit(Exit(0, 0))
    await settle()
    (ended,) = [item for item in bench.supervisor.inventory() if item.attempt_id == fourth]
    assert list(bench.runtime.commands)[4:] == []
    assert ended.state is (TaskState.WORKER_FAILED if error is NO_SPACE else TaskState.BUILDING), "its log comes first"
