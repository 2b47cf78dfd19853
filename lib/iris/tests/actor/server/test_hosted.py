import contextvars
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fray.testing.waiting import eventually
from iris.actor.client.pending import PendingCall
from iris.actor.errors import ActorStopped
from iris.actor.server.hosted import HostedActor, HostedCall
from iris.actor.server.in_process import InProcessCaller
from iris.actor.transport.payload import NOTHING, dump_arguments, load
from rigging.errors import Conflict, InvalidRequest

ASKED: contextvars.ContextVar[str] = contextvars.ContextVar("ASKED", default="nobody")


class Unspeakable(Exception):
    """Fails when anything is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __reduce__(self) -> Any:
        raise RuntimeError("no pickle")


# From Python 3.13 on the traceback module gets along with it.
UNSPEAKABLE = f"{__name__}.Unspeakable: <exception" if sys.version_info >= (3, 13) else "Unspeakable (it cannot be told"


class Trap:
    """A descriptor that raises, whoever asks."""

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def __get__(self, instance: object, owner: type) -> Any:
        raise self._error("not on this machine")


class Work:
    """An instance whose calls wait for the test where it wants that."""

    label = "not a method"
    broken = Trap(RuntimeError)
    leaves = Trap(SystemExit)

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

    def raises(self, error: BaseException) -> None:
        raise error

    def raises_unspeakably(self) -> None:
        raise Unspeakable

    def raises_a_lock(self) -> None:
        raise ValueError(threading.Lock())

    def give(self) -> Any:
        return threading.Lock()

    def _hidden(self) -> None:
        raise AssertionError


class Bench:
    """A hosted actor and what it told."""

    def __init__(self) -> None:
        self.work = Work()
        self.ended: list[HostedCall] = []
        self.begun: list[HostedCall] = []
        self.actor = HostedActor("work", self.work, 1, self.begun.append, self._done)

    def _done(self, call: HostedCall) -> None:
        assert call.end is not None, "the end is there before it is told"
        self.ended.append(call)
        if isinstance(call.owner, InProcessCaller):
            call.owner.finish(call)

    def submit(self, method: str, *args: Any, size: int = 0, data: bytes = b"") -> HostedCall:
        call = HostedCall(1, "work", method, size, self)
        call.data = data or dump_arguments(args, {}).whole
        self.actor.submit(call)
        return call

    def run(self, method: str, *args: Any, **options: Any) -> HostedCall:
        call = self.submit(method, *args, **options)
        eventually(lambda: call in self.ended, "it ends")
        return call


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    ASKED.set("ann")
    made.actor.start(contextvars.copy_context())
    ASKED.set("nobody")
    yield made
    made.work.gate.set()
    made.actor.stop()


def test_a_result_is_in_the_data_of_its_end(bench: Bench) -> None:
    call = bench.run("add", 3, 4)
    assert call.end is not None
    assert (call.end.call, call.end.failed, call.end.error) == (1, False, "")
    assert load(call.end_data.whole) == 7
    assert call.data is None, "the arguments are not kept"
    assert load(bench.run("asked").end_data.whole) == "ann", "the thread has the context of the start"


@pytest.mark.parametrize(
    ("method", "args", "error", "kind"),
    [
        ("raises", (KeyError("no such shard"),), "KeyError: 'no such shard'", KeyError),
        ("raises", (SystemExit(4),), "SystemExit: 4", SystemExit),
        ("raises", (SyntaxError("bad", ("f", 1, "3", "text")),), "SyntaxError (it cannot be told as text", SyntaxError),
        ("raises_unspeakably", (), UNSPEAKABLE, None),
        ("raises_a_lock", (), "ValueError: <unlocked _thread.lock", None),
        ("give", (), "the result of 'give' cannot be pickled: TypeError", None),
        ("add", ("x",), "TypeError: can only concatenate str", TypeError),
    ],
    ids=["error", "exit", "syntax", "unspeakable", "unpicklable", "unpicklable result", "arguments"],
)
def test_what_a_method_raises_is_its_end_with_its_traceback(
    bench: Bench, method: str, args: Any, error: str, kind: type[BaseException] | None
) -> None:
    call = bench.run(method, *args)
    assert call.end is not None
    assert call.end.failed
    assert call.end.error.startswith(error)
    assert call.end.traceback.startswith(f"in the actor's process, method {method!r}:\n")
    if kind is None:
        assert call.end_data is NOTHING
    else:
        assert call.end.traceback.rstrip().endswith(call.end.error.splitlines()[-1])
        assert type(load(call.end_data.whole)) is kind
    assert load(bench.run("add", 1).end_data.whole) == 1, "the others go on"


def test_long_errors_are_cut(bench: Bench) -> None:
    end = bench.run("raises", ValueError("é" * 50_000 + "\udce9")).end
    assert end is not None
    assert len(end.error) == len(end.traceback) == 16_384
    assert end.error.startswith("ValueError: é")
    assert end.traceback.endswith("é?\n")


def test_arguments_that_cannot_be_unpickled_are_told_as_such(bench: Bench) -> None:
    bad = bench.run("add", data=b"no pickle")
    assert bad.end is not None
    assert bad.end.error.startswith("the arguments cannot be unpickled by the actor: ")
    assert bad.end_data is NOTHING


def test_only_arguments_that_count_as_large_are_told_when_they_are_used(bench: Bench) -> None:
    bench.run("add", 1)
    assert bench.begun == []
    large = bench.run("add", 1, size=100)
    assert bench.begun == [large]


@pytest.mark.parametrize("name", ["add", "_hidden", "__init__", "label", "none", "broken", "leaves"])
def test_public_methods_may_be_called(bench: Bench, name: str) -> None:
    assert bench.actor.has_method(name) is (name == "add")


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
    @pytest.fixture
    def caller(self, bench: Bench) -> InProcessCaller:
        return InProcessCaller(bench.actor)

    def call(self, caller: InProcessCaller, method: str, *args: Any) -> PendingCall:
        made = PendingCall(method, dump_arguments(args, {}), None, 0, lambda: None)
        caller.submit(made)
        return made

    def value(self, call: PendingCall) -> object:
        return call.future.result(20).value()

    def test_a_call_is_in_the_queue_when_it_is_made(self, caller: InProcessCaller) -> None:
        assert caller.label == "'work'"
        calls = [self.call(caller, "add", number) for number in range(20)]
        assert [self.value(call) for call in calls] == list(range(20))
        with pytest.raises(KeyError):
            self.value(self.call(caller, "raises", KeyError("x")))
        with pytest.raises(InvalidRequest, match="actor 'work' has no method '_hidden'"):
            self.value(self.call(caller, "_hidden"))

    def test_a_call_that_is_taken_back_does_not_run(self, bench: Bench, caller: InProcessCaller) -> None:
        runs, back = self.call(caller, "wait", "first"), self.call(caller, "wait", "second")
        back.fail(Conflict("taken back"))
        caller.cancel(back)
        caller.cancel(back)
        bench.work.gate.set()
        assert self.value(runs) == "first"
        self.value(self.call(caller, "add", 1))
        assert bench.work.began == ["first"]

    def test_a_stop_refuses_what_has_not_begun_and_what_comes_and_lets_the_rest_end(
        self, bench: Bench, caller: InProcessCaller
    ) -> None:
        runs = self.call(caller, "wait", "runs")
        eventually(lambda: bench.work.began == ["runs"], "it runs")
        waits = self.call(caller, "wait", "waits")
        caller.stop()
        for call in (waits, self.call(caller, "wait", "late")):
            with pytest.raises(ActorStopped, match="'wait' of actor 'work' did not run: the actor was shut down"):
                self.value(call)
        bench.work.gate.set()
        assert self.value(runs) == "runs"
