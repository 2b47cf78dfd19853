"""In which order attempts start, how many, what waits, and what is told of those that cannot; no process is started."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from iris.domain.states import FailureKind
from iris.worker.attempts.attempt import Attempt
from iris.worker.attempts.machine import AttemptPhase, AttemptState
from iris.worker.attempts.ports import PortsInUse
from iris.worker.attempts.starts import StartQueue
from iris.worker.processes import StartFailed
from iris.worker.types import Launch, StartRequest


class Bench:
    """A queue with all that it speaks to: runtime, specs, directories, listener."""

    def __init__(self) -> None:
        self.live_count, self.most_live = 0, 1000
        self.started: list[tuple[object, str]] = []
        self.calls: list[tuple[str, ...]] = []
        self.released: list[str] = []
        self.error: Exception | None = None
        self.on_start: Callable[[Attempt], None] = lambda attempt: None
        self.queue = StartQueue(self, self, self, self)  # type: ignore[arg-type]

    def attempt(self, task: int = 0, number: int = 0) -> Attempt:
        task_id = f"/u/j/{task}"
        return Attempt(StartRequest(f"{task_id}:{number}", task_id, task, Launch("/u/j")), "/log", None)  # type: ignore[arg-type]

    def put(self, task: int = 0, number: int = 0) -> Attempt:
        attempt = self.attempt(task, number)
        self.queue.put(attempt)
        return attempt

    # --- of the specs ---

    def make(self, attempt: Attempt) -> Any:
        if self.error is not None:
            raise self.error
        return f"spec of {attempt.attempt_id}"

    def release(self, attempt: Attempt) -> None:
        self.released.append(attempt.attempt_id)

    # --- of the runtime ---

    def start(self, spec: object, attempt: Attempt) -> str:
        self.live_count += 1
        self.started.append((spec, attempt.attempt_id))
        self.on_start(attempt)
        return f"process of {attempt.attempt_id}"

    # --- of the directories ---

    def remove(self, name: str) -> None:
        self.calls.append(("remove", name))

    # --- of the listener ---

    def waits(self, attempt: Attempt) -> None:
        self.calls.append(("waits", attempt.attempt_id, attempt.waits_for))

    def handed(self, attempt: Attempt) -> None:
        self.calls.append(("handed", attempt.attempt_id))

    def failed_to_start(self, attempt: Attempt, kind: FailureKind, error: str, exit_code: int = 0) -> None:
        self.calls.append(("failed", attempt.attempt_id, kind.name, error, str(exit_code)))

    def superseded(self, former: Attempt, by: Attempt) -> None:
        self.calls.append(("superseded", former.attempt_id, by.attempt_id))

    def names(self) -> list[str]:
        return [name.removeprefix("/u/j/") for _, name in self.started]


def end(attempt: Attempt) -> Attempt:
    attempt.state = AttemptState(AttemptPhase.ENDED)
    return attempt


@pytest.fixture
def bench(runner: asyncio.Runner) -> Bench:
    async def make() -> Bench:
        return Bench()

    return runner.run(make())


async def turn() -> None:
    await asyncio.sleep(0)


async def test_they_start_in_their_order_so_many_in_a_turn(bench: Bench) -> None:
    attempts = [bench.put(task) for task in range(101)]
    assert bench.started == [], "who puts them is not held up"
    seen = []
    for _ in range(4):
        await turn()
        seen.append(len(bench.started))
    assert seen == [50, 100, 101, 101]
    assert bench.names() == [f"{task}:0" for task in range(101)]
    assert bench.calls == [("handed", attempt.attempt_id) for attempt in attempts]
    assert attempts[1].process == "process of /u/j/1:0"  # type: ignore[comparison-overlap]


async def test_what_has_no_room_waits_for_an_end(bench: Bench) -> None:
    bench.most_live = 2
    attempts = [bench.put(task) for task in range(4)]
    await turn()
    await turn()
    assert bench.names() == ["0:0", "1:0"]
    bench.live_count -= 1
    bench.queue.ended(end(attempts[0]))
    await turn()
    assert bench.names() == ["0:0", "1:0", "2:0"]


async def test_what_was_stopped_while_it_waited_does_not_start_and_takes_no_turn(bench: Bench) -> None:
    stopped, _ = bench.put(0), bench.put(1)
    bench.queue.ended(end(stopped))
    await turn()
    assert bench.names() == ["1:0"]
    assert bench.calls == [("handed", "/u/j/1:0")]


async def test_who_is_short_of_ports_waits_for_an_end_and_is_not_the_hosts_fault(bench: Bench) -> None:
    first = bench.put(0)
    await turn()
    bench.error = PortsInUse("no port is free")
    second, third, stopped = (bench.put(task) for task in range(1, 4))
    await turn()
    await turn()
    assert bench.names() == ["0:0"]
    assert not [call for call in bench.calls if call[0] == "failed"]
    words = "no port is free; it waits for the end of another attempt there"
    assert ("waits", "/u/j/1:0", words) in bench.calls
    end(stopped)
    bench.error = None
    bench.queue.ended(end(first))
    await turn()
    assert bench.names() == ["0:0", "1:0", "2:0"]
    assert bench.released == ["/u/j/0:0"]
    assert (second.waits_for, third.waits_for) == ("", "")


class TestOneOfATaskAtATime:
    async def test_a_later_one_waits_until_the_former_is_gone(self, bench: Bench) -> None:
        first = bench.put(0, 0)
        await turn()
        second, third = bench.put(0, 1), bench.put(0, 2)
        await turn()
        assert bench.names() == ["0:0"]
        assert bench.calls[1:] == [("superseded", "/u/j/0:0", "/u/j/0:1"), ("superseded", "/u/j/0:0", "/u/j/0:2")]
        bench.queue.ended(end(bench.attempt(5)))  # of another task
        await turn()
        assert bench.names() == ["0:0"]
        bench.queue.ended(end(first))
        await turn()
        assert bench.names() == ["0:0", "0:1"]
        bench.queue.ended(end(third))  # it never began: the one that runs is not gone
        bench.put(0, 3)
        await turn()
        assert bench.names() == ["0:0", "0:1"]
        bench.queue.ended(end(second))
        await turn()
        assert bench.names() == ["0:0", "0:1", "0:3"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (StartFailed("no such program", 127), ("START", "no such program", "127")),
        (OSError("no space"), ("WORKER", "the worker cannot start it: no space", "0")),
    ],
)  # fmt: skip
async def test_one_that_cannot_start_is_told_with_whose_fault_it_is_and_blocks_none(
    bench: Bench, error: Exception, told: tuple[str, ...]
) -> None:
    bench.error = error
    bench.put(0, 0)
    await turn()
    assert bench.calls == [("failed", "/u/j/0:0", *told)]
    bench.error = None
    bench.put(0, 1)
    await turn()
    assert bench.names() == ["0:1"]


class TestNow:
    async def test_it_does_not_wait_for_the_next_turn_and_starts_nothing_twice(self, bench: Bench) -> None:
        bench.queue.start_now()
        bench.put(0)
        bench.queue.start_now()
        assert bench.names() == ["0:0"]
        bench.put(1)
        await turn()
        await turn()
        assert bench.names() == ["0:0", "1:0"]

    async def test_within_a_start_it_keeps_the_order(self, bench: Bench) -> None:
        bench.on_start = lambda attempt: bench.queue.start_now()
        for task in range(3):
            bench.put(task)
        at_second = bench.attempt(1, 0)
        bench.queue.start_now()
        assert bench.names() == ["0:0", "1:0", "2:0"]
        assert [call[1] for call in bench.calls] == ["/u/j/0:0", "/u/j/1:0", "/u/j/2:0"]
        assert not at_second.ended
        bench.on_start = lambda attempt: None
        bench.put(7)
        bench.queue.start_now()
        assert bench.names()[-1] == "7:0", "the starts are over"


class TestReady:
    async def test_what_was_made_before_is_what_starts(self, bench: Bench) -> None:
        attempt = bench.attempt()
        bench.queue.make_ready(attempt)
        bench.error = AssertionError("it is made already")
        bench.queue.make_ready(attempt)
        bench.queue.put(attempt)
        await turn()
        assert bench.started == [("spec of /u/j/0:0", "/u/j/0:0")]
        assert attempt.spec is None

    @pytest.mark.parametrize("error", [StartFailed("no such directory"), OSError("no space")])
    async def test_what_fails_now_leaves_nothing_and_is_told_at_the_start(self, bench: Bench, error: Exception) -> None:
        attempt = bench.attempt()
        bench.error = error
        bench.queue.make_ready(attempt)
        assert bench.calls == [("remove", "/u/j/0:0")]
        assert attempt.spec is None
        bench.queue.put(attempt)
        await turn()
        assert bench.calls[1][:2] == ("failed", "/u/j/0:0")

    async def test_what_was_made_is_taken_back_and_nothing_is_made_for_one_that_has_ended(self, bench: Bench) -> None:
        attempt = bench.attempt()
        bench.queue.make_ready(attempt)
        assert attempt.spec is not None
        bench.queue.make_unready(attempt)
        assert attempt.spec is None
        assert bench.calls == [("remove", "/u/j/0:0")]
        bench.queue.make_ready(end(attempt))
        assert attempt.spec is None
