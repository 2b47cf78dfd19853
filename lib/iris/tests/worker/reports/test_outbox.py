import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from iris.domain.states import TaskState
from iris.rpc.logformat import RECORD_OVERHEAD
from iris.worker.guardian.log_writer import LogWriter
from iris.worker.reports.logs import AttemptLog
from iris.worker.reports.outbox import ATTEMPT_LOG_BYTES, LOG_WINDOW_BYTES, MESSAGE_LOG_BYTES, ReportOutbox
from iris.worker.types import Observation

Logs = dict[str, AttemptLog]


@pytest.fixture
def logs() -> Logs:
    return {}


@pytest.fixture
def outbox(logs: Logs) -> ReportOutbox:
    return ReportOutbox(logs.get)


@pytest.fixture
def write(outbox: ReportOutbox, logs: Logs, tmp_path: Path) -> Callable[[str, int], AttemptLog]:
    """Make the log of an attempt grow by one record of `size` bytes in all."""
    writers: dict[str, LogWriter] = {}

    def grow(attempt_id: str, size: int) -> AttemptLog:
        log = logs.setdefault(attempt_id, AttemptLog(tmp_path / attempt_id))
        writer = writers.setdefault(attempt_id, LogWriter(tmp_path / attempt_id))
        while size > 0:
            step = min(size, 60_000)
            writer.feed(False, b"x" * (step - RECORD_OVERHEAD) + b"\n", 1)
            size -= step
        log.grew(writer.size)
        outbox.log_grew(attempt_id)
        return log

    return grow


Write = Callable[[str, int], AttemptLog]


def seen(attempt_id: str, state: TaskState) -> Observation:
    return Observation(attempt_id, state, at_ms=1)


def test_only_the_last_observation_is_sent_and_only_once(outbox: ReportOutbox) -> None:
    outbox.observe(seen("a", TaskState.RUNNING))
    outbox.observe(seen("a", TaskState.SUCCEEDED))
    assert outbox.take().observations == [seen("a", TaskState.SUCCEEDED)]
    assert not outbox.take()


def test_an_end_comes_with_the_last_bytes_of_its_log(outbox: ReportOutbox, write: Write) -> None:
    log = write("a", ATTEMPT_LOG_BYTES + 5000)
    outbox.observe(seen("a", TaskState.FAILED))
    outbox.observe(seen("b", TaskState.SUCCEEDED))
    first = outbox.take()
    assert [observation.attempt_id for observation in first.observations] == ["b"]
    second = outbox.take()
    assert [observation.attempt_id for observation in second.observations] == ["a"]
    assert [(chunk.offset, len(chunk.data)) for chunk in first.logs + second.logs] == [
        (0, ATTEMPT_LOG_BYTES),
        (ATTEMPT_LOG_BYTES, 5000),
    ]
    assert log.sent == log.size


def test_that_a_task_runs_does_not_wait_for_its_log(outbox: ReportOutbox, write: Write) -> None:
    write("a", ATTEMPT_LOG_BYTES * 2)
    outbox.observe(seen("a", TaskState.RUNNING))
    assert [observation.state for observation in outbox.take().observations] == [TaskState.RUNNING]


def test_a_loud_log_lets_the_others_through(outbox: ReportOutbox, write: Write) -> None:
    write("loud", LOG_WINDOW_BYTES)
    write("quiet", 100)
    assert {chunk.attempt_id for chunk in outbox.take().logs} == {"loud", "quiet"}


def test_without_acknowledgements_a_log_stops_at_its_window(outbox: ReportOutbox, write: Write) -> None:
    log = write("a", LOG_WINDOW_BYTES + 100_000)
    for _ in range(100):
        outbox.take()
    assert log.sent == LOG_WINDOW_BYTES
    log.acknowledge(200_000)
    outbox.log_grew("a")
    while outbox.take():
        pass
    assert log.sent == log.size


def test_what_does_not_fit_one_message_is_news_for_the_next(outbox: ReportOutbox, write: Write) -> None:
    count = MESSAGE_LOG_BYTES // ATTEMPT_LOG_BYTES + 2
    logs = [write(f"log{index}", ATTEMPT_LOG_BYTES) for index in range(count)]

    async def next_message() -> int:
        async with asyncio.timeout(10):
            await outbox.wait()
        return sum(len(chunk.data) for chunk in outbox.take().logs)

    first, second = asyncio.run(next_message()), asyncio.run(next_message())
    assert 0 < second < first <= MESSAGE_LOG_BYTES
    assert all(log.sent == log.size for log in logs)
    assert not outbox.take()


def test_forgotten_attempts_are_not_sent(outbox: ReportOutbox, write: Write, logs: Logs) -> None:
    write("a", 100)
    outbox.observe(seen("a", TaskState.SUCCEEDED))
    del logs["a"]
    outbox.forget("a")
    assert not outbox.take()


Within = Callable[..., bool]


@pytest.fixture
def within() -> Iterator[Within]:
    """Whether something that can be awaited returns soon."""
    with asyncio.Runner() as runner:

        def returns(awaitable: Callable[[], Awaitable[None]], seconds: float = 0.05) -> bool:
            async def wait() -> bool:
                try:
                    async with asyncio.timeout(seconds):
                        await awaitable()
                except TimeoutError:
                    return False
                return True

            return runner.run(wait())

        yield returns


def test_last_words_are_delivered_before_a_worker_leaves(within: Within, outbox: ReportOutbox, write: Write) -> None:
    """Else the ends of its tasks, and what they printed last, go down with it."""
    outbox.delivered()
    assert within(outbox.wait_until_delivered, 10), "there is nothing to be said"
    write("a", ATTEMPT_LOG_BYTES + 5000)
    outbox.observe(seen("a", TaskState.WORKER_FAILED))
    assert not within(outbox.wait_until_delivered)
    outbox.take()
    assert not within(outbox.wait_until_delivered), "what was taken may not have been sent yet"
    outbox.delivered()
    assert not within(outbox.wait_until_delivered), "the end of the log and the end of the task are still here"
    outbox.take()
    outbox.delivered()
    assert within(outbox.wait_until_delivered, 10)


def test_an_observation_alone_is_waited_for_too(within: Within, outbox: ReportOutbox) -> None:
    outbox.delivered()
    outbox.observe(seen("a", TaskState.KILLED))
    assert not within(outbox.wait_until_delivered)
    outbox.delivered()  # of what was taken before
    assert not within(outbox.wait_until_delivered)
    outbox.take()
    outbox.delivered()
    assert within(outbox.wait_until_delivered, 10)


def test_that_a_worker_leaves_is_news_of_its_own(within: Within, outbox: ReportOutbox) -> None:
    assert not outbox.leaving
    assert not within(outbox.wait)
    outbox.leave()
    assert within(outbox.wait, 10)
    assert outbox.leaving
    assert not outbox.take()
    outbox.clear()
    assert outbox.leaving, "the next session says so in its first words"


def test_a_new_session_begins_without_the_news_of_the_former(
    within: Within, outbox: ReportOutbox, write: Write
) -> None:
    """Its first words are the whole inventory: what is older would contradict it."""
    write("a", 100)
    outbox.observe(seen("a", TaskState.RUNNING))
    outbox.clear()
    assert not within(outbox.wait)
    assert not outbox.take()


def test_a_great_many_observations_go_in_several_messages(within: Within, outbox: ReportOutbox) -> None:
    for number in range(4500):
        outbox.observe(seen(f"a{number}", TaskState.SUCCEEDED))
    sizes = []
    while within(outbox.wait):
        sizes.append(len(outbox.take().observations))
    assert sum(sizes) == 4500
    assert len(sizes) > 1
    assert max(sizes) <= 2000


def test_a_log_that_is_gone_holds_up_no_other(outbox: ReportOutbox, write: Write, logs: Logs) -> None:
    for name in "abc":
        write(name, 100)
    del logs["a"], logs["b"]
    assert [chunk.attempt_id for chunk in outbox.take().logs] == ["c"]
    assert not outbox.take()


class TestPatience:
    """While the worker has more to begin, ends go together, which costs the controller less."""

    @pytest.fixture(autouse=True)
    def company(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("iris.worker.reports.outbox.COMPANY_S", 0.02)

    def test_patient_news_come_together_after_a_moment(self, within: Within, logs: Logs) -> None:
        outbox = ReportOutbox(logs.get, lambda: True)

        async def observed() -> None:
            for name in "ab":
                outbox.observe(seen(name, TaskState.SUCCEEDED))

        async def not_yet() -> None:
            async with asyncio.timeout(0):
                await outbox.wait()

        assert within(observed)
        assert not within(not_yet)
        assert within(outbox.wait, 10)
        assert [item.attempt_id for item in outbox.take().observations] == ["a", "b"]
        assert within(observed)
        assert within(outbox.wait, 10), "the next wait for theirs"

    def test_with_the_first_that_is_not_patient_all_go_at_once(
        self, within: Within, logs: Logs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        patient = [True, False]
        outbox = ReportOutbox(logs.get, lambda: patient.pop(0))

        async def observed() -> None:
            outbox.observe(seen("a", TaskState.SUCCEEDED))
            outbox.observe(seen("b", TaskState.SUCCEEDED))
            outbox.observe(seen("c", TaskState.SUCCEEDED))  # it is told of already: nobody is asked
            async with asyncio.timeout(0):
                await outbox.wait()

        assert within(observed, 10)
        assert len(outbox.take().observations) == 3
        assert not within(outbox.wait), "nothing comes after that"
