import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from iris.domain.states import TaskState
from iris.domain.usage import Usage
from iris.rpc.logformat import RECORD_OVERHEAD
from iris.worker.output.log_writer import LogWriter
from iris.worker.reports.logs import AttemptLog
from iris.worker.reports.outbox import ATTEMPT_LOG_BYTES, LOG_WINDOW_BYTES, MESSAGE_LOG_BYTES, ReportOutbox
from iris.worker.types import Observation


class Bench(ReportOutbox):
    """An outbox with the logs of some attempts."""

    def __init__(self, folder: Path) -> None:
        self.attempt_logs: dict[str, AttemptLog] = {}
        self.patient: list[bool] = []
        super().__init__(self.attempt_logs.get, lambda: bool(self.patient) and self.patient.pop(0))
        self._folder = folder
        self._writers: dict[str, LogWriter] = {}

    def write(self, attempt_id: str, size: int) -> AttemptLog:
        """Make the log of an attempt grow by records of `size` bytes in all."""
        log = self.attempt_logs.setdefault(attempt_id, AttemptLog(self._folder / attempt_id))
        writer = self._writers.setdefault(attempt_id, LogWriter(self._folder / attempt_id))
        while size > 0:
            step = min(size, 60_000)
            writer.feed(False, b"x" * (step - RECORD_OVERHEAD) + b"\n", 1)
            size -= step
        log.grew(writer.size)
        self.log_grew(attempt_id)
        return log

    def see(self, *attempt_ids: str, state: TaskState = TaskState.SUCCEEDED) -> None:
        for attempt_id in attempt_ids:
            self.observe(Observation(attempt_id, state, at_ms=1))

    def taken(self) -> tuple[list[str], list[tuple[str, int, int]]]:
        """Of which attempts an observation is told, and the pieces of logs: offset and length."""
        batch = self.take()
        logs = [(chunk.attempt_id, chunk.offset, len(chunk.data)) for chunk in batch.logs]
        return [item.attempt_id for item in batch.observations], logs


@pytest.fixture
def outbox(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def returns(awaitable: Callable[[], Awaitable[None]], seconds: float = 0.05) -> bool:
    """Whether something that can be awaited returns soon."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await awaitable()
        return True
    return False


def test_only_the_last_observation_is_sent_and_only_once(outbox: Bench) -> None:
    outbox.see("a", state=TaskState.RUNNING)
    outbox.see("a")
    assert [item.state for item in outbox.take().observations] == [TaskState.SUCCEEDED]
    assert not outbox.take()


def test_usage_is_told_once_unless_the_observation_has_it(outbox: Bench) -> None:
    outbox.used("a", Usage(cpu_ms=1))
    outbox.used("a", Usage(cpu_ms=2))
    assert outbox.take().usage == {"a": Usage(cpu_ms=2)}
    assert not outbox.take()
    for attempt_id, usage in (("a", Usage(cpu_ms=3)), ("b", None)):
        outbox.used(attempt_id, Usage(cpu_ms=2))
        outbox.observe(Observation(attempt_id, TaskState.SUCCEEDED, at_ms=1, usage=usage))
    assert outbox.take().usage == {"b": Usage(cpu_ms=2)}


def test_an_end_comes_with_the_last_bytes_of_its_log_and_a_beginning_at_once(outbox: Bench) -> None:
    log = outbox.write("a", ATTEMPT_LOG_BYTES + 5000)
    outbox.write("c", ATTEMPT_LOG_BYTES * 2)
    outbox.see("a", "b")
    outbox.see("c", state=TaskState.RUNNING)
    observed, logs = outbox.taken()
    assert (observed, logs[0]) == (["b", "c"], ("a", 0, ATTEMPT_LOG_BYTES))
    observed, logs = outbox.taken()
    assert (observed, logs[0]) == (["a"], ("a", ATTEMPT_LOG_BYTES, 5000))
    assert log.sent == log.size


def test_a_loud_log_lets_the_others_through(outbox: Bench) -> None:
    outbox.write("loud", LOG_WINDOW_BYTES)
    outbox.write("quiet", 100)
    assert {chunk.attempt_id for chunk in outbox.take().logs} == {"loud", "quiet"}


def test_without_acknowledgements_a_log_stops_at_its_window(outbox: Bench) -> None:
    log = outbox.write("a", LOG_WINDOW_BYTES + 100_000)
    for _ in range(100):
        outbox.take()
    assert log.sent == LOG_WINDOW_BYTES
    log.acknowledge(200_000)
    outbox.log_grew("a")
    while outbox.take():
        pass
    assert log.sent == log.size


async def test_what_does_not_fit_one_message_is_news_for_the_next(outbox: Bench) -> None:
    count = MESSAGE_LOG_BYTES // ATTEMPT_LOG_BYTES + 2
    logs = [outbox.write(f"log{index}", ATTEMPT_LOG_BYTES) for index in range(count)]
    sizes = []
    while await returns(outbox.wait):
        sizes.append(sum(size for _, _, size in outbox.taken()[1]))
    first, second = sizes
    assert 0 < second < first <= MESSAGE_LOG_BYTES
    assert all(log.sent == log.size for log in logs)
    outbox.see(*(f"a{number}" for number in range(4500)))
    sizes = []
    while await returns(outbox.wait):
        sizes.append(len(outbox.take().observations))
    assert sizes == [2000, 2000, 500]


def test_attempts_and_logs_that_are_gone_are_not_sent_and_hold_up_no_other(outbox: Bench) -> None:
    for name in "abc":
        outbox.write(name, 100)
        outbox.used(name, Usage(cpu_ms=1))
    outbox.see("a")
    outbox.forget("a")
    del outbox.attempt_logs["a"], outbox.attempt_logs["b"]
    batch = outbox.take()
    assert ([chunk.attempt_id for chunk in batch.logs], batch.observations, [*batch.usage]) == (["c"], [], ["b", "c"])
    assert not outbox.take()


async def test_last_words_are_delivered_before_a_worker_leaves(outbox: Bench) -> None:
    """Else the ends of its tasks, and what they printed last, go down with it."""
    outbox.delivered()
    assert await returns(outbox.wait_until_delivered, 10), "there is nothing to be said"
    outbox.write("a", ATTEMPT_LOG_BYTES + 5000)
    outbox.see("a", state=TaskState.WORKER_FAILED)
    assert not await returns(outbox.wait_until_delivered)
    outbox.take()
    assert not await returns(outbox.wait_until_delivered), "what was taken may not have been sent yet"
    outbox.delivered()
    assert not await returns(outbox.wait_until_delivered), "the end of the log and the end of the task are still here"
    outbox.take()
    outbox.delivered()
    assert await returns(outbox.wait_until_delivered, 10)
    outbox.see("a")
    outbox.delivered()  # of what was taken before
    assert not await returns(outbox.wait_until_delivered), "an observation alone is waited for, too"


async def test_that_a_worker_leaves_is_news_of_its_own(outbox: Bench) -> None:
    assert not outbox.leaving
    assert not await returns(outbox.wait)
    outbox.leave()
    assert await returns(outbox.wait, 10)
    assert outbox.leaving
    assert not outbox.take()
    outbox.clear()
    assert outbox.leaving, "the next session says so in its first words"


async def test_a_new_session_begins_without_the_news_of_the_former(outbox: Bench) -> None:
    """Its first words are the whole inventory: what is older would contradict it."""
    outbox.write("a", 100)
    outbox.used("a", Usage(cpu_ms=1))
    outbox.see("a")
    outbox.clear()
    assert not await returns(outbox.wait)
    assert not outbox.take()


class TestPatience:
    """While the worker has more to begin, ends go together, which costs the controller less."""

    @pytest.fixture(autouse=True)
    def company(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("iris.worker.reports.outbox.COMPANY_S", 0.02)

    async def test_patient_news_come_together_after_a_moment(self, outbox: Bench) -> None:
        for _ in range(2):  # the next wait for theirs
            outbox.patient = [True, True]
            outbox.see("a", "b")
            assert not await returns(outbox.wait, 0)
            assert await returns(outbox.wait, 10)
            assert outbox.taken()[0] == ["a", "b"]

    async def test_with_the_first_that_is_not_patient_all_go_at_once(self, outbox: Bench) -> None:
        outbox.patient = [True, False, True]
        outbox.see("a", "b", "c")  # of the last it is told already: nobody is asked
        assert await returns(outbox.wait, 0)
        assert (len(outbox.take().observations), outbox.patient) == (3, [True])
        assert not await returns(outbox.wait), "nothing comes after that"
