import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from iris.domain.resources import Resources
from iris.domain.states import FailureKind, TaskState
from iris.worker.attempts.attempt import Attempt
from iris.worker.attempts.machine import AttemptPhase, AttemptState, StopAsked
from iris.worker.attempts.prefill import PrefillQueue
from iris.worker.types import Launch, StartRequest

DONE = AttemptState(AttemptPhase.ENDED, TaskState.SUCCEEDED)


class Bench:
    def __init__(self, hand_back_s: float = 60.0) -> None:
        self.told: list[tuple[str, str]] = []
        self.went_back = asyncio.Event()
        self.queue = PrefillQueue(self.hand_back, hand_back_s)

    def hand_back(self, attempt: Attempt, why: str) -> None:
        self.told.append((attempt.request.task_id, why))
        self.went_back.set()

    async def next(self) -> tuple[str, str]:
        """The next that goes back."""
        await self.went_back.wait()
        self.went_back.clear()
        return self.told.pop(0)

    def attempt(self, index: int, cpu_millis: int = 1, after: AttemptState | None = None) -> Attempt:
        launch = Launch("/u/j", ("true",), resources=Resources(cpu_millis))
        made = Attempt(StartRequest(f"/u/j/{index}:0", f"{index}", index, launch), "/log", None)  # type: ignore[arg-type]
        made.state = after or made.state
        return made

    def add(self, *indexes: int, cpu_millis: int = 1) -> list[Attempt]:
        made = [self.attempt(index, cpu_millis) for index in indexes]
        for attempt in made:
            self.queue.add(attempt)
        return made


async def test_the_first_that_has_room_begins_in_the_place_of_one_that_has_ended() -> None:
    bench = Bench()
    (large,) = bench.add(0, cpu_millis=5)
    first, second = bench.add(1, 2, cpu_millis=2)
    assert (bench.queue.first(), first.is_prefilled, len(bench.queue)) == (large, True, 3)
    assert first.observation().state is TaskState.ASSIGNED
    assert bench.queue.follow(bench.attempt(9, 1, DONE)) is None, "none fits"
    assert bench.queue.follow(bench.attempt(9, 4, DONE)) is first
    assert (first.is_prefilled, second.is_prefilled, len(bench.queue)) == (False, True, 2)
    assert first.observation().state is TaskState.BUILDING, "its turn has come: it has a place here"
    failed = replace(DONE, task_state=TaskState.FAILED, failure=FailureKind.USER)
    assert bench.queue.follow(bench.attempt(9, 5, failed)) is large
    assert bench.queue.first() is second
    assert bench.told == []


@pytest.mark.parametrize(
    "after",
    [
        replace(DONE, task_state=TaskState.KILLED, stop=StopAsked("enough", 0)),
        AttemptState(AttemptPhase.ENDED, TaskState.PENDING, error="handed back"),
    ],
)
async def test_the_place_of_one_that_was_stopped_or_never_had_one_is_not_passed_on(after: AttemptState) -> None:
    bench = Bench()
    bench.add(0)
    assert bench.queue.follow(bench.attempt(9, 5, after)) is None
    assert (len(bench.queue), bench.told) == (1, [])


@pytest.mark.parametrize("fault", [FailureKind.WORKER, FailureKind.DEVICE, FailureKind.PREEMPTED])
async def test_after_a_fault_of_the_host_all_go_back(fault: FailureKind) -> None:
    bench = Bench()
    attempts = bench.add(0, 1)
    after = replace(DONE, task_state=TaskState.WORKER_FAILED, failure=fault)
    assert bench.queue.follow(bench.attempt(9, 5, after)) is None
    why = "handed back before its start: /u/j/9:0 failed because of the host"
    assert bench.told == [("0", why), ("1", why)]
    assert (len(bench.queue), bench.queue.first()) == (0, None)
    assert not any(attempt.is_prefilled for attempt in attempts)


async def test_the_controller_hears_when_half_has_begun_and_half_of_the_rest() -> None:
    bench = Bench()
    assert not bench.queue.is_news_patient(), "nothing waits: it is to send more"
    attempts = bench.add(*range(8))
    patient = []
    for attempt in attempts:
        bench.queue.remove(attempt)
        patient.append(bench.queue.is_news_patient())
    assert patient == [True, True, True, False, True, False, False, False]
    bench.add(0, 1)
    assert [bench.queue.is_news_patient() for _ in range(2)] == [True, True]


async def test_those_whose_turn_does_not_come_go_back_and_later_ones_wait_on(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(0.02)
    bench.add(0, 1)
    bench.queue.remove(bench.queue.first())  # type: ignore[arg-type]
    assert await bench.next() == ("1", "handed back before its start: it waited 0.02 s in the queue")
    assert len(bench.queue) == 0
    bench.add(2)
    assert (await bench.next())[0] == "2", "it is looked again for those that come later"
    loop, now = asyncio.get_running_loop(), [100.0]
    looks: list[tuple[float, Callable[[], None]]] = []
    with monkeypatch.context() as patch:
        patch.setattr(loop, "time", lambda: now[0])
        patch.setattr(loop, "call_at", lambda due, look: looks.append((due, look)) or "a timer")
        bench = Bench(5.0)
        bench.add(0)
        now[0] = 102.0
        bench.add(1)
        assert [due for due, _ in looks] == [105.0], "one look is enough for both"
        now[0] = 105.0
        looks.pop()[1]()
        assert [name for name, _ in bench.told] == ["0"]
        assert [due for due, _ in looks] == [107.0]
        bench.queue.remove(bench.queue.first())  # type: ignore[arg-type]
        looks.pop()[1]()
        assert (looks, len(bench.told)) == ([], 1), "nothing waits any more"
