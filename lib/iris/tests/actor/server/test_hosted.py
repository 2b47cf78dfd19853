"""An actor in its process: which calls run, how each ends, and when it is idle; and calls from the process itself."""

import contextvars
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from iris.actor.client.pending import PendingCall
from iris.actor.errors import ActorStopped
from iris.actor.server.hosted import HostedActor, HostedCall
from iris.actor.server.in_process import InProcessCaller
from iris.actor.transport.payload import NOTHING, dump_arguments, load
from rigging.errors import Conflict, InvalidRequest
from rigging.testing import eventually

ASKED: contextvars.ContextVar[str] = contextvars.ContextVar("ASKED", default="nobody")


class Untold(Exception):
    """Cannot be told as text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Work:
    """An instance whose calls wait for the test where it wants that."""

    label = "not a method"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.began: list[str] = []

    def wait(self, name: str = "") -> str:
        self.began.append(name)
        assert self.gate.wait(20)
        return name

    def add(self, first: int, second: int = 0) -> int:
        return first + second

    def asked(self) -> str:
        return ASKED.get()

    def fail(self) -> None:
        raise KeyError("no such shard")

    def fail_untold(self) -> None:
        raise Untold

    def fail_long(self) -> None:
        raise ValueError("é" * 50_000)

    def give(self) -> Any:
        return threading.Lock()

    def _hidden(self) -> None:
        raise AssertionError


class Bench:
    """A hosted actor and what it told."""

    def __init__(self, threads: int = 1) -> None:
        self.work = Work()
        self.ended: list[HostedCall] = []
        self.begun: list[HostedCall] = []
        self.actor = HostedActor("work", self.work, threads, self.begun.append, self._done)

    def _done(self, call: HostedCall) -> None:
        assert call.end is not None, "the end is there before it is told"
        self.ended.append(call)
        if isinstance(call.owner, InProcessCaller):
            call.owner.finish(call)

    def submit(self, method: str, *args: Any, size: int = 0) -> HostedCall:
        call = HostedCall(1, "work", method, size, self)
        call.data = dump_arguments(args, {}).whole
        self.actor.submit(call)
        return call

    def run(self, method: str, *args: Any, size: int = 0) -> HostedCall:
        call = self.submit(method, *args, size=size)
        eventually(lambda: call in self.ended, "it ends")
        return call


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.actor.start(contextvars.copy_context())
    yield made
    made.work.gate.set()
    made.actor.stop()


def test_a_result_is_in_the_data_of_its_end(bench: Bench) -> None:
    call = bench.run("add", 3, 4)
    assert call.end is not None
    assert (call.end.call, call.end.failed, call.end.error) == (1, False, "")
    assert load(call.end_data.whole) == 7
    assert call.data is None, "the arguments are not kept"


def test_what_a_method_raises_is_its_end_with_its_traceback(bench: Bench) -> None:
    end = bench.run("fail").end
    assert end is not None
    assert (end.failed, end.error) == (True, "KeyError: 'no such shard'")
    assert end.traceback.startswith("in the actor's process, method 'fail':\nTraceback (most recent call last)")
    assert end.traceback.endswith("KeyError: 'no such shard'\n")
    assert isinstance(load(bench.ended[0].end_data.whole), KeyError)


def test_errors_are_cut_and_those_without_a_text_are_told_by_their_class(bench: Bench) -> None:
    end = bench.run("fail_long").end
    assert end is not None
    assert len(end.error) == len(end.traceback) == 16_384
    assert end.error.startswith("ValueError: é")
    untold = bench.run("fail_untold").end
    assert untold is not None
    assert untold.error.startswith("Untold") or "Untold" in untold.error


def test_arguments_and_results_that_cannot_travel_are_told_as_such(bench: Bench) -> None:
    call = bench.run("give")
    assert call.end is not None
    assert call.end.failed
    assert call.end.error.startswith("the result of 'give' cannot be pickled: TypeError")
    assert call.end_data is NOTHING
    bad = HostedCall(2, "work", "add", 0, bench)
    bad.data = b"no pickle"
    bench.actor.submit(bad)
    eventually(lambda: bad in bench.ended, "it ends")
    assert bad.end is not None
    assert bad.end.error.startswith("the arguments cannot be unpickled by the actor: ")
    assert bad.end_data is NOTHING


def test_only_arguments_that_count_as_large_are_told_when_they_are_used(bench: Bench) -> None:
    bench.run("add", 1)
    assert bench.begun == []
    large = bench.run("add", 1, size=100)
    assert bench.begun == [large]


@pytest.mark.parametrize(
    ("name", "is_there"), [("add", True), ("_hidden", False), ("__init__", False), ("label", False), ("none", False)]
)
def test_public_methods_may_be_called(bench: Bench, name: str, is_there: bool) -> None:
    assert bench.actor.has_method(name) is is_there


def test_each_thread_has_the_context_of_the_start() -> None:
    bench = Bench(threads=2)
    ASKED.set("ann")
    try:
        bench.actor.start(contextvars.copy_context())
    finally:
        ASKED.set("nobody")
    assert load(bench.run("asked").end_data.whole) == "ann"
    bench.actor.stop()


def test_as_many_run_at_once_as_there_are_threads() -> None:
    bench = Bench(threads=2)
    bench.actor.start(contextvars.copy_context())
    for name in "abc":
        bench.submit("wait", name)
    eventually(lambda: len(bench.work.began) == 2, "two run")
    assert sorted(bench.work.began) == ["a", "b"]
    bench.work.gate.set()
    eventually(lambda: len(bench.ended) == 3, "all end")
    bench.actor.stop()
    assert bench.actor.wait_idle(20)


def test_what_has_not_begun_can_be_dropped_and_what_runs_cannot(bench: Bench) -> None:
    runs = bench.submit("wait", "first")
    eventually(lambda: runs.begun, "it runs")
    waits = bench.submit("wait", "second")
    assert not bench.actor.drop(runs)
    assert bench.actor.drop(waits)
    bench.work.gate.set()
    assert load(bench.run("add", 1).end_data.whole) == 1
    assert bench.work.began == ["first"]
    assert (waits.dropped, runs.dropped, waits.end) == (True, False, None)


def test_a_stopped_actor_runs_nothing_more_and_is_idle_when_the_last_call_ends(bench: Bench) -> None:
    runs = bench.submit("wait", "first")
    eventually(lambda: runs.begun, "it runs")
    late = bench.submit("add", 1)
    bench.actor.stop()
    assert not bench.actor.wait_idle(0.01)
    threading.Timer(0.05, bench.work.gate.set).start()
    assert bench.actor.wait_idle(20), "woken by the end and not by the time limit"
    assert (late.begun, late.end) == (False, None)


class TestFromItsOwnProcess:
    def call(self, method: str, *args: Any, deadline: float | None = None) -> PendingCall:
        return PendingCall(method, dump_arguments(args, {}), deadline, 0, lambda: None)

    def value(self, call: PendingCall) -> object:
        return call.future.result(20).value()

    def test_a_call_is_in_the_queue_when_it_is_made(self, bench: Bench) -> None:
        caller = InProcessCaller(bench.actor)
        assert caller.label == "'work'"
        calls = [self.call("add", number) for number in range(20)]
        for call in calls:
            caller.submit(call)
        assert [self.value(call) for call in calls] == list(range(20))
        failed = self.call("fail")
        caller.submit(failed)
        with pytest.raises(KeyError):
            self.value(failed)

    def test_what_is_no_method_is_refused_at_once(self, bench: Bench) -> None:
        call = self.call("_hidden")
        InProcessCaller(bench.actor).submit(call)
        with pytest.raises(InvalidRequest, match="actor 'work' has no method '_hidden'"):
            self.value(call)

    def test_a_call_that_is_taken_back_does_not_run(self, bench: Bench) -> None:
        caller = InProcessCaller(bench.actor)
        runs, back = self.call("wait", "first"), self.call("wait", "second")
        caller.submit(runs)
        caller.submit(back)
        back.fail(Conflict("taken back"))
        caller.cancel(back)
        caller.cancel(back)
        bench.work.gate.set()
        assert self.value(runs) == "first"
        after = self.call("add", 1)
        caller.submit(after)
        self.value(after)
        assert bench.work.began == ["first"]

    def test_a_stop_refuses_what_has_not_begun_and_what_comes_and_lets_the_rest_end(self, bench: Bench) -> None:
        caller = InProcessCaller(bench.actor)
        runs, waits, late = (self.call("wait", name) for name in ("runs", "waits", "late"))
        caller.submit(runs)
        eventually(lambda: bench.work.began == ["runs"], "it runs")
        caller.submit(waits)
        caller.stop()
        caller.submit(late)
        for call in (waits, late):
            with pytest.raises(ActorStopped, match="'wait' of actor 'work' did not run: the actor was shut down"):
                self.value(call)
        bench.work.gate.set()
        assert self.value(runs) == "runs"
