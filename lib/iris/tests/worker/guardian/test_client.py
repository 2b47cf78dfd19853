"""The worker's side of its guardian: what it asks, and what each piece of news becomes."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from iris.domain.usage import Usage
from iris.worker.guardian.client import SILENCE_S, GuardianClient
from iris.worker.guardian.protocol import MAX_FRAME_BYTES, JsonFrameReader, encode
from iris.worker.isolation.plan import IsolationMode
from iris.worker.processes import CommonSpec, Exit, InheritedAttempt, ProcessSpec, StartFailed, StartFailure

HELLO = {"guardian": "g1", "pid": 5, "version": 1, "isolation": "bind", "descriptors": 1000}
SPEC = ProcessSpec("a", ("true",), {}, "/")
END = {"pid": 9, "code": 3, "signal": 0, "log_size": 40, "at_ms": 7}


class Seen:
    """Hears of one command."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_started(self, pid: int) -> None:
        self.heard.append(("started", pid))

    def on_refused(self, error: StartFailed) -> None:
        self.heard.append(("refused", str(error), error.exit_code, error.why))

    def on_usage(self, usage: Usage) -> None:
        del usage

    def on_log(self, size: int) -> None:
        self.heard.append(("log", size))

    def on_exit(self, exit: Exit) -> None:
        self.heard.append(exit)


class Transport(asyncio.WriteTransport):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Any] = []
        self.closed = False
        self._reader = JsonFrameReader(MAX_FRAME_BYTES)

    def write(self, data: Any) -> None:
        for message in self._reader.feed(bytes(data)):
            self.sent.append(message["do"])

    def close(self) -> None:
        self.closed = True


class Bench:
    def __init__(self, hello: dict[str, Any]) -> None:
        self.client = GuardianClient(JsonFrameReader(MAX_FRAME_BYTES), hello)
        self.transport = Transport()
        self.client.connection_made(self.transport)
        self.seen = Seen()

    def tell(self, *news: list[Any]) -> None:
        self.client.data_received(encode({"news": list(news)}))

    async def asked(self) -> list[Any]:
        await asyncio.sleep(0)
        sent, self.transport.sent = self.transport.sent, []
        return sent


Play = Callable[..., None]


def play(scenario: Callable[[Bench], Awaitable[None]], **hello: Any) -> None:
    async def run() -> None:
        await scenario(Bench({**HELLO, **hello}))

    asyncio.run(run())


def test_it_says_what_the_guardian_said_of_itself() -> None:
    async def scenario(bench: Bench) -> None:
        client = bench.client
        assert (client.guardian_id, client.pid, client.version) == ("g1", 5, 1)
        assert (client.isolation, client.most_live, client.live_count) == (IsolationMode.BIND, 200, 0)
        assert client.held() == []

    play(scenario)


@pytest.mark.parametrize(("descriptors", "most"), [(10, 1), (204, 1), (208, 2), (None, 206)])
def test_it_holds_as_many_as_there_are_descriptors_for(descriptors: int | None, most: int) -> None:
    async def scenario(bench: Bench) -> None:
        assert bench.client.most_live == most

    hello = {} if descriptors is None else {"descriptors": descriptors}
    fields = {name: value for name, value in HELLO.items() if name != "descriptors"}

    async def run() -> None:
        await scenario(Bench({**fields, **hello}))

    asyncio.run(run())


@pytest.mark.parametrize("name", [None, "of-the-future"])
def test_one_that_says_nothing_known_of_isolation_keeps_nothing_apart(name: str | None) -> None:
    async def scenario(bench: Bench) -> None:
        assert bench.client.isolation is IsolationMode.COPY

    play(scenario, isolation=name)


def test_what_is_asked_in_one_turn_goes_as_one_message() -> None:
    async def scenario(bench: Bench) -> None:
        command = bench.client.start(SPEC, bench.seen)
        command.terminate(50, {"why": "enough"})
        bench.client.contact(7)
        start = ["start", {"id": "a", "argv": ["true"], "env": {}, "cwd": "/"}]
        assert await bench.asked() == [[start, ["stop", "a", 50, {"why": "enough"}], ["contact", 7]]]
        bench.client.forget("a")
        assert await bench.asked() == [[["forget", "a"]]]

    play(scenario)


def test_each_piece_of_news_reaches_its_command() -> None:
    async def scenario(bench: Bench) -> None:
        bench.client.start(SPEC, bench.seen)
        assert bench.client.live_count == 1
        bench.tell(["started", "a", 9, 123], ["grew", "a", 20], ["started", "a", 9, 123])
        assert bench.seen.heard == [("started", 9), ("log", 20)]
        end = {**END, "tail": base64.b64encode(b"last").decode(), "lost": "l", "fenced": "f", "unmarked": "u"}
        bench.tell(["ended", "a", end])
        assert bench.seen.heard[2:] == [("log", 40), Exit(3, 0, b"last", "l", "f", 7, "u")]
        assert bench.client.live_count == 0

    play(scenario)


def test_an_end_without_a_start_is_told_after_the_start() -> None:
    async def scenario(bench: Bench) -> None:
        bench.client.start(SPEC, bench.seen)
        bench.tell(["ended", "a", {"code": 0, "signal": 9, "log_size": 0}])
        assert bench.seen.heard == [("started", 0), ("log", 0), Exit(0, 9)]

    play(scenario)


def test_what_many_have_in_common_is_told_once_to_a_guardian_that_understands_it() -> None:
    common = CommonSpec(("true",), {"A": "1"}, tail_bytes=9)
    specs = [ProcessSpec(name, (), {"B": name}, "/", note={"n": 1}, common=common) for name in "ab"]
    run = [["run", 1, name, "/", "", {"B": name}, {"n": 1}, []] for name in "ab"]

    async def understands(bench: Bench) -> None:
        for spec in specs:
            bench.client.start(spec, bench.seen)
        assert await bench.asked() == [[["common", 1, {"argv": ["true"], "env": {"A": "1"}, "tail_bytes": 9}], *run]]

    async def does_not(bench: Bench) -> None:
        bench.client.start(specs[0], bench.seen)
        ((start,),) = await bench.asked()
        assert start[0] == "start"
        assert (start[1]["argv"], start[1]["env"], start[1]["tail_bytes"]) == (["true"], {"A": "1", "B": "a"}, 9)

    play(understands, version=2)
    play(does_not)


def test_the_oldest_of_many_commons_is_dropped() -> None:
    async def scenario(bench: Bench) -> None:
        for number in range(65):
            common = CommonSpec((f"{number}",), {})
            bench.client.start(ProcessSpec(f"a{number}", (), {}, "/", common=common), bench.seen)
        ((*asked,),) = await bench.asked()
        assert [request for request in asked if request[0] == "drop"] == [["drop", 1]]
        assert [request[1] for request in asked if request[0] == "common"] == list(range(1, 66))

    play(scenario, version=2)


def test_an_end_in_short_is_an_end() -> None:
    async def scenario(bench: Bench) -> None:
        bench.client.start(SPEC, bench.seen)
        bench.tell(["over", "a", 9, 3, 0, 40, 7])
        assert bench.seen.heard == [("started", 9), ("log", 40), Exit(3, 0, at_ms=7)]
        assert bench.client.live_count == 0

    play(scenario)


@pytest.mark.parametrize(("why", "known"), [("fenced", StartFailure.FENCED), ("something new", StartFailure.HOST)])
def test_a_refusal_is_told_with_its_reason(why: str, known: StartFailure) -> None:
    async def scenario(bench: Bench) -> None:
        bench.client.start(SPEC, bench.seen)
        bench.tell(["refused", "a", why, "no such program", 127])
        assert bench.seen.heard == [("refused", "no such program", 127, known)]
        assert bench.client.live_count == 0

    play(scenario)


def test_what_is_not_known_is_passed_over() -> None:
    async def scenario(bench: Bench) -> None:
        bench.client.start(SPEC, bench.seen)
        bench.tell(["danced", "a"], ["grew", "none", 5], ["grew", "a"], [], ["ended", "a", 7], ["started", "a", "x"])
        bench.client.data_received(encode({"news": 7}) + encode({"more": 1}))
        assert bench.seen.heard == []

    play(scenario)


def test_a_tool_is_forgotten_when_it_has_ended() -> None:
    async def scenario(bench: Bench) -> None:
        bench.client.start(ProcessSpec("tool", ("true",), {}, "/", dies_with_worker=True), bench.seen)
        await bench.asked()
        bench.tell(["ended", "tool", END])
        assert await bench.asked() == [[["forget", "tool"]]]
        bench.tell(["ended", "tool", END])
        assert len([item for item in bench.seen.heard if isinstance(item, Exit)]) == 1

    play(scenario)


HELD = {"id": "a", "pid": 9, "log": "/log", "log_size": 5, "at_ms": 3, "note": {"x": 1}, "refused": None, "end": None}


class TestWhatIsHeld:
    def test_it_is_told_as_it_is_now(self) -> None:
        async def scenario(bench: Bench) -> None:
            assert bench.client.held() == [
                InheritedAttempt("a", 9, "/log", 5, 3, {"x": 1}),
                InheritedAttempt("b", 0, "", 0, 0, {}),
            ]
            bench.tell(["grew", "a", 50], ["started", "b", 11, 4], ["danced", "a", 1], ["grew", "a", "x"])
            assert bench.client.held() == [
                InheritedAttempt("a", 9, "/log", 50, 3, {"x": 1}),
                InheritedAttempt("b", 11, "", 0, 0, {}),
            ]
            assert bench.client.live_count == 0, "nobody has taken it up"

        play(scenario, held=[HELD, {"id": "b"}])

    def test_one_that_runs_is_taken_up_once_and_heard_from_then_on(self) -> None:
        async def scenario(bench: Bench) -> None:
            command = bench.client.take_up("a", bench.seen)
            assert (bench.client.held(), bench.client.live_count, bench.seen.heard) == ([], 1, [])
            bench.tell(["started", "a", 9, 1], ["grew", "a", 60])
            assert bench.seen.heard == [("log", 60)], "that it started is known"
            command.terminate(5)
            assert await bench.asked() == [[["stop", "a", 5, None]]]
            bench.tell(["ended", "a", END])
            assert bench.seen.heard[-1] == Exit(3, 0, at_ms=7)
            assert await bench.asked() == [], "its end is held until it is to be forgotten"

        play(scenario, held=[HELD])

    @pytest.mark.parametrize("how", ["with hello", "since", "in short"])
    def test_one_that_has_ended_meanwhile_is_told_at_once(self, how: str) -> None:
        async def scenario(bench: Bench) -> None:
            if how == "since":
                bench.tell(["ended", "a", END])
            elif how == "in short":
                bench.tell(["over", "a", 9, 3, 0, 40, 7])
            bench.client.take_up("a", bench.seen)
            assert bench.seen.heard == [("log", 40), Exit(3, 0, at_ms=7)]
            assert bench.client.live_count == 0

        play(scenario, held=[{**HELD, "end": END if how == "with hello" else None}])

    @pytest.mark.parametrize("how", ["with hello", "since"])
    def test_one_that_was_refused_meanwhile_is_told_at_once(self, how: str) -> None:
        refusal = ["command", "no such program", 127]

        async def scenario(bench: Bench) -> None:
            if how == "since":
                bench.tell(["refused", "a", *refusal])
            bench.client.take_up("a", bench.seen)
            assert bench.seen.heard == [("refused", "no such program", 127, StartFailure.COMMAND)]

        play(scenario, held=[{**HELD, "pid": 0, "refused": refusal if how == "with hello" else None}])


class TestTheEnd:
    def test_a_guardian_that_is_gone_is_known_and_asked_no_more(self, caplog: pytest.LogCaptureFixture) -> None:
        async def scenario(bench: Bench) -> None:
            assert not bench.client.lost.done()
            bench.client.connection_lost(ConnectionResetError("it was killed"))
            bench.client.connection_lost(None)
            assert bench.client.lost.done()
            bench.client.contact(1)
            assert await bench.asked() == []

        play(scenario)
        assert "the guardian (process 5) is gone: it was killed" in caplog.text

    def test_one_that_is_left_on_purpose_is_not_complained_about(self, caplog: pytest.LogCaptureFixture) -> None:
        async def scenario(bench: Bench) -> None:
            bench.client.close()
            assert bench.transport.closed
            bench.client.connection_lost(None)
            assert bench.client.lost.done()

        play(scenario)
        assert caplog.text == ""

    def test_it_ends_with_all_it_holds_when_it_is_told_to(self) -> None:
        async def scenario(bench: Bench) -> None:
            ending = asyncio.create_task(bench.client.finish())
            await asyncio.sleep(0)
            assert await bench.asked() == [[["finish", 0]]]
            assert not ending.done()
            bench.client.connection_lost(None)
            await asyncio.wait_for(ending, 20)

        play(scenario)


def test_a_guardian_that_says_nothing_after_a_start_does_not_answer() -> None:
    async def scenario(bench: Bench) -> None:
        now = 100.0
        asyncio.get_running_loop().time = lambda: now  # type: ignore[method-assign]
        now += SILENCE_S
        assert bench.client.trouble() == "", "nobody asked it for anything"
        for name in ("a", "b"):
            bench.client.start(ProcessSpec(name, ("true",), {}, "/"), bench.seen)
        now += SILENCE_S - 1
        assert bench.client.trouble() == "", "it may be slow"
        bench.tell(["started", "a", 7])
        now += SILENCE_S - 1
        assert bench.client.trouble() == "", "it has much to do, and says so"
        now += 1
        assert "(guardian, process 5) does not answer" in bench.client.trouble()
        bench.tell(["over", "b", 8, 0, 0, 0, 1])
        now += 1000
        assert bench.client.trouble() == "", "all that was asked for has begun"

    play(scenario)
