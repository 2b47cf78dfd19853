"""The queue of files: each is finished once, whatever becomes of workers, and charged only for what it did."""

from collections import Counter

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from marin.run.mapping.state import EndedWorker, FileQueue, FileReport, FileStatus, FileTask, FinishedFile, QueueRules

RULES = QueueRules(workers=3, max_retries_failure=1, max_retries_preemption=2)


def tasks(count: int, start: int = 0) -> list[FileTask]:
    return [FileTask(number, f"in/{number}", f"out/{number}") for number in range(start, start + count)]


def made(*numbers: int) -> list[FileReport]:
    return [FileReport(number, FileStatus.SUCCEEDED) for number in numbers]


def failed(number: int) -> list[FileReport]:
    return [FileReport(number, FileStatus.FAILED, "ValueError: no")]


def words(finished: tuple[FinishedFile, ...]) -> dict[int, str]:
    return {each.task.number: str(each.status) for each in finished}


def filled(count: int = 4, rules: QueueRules = RULES) -> FileQueue:
    """A queue that knows of one file done in a millisecond, so that it gives several at once."""
    queue = FileQueue(rules)
    queue.sync(tasks(count + 1), exhausted=True)
    (first,) = queue.exchange("w0", "a", [], 0).tasks
    assert first.number == 0
    return queue


def numbers(queue: FileQueue, worker: str, life: str, reports: list[FileReport] = []) -> list[int]:  # noqa: B006
    return [task.number for task in queue.exchange(worker, life, reports, 0.001 * len(reports)).tasks]


def test_batches_grow_with_the_speed_of_files_and_shrink_towards_the_end() -> None:
    queue = filled(40)
    assert numbers(queue, "w0", "a", made(0)) == list(range(1, 21)), "half of what is left, for one worker"
    assert numbers(queue, "w1", "b") == [21, 22, 23, 24, 25], "a quarter for each of two"
    assert len(filled(40).exchange("w0", "a", made(0), 60.0).tasks) == 1, "slow files are given one by one"
    assert not FileQueue(RULES).exchange("w0", "a", [], 0).stop, "the files may come yet"


def test_a_preempted_worker_is_no_failure_of_its_files_and_what_was_not_begun_no_charge() -> None:
    queue = filled(1, QueueRules(1, max_retries_failure=0, max_retries_preemption=1))
    # The job was started again in another process.
    assert numbers(queue, "w0", "b") == [1]
    assert numbers(queue, "w0", "b", made(1)) == [0]
    finished = queue.sync([], True, [EndedWorker("w0", preempted=True)]).finished
    assert words(finished) == {1: "succeeded", 0: "failed"}
    assert "preempted 2 times" in finished[1].error
    queue = filled(6, QueueRules(1, 0, 0))
    assert numbers(queue, "w0", "a", made(0)) == [1, 2, 3]
    assert numbers(queue, "w0", "a", made(1))[:2] == [2, 3]
    queue = filled(1)
    ended = [EndedWorker("w7"), EndedWorker("w0")]
    assert queue.sync([], True, ended).stillborn == ("w7",), "one that ended before it asked is told"


def test_a_failed_file_is_tried_again_after_the_others_and_then_failed() -> None:
    queue = filled(1)
    assert numbers(queue, "w0", "a", failed(0)) == [1]
    assert numbers(queue, "w0", "a", made(1)) == [0]
    assert queue.exchange("w0", "a", failed(0), 0.1).stop
    (one, other) = queue.sync([], True).finished
    assert words((one, other)) == {1: "succeeded", 0: "failed"}
    assert other.error == "ValueError: no"


def test_a_worker_that_crashes_with_several_files_blames_none_until_one_had_it_alone() -> None:
    queue = filled(6)
    batch = numbers(queue, "w0", "a", made(0))
    assert len(batch) == 3
    assert queue.sync([], True, [EndedWorker("w0")]).finished[0].task.number == 0
    assert [numbers(queue, f"w{n}", f"x{n}") for n in (1, 2, 3)] == [[1], [2], [3]], "each alone"
    queue.sync([], True, [EndedWorker("w1")])
    assert numbers(queue, "w4", "y") == [1], "again, as it may be tried twice"
    (only,) = queue.sync([], True, [EndedWorker("w4")]).finished
    assert (only.task.number, only.status) == (1, FileStatus.FAILED)
    assert "died" in only.error


def test_a_file_that_a_lost_process_has_made_after_all_is_not_given_out_again() -> None:
    queue = filled(6)
    assert numbers(queue, "w0", "a", made(0)) == [1, 2, 3]
    queue.sync([], True, [EndedWorker("w0")])
    assert queue.exchange("w0", "a", made(1, 2), 0.1).stop
    assert [numbers(queue, f"w{n}", f"x{n}") for n in (1, 2)] == [[3], [4]]


def test_the_report_of_a_process_that_was_thought_gone_counts_when_it_is_of_a_success() -> None:
    queue = filled(0)
    queue.sync([], True, [EndedWorker("w0")])
    assert numbers(queue, "w1", "b") == [0]
    assert queue.exchange("w0", "a", made(0), 0.1).stop
    assert words(queue.sync([], True).finished) == {0: "succeeded"}
    assert queue.exchange("w1", "b", failed(0), 0.1).stop
    assert queue.sync([], True).finished == ()


def test_an_output_that_an_earlier_try_made_was_made_by_this_run() -> None:
    queue = filled(1)
    queue.sync([], True, [EndedWorker("w0")])
    reports = [FileReport(number, FileStatus.EXISTED) for number in (0, 1)]
    first, second = numbers(queue, "w1", "b"), numbers(queue, "w2", "c")
    assert sorted(first + second) == [0, 1]
    queue.exchange("w1", "b", [each for each in reports if each.number in first], 0.1)
    queue.exchange("w2", "c", [each for each in reports if each.number in second], 0.1)
    assert words(queue.sync([], True).finished) == {0: "succeeded", 1: "existed"}


class AnyStory(RuleBasedStateMachine):
    """Workers that ask, report, are lost, restarted and ended in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = FileQueue(RULES)
        self.sent = 0
        self.exhausted = False
        self.has: dict[tuple[str, str], list[int]] = {("w0", "l0"): []}
        self.serial = 0
        self.finished: Counter[int] = Counter()
        self.wanted = 6
        self.succeeded: set[int] = set()

    @precondition(lambda self: not self.exhausted)
    @rule(share=st.floats(0, 1), last=st.booleans())
    def feed(self, share: float, last: bool) -> None:
        count = round(share * self.wanted)
        self._note(self.queue.sync(tasks(count, self.sent), last))
        self.sent += count
        self.exhausted = last

    def _note(self, update: object) -> None:
        self.wanted = update.wanted  # type: ignore[attr-defined]
        self.finished.update(each.task.number for each in update.finished)  # type: ignore[attr-defined]

    @rule(data=st.data(), seconds=st.floats(0.0001, 10))
    def work(self, data: st.DataObject, seconds: float) -> None:
        who = data.draw(st.sampled_from(sorted(self.has)))
        held = self.has[who]
        done = data.draw(st.integers(0, len(held)))
        reports = []
        for number in held[:done]:
            status = data.draw(st.sampled_from(list(FileStatus)))
            reports.append(FileReport(number, status, "bad" if status is FileStatus.FAILED else ""))
            if status is not FileStatus.FAILED:
                self.succeeded.add(number)
        answer = self.queue.exchange(*who, reports, seconds)
        given = [task.number for task in answer.tasks]
        assert not self.succeeded & set(given), "nothing is made again after its success was told"
        assert not (given and answer.stop)
        if answer.stop:
            del self.has[who]
            self._ensure_worker()
        else:
            self.has[who] = given

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """A backend starts a worker's job again; the former process may be alive after all."""
        worker, _ = data.draw(st.sampled_from(sorted(self.has)))
        self.serial += 1
        self.has[worker, f"l{self.serial}"] = []

    @rule(data=st.data(), preempted=st.booleans(), dead=st.booleans())
    def end(self, data: st.DataObject, preempted: bool, dead: bool) -> None:
        worker, _ = data.draw(st.sampled_from(sorted(self.has)))
        self._note(self.queue.sync([], self.exhausted, [EndedWorker(worker, preempted)]))
        if dead:
            for who in [who for who in self.has if who[0] == worker]:
                del self.has[who]
        self._ensure_worker()

    def _ensure_worker(self) -> None:
        self.serial += 1
        if len(self.has) < 3:
            self.has[f"w{self.serial}", f"l{self.serial}"] = []

    @invariant()
    def each_is_finished_once_and_not_too_many_are_held(self) -> None:
        assert all(count == 1 for count in self.finished.values())
        assert self.queue.held + len(self.finished) <= self.sent
        assert self.queue.held <= max(2 * RULES.workers, 10_000)

    def teardown(self) -> None:
        for worker in {who[0] for who in self.has}:
            self._note(self.queue.sync([], True, [EndedWorker(worker)]))
        reports: list[FileReport] = []
        for _ in range(10 * self.sent + 10):
            answer = self.queue.exchange("last", "last", reports, 0.001)
            if answer.stop:
                break
            reports = made(*(task.number for task in answer.tasks))
        self._note(self.queue.sync([], True))
        assert self.queue.held == 0
        assert sorted(self.finished) == list(range(self.sent))


TestAnyStory = AnyStory.TestCase
TestAnyStory.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
