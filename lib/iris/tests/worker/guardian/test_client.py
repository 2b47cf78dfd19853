import asyncio
import base64
from typing import Any

import pytest

from iris.domain.usage import Usage
from iris.worker.guardian.client import SILENCE_S, GuardianClient
from iris.worker.guardian.protocol import MAX_FRAME_BYTES, JsonFrameReader, encode
from iris.worker.isolation.plan import IsolationMode
from iris.worker.processes import CommonSpec, Exit, InheritedAttempt, ProcessSpec, StartFailed, StartFailure

HELLO = {"guardian": "g1", "pid": 5, "isolation": "bind", "descriptors": 1000}
SPEC = ProcessSpec("a", ("true",), {}, "/")
END = {"pid": 9, "code": 3, "signal": 0, "log_size": 40, "at_ms": 7}
HELD = {"id": "a", "pid": 9, "log": "/log", "log_size": 5, "at_ms": 3, "note": {"x": 1}, "refused": None, "end": None}


class Bench(asyncio.WriteTransport):
    """A client, the connection that it writes to, and a listener that keeps what it hears."""

    def __init__(self, *held: dict[str, Any], **hello: Any) -> None:
        super().__init__()
        self.client = GuardianClient(JsonFrameReader(MAX_FRAME_BYTES), {**HELLO, "held": list(held), **hello})
        self.client.connection_made(self)
        self.sent: list[Any] = []
        self.closed = False
        self.heard: list[Any] = []
        self._reader = JsonFrameReader(MAX_FRAME_BYTES)

    def write(self, data: Any) -> None:
        self.sent += [message["do"] for message in self._reader.feed(bytes(data))]

    def close(self) -> None:
        self.closed = True

    def on_started(self, pid: int) -> None:
        self.heard.append(("started", pid))

    def on_refused(self, error: StartFailed) -> None:
        self.heard.append(("refused", str(error), error.exit_code, error.why))

    def on_usage(self, usage: Usage) -> None:
        self.heard.append(usage)

    def on_log(self, size: int) -> None:
        self.heard.append(("log", size))

    def on_exit(self, exit: Exit) -> None:
        self.heard.append(exit)

    def tell(self, *news: list[Any]) -> None:
        self.client.data_received(encode({"news": list(news)}))

    async def asked(self) -> list[Any]:
        await asyncio.sleep(0)
        sent, self.sent = self.sent, []
        return sent


async def test_it_says_what_the_guardian_said_of_itself() -> None:
    client = Bench().client
    assert (client.guardian_id, client.pid) == ("g1", 5)
    assert (client.isolation, client.live_count, client.held()) == (IsolationMode.BIND, 0, [])


@pytest.mark.parametrize(("descriptors", "most"), [(10, 1), (204, 1), (208, 2), (1000, 200)])
async def test_it_holds_as_many_as_there_are_descriptors_for(descriptors: int, most: int) -> None:
    assert Bench(descriptors=descriptors).client.most_live == most


async def test_what_is_asked_in_one_turn_goes_as_one_message() -> None:
    bench = Bench()
    command = bench.client.start(SPEC, bench)
    command.terminate(50, {"why": "enough"})
    bench.client.contact(7)
    start = ["start", {"id": "a", "argv": ["true"], "env": {}, "cwd": "/"}]
    assert await bench.asked() == [[start, ["stop", "a", 50, {"why": "enough"}], ["contact", 7]]]
    bench.client.forget("a")
    assert await bench.asked() == [[["forget", "a"]]]


STARTED = ("started", 9)
LONG_END = {**END, "tail": base64.b64encode(b"last").decode(), "lost": "l", "fenced": "f", "unmarked": "u"}
RUNNING = [["started", "a", 9, 123], ["grew", "a", 20], ["started", "a", 9, 123]]


@pytest.mark.parametrize(
    ("news", "heard"),
    [
        ([*RUNNING, ["ended", "a", END]], [STARTED, ("log", 20), ("log", 40), Exit(3, 0, at_ms=7)]),
        ([["ended", "a", LONG_END]], [STARTED, ("log", 40), Exit(3, 0, b"last", "l", "f", 7, "u")]),
        ([["ended", "a", {"code": 0, "signal": 9, "log_size": 0}]], [("started", 0), ("log", 0), Exit(0, 9)]),
        ([["over", "a", 9, 3, 0, 40, 7]], [STARTED, ("log", 40), Exit(3, 0, at_ms=7)]),
        ([["refused", "a", "fenced", "no", 127]], [("refused", "no", 127, StartFailure.FENCED)]),
        ([["refused", "a", "something new", "no", 126]], [("refused", "no", 126, StartFailure.HOST)]),
    ],
    ids=["whole", "all of an end", "without a start", "in short", "refused", "refused for something new"],
)
async def test_each_piece_of_news_reaches_its_command_until_its_end(news: list[list[Any]], heard: list[Any]) -> None:
    bench = Bench()
    bench.client.start(SPEC, bench)
    assert bench.client.live_count == 1
    bench.tell(*news)
    assert (bench.heard, bench.client.live_count) == (heard, 0)


async def test_what_many_have_in_common_is_told_once() -> None:
    common = CommonSpec(("true",), {"A": "1"}, tail_bytes=9)
    specs = [ProcessSpec(name, (), {"B": name}, "/", note={"n": 1}, common=common) for name in "ab"]
    run = [["run", 1, name, "/", "", {"B": name}, {"n": 1}, []] for name in "ab"]
    bench = Bench()
    for spec in specs:
        bench.client.start(spec, bench)
    assert await bench.asked() == [[["common", 1, {"argv": ["true"], "env": {"A": "1"}, "tail_bytes": 9}], *run]]


async def test_the_oldest_of_many_commons_is_dropped() -> None:
    bench = Bench()
    commons = [CommonSpec((f"{number}",), {}) for number in range(65)]
    for number, common in enumerate([*commons, commons[0]]):
        bench.client.start(ProcessSpec(f"a{number}", (), {}, "/", common=common), bench)
    ((*asked,),) = await bench.asked()
    assert [request for request in asked if request[0] == "drop"] == [["drop", 1], ["drop", 2]]
    assert [request[1] for request in asked if request[0] == "common"] == list(range(1, 67)), "it is told again"


async def test_what_is_not_known_is_passed_over() -> None:
    bench = Bench()
    bench.client.start(SPEC, bench)
    bench.tell(["danced", "a"], ["grew", "none", 5], ["grew", "a"], [], ["ended", "a", 7], ["started", "a", "x"])
    bench.client.data_received(encode({"news": 7}) + encode({"more": 1}))
    assert bench.heard == []


async def test_a_tool_is_forgotten_when_it_has_ended() -> None:
    bench = Bench()
    bench.client.start(ProcessSpec("tool", ("true",), {}, "/", dies_with_worker=True), bench)
    await bench.asked()
    bench.tell(["ended", "tool", END])
    assert await bench.asked() == [[["forget", "tool"]]]
    bench.tell(["ended", "tool", END])
    assert len([item for item in bench.heard if isinstance(item, Exit)]) == 1


class TestWhatIsHeld:
    async def test_it_is_told_as_it_is_now(self) -> None:
        bench = Bench(HELD, {"id": "b"})
        a, b = InheritedAttempt("a", 9, "/log", 5, 3, {"x": 1}), InheritedAttempt("b", 0, "", 0, 0, {})
        assert bench.client.held() == [a, b]
        bench.tell(["grew", "a", 50], ["started", "b", 11, 4], ["danced", "a", 1], ["grew", "a", "x"])
        a, b = InheritedAttempt("a", 9, "/log", 50, 3, {"x": 1}), InheritedAttempt("b", 11, "", 0, 0, {})
        assert bench.client.held() == [a, b]
        assert bench.client.live_count == 0, "nobody has taken it up"

    async def test_one_that_runs_is_taken_up_once_and_heard_from_then_on(self) -> None:
        bench = Bench(HELD)
        command = bench.client.take_up("a", bench)
        assert (bench.client.held(), bench.client.live_count, bench.heard) == ([], 1, [])
        bench.tell(["started", "a", 9, 1], ["grew", "a", 60])
        assert bench.heard == [("log", 60)], "that it started is known"
        command.terminate(5)
        assert await bench.asked() == [[["stop", "a", 5, None]]]
        bench.tell(["ended", "a", END])
        assert bench.heard[-1] == Exit(3, 0, at_ms=7)
        assert await bench.asked() == [], "its end is held until it is to be forgotten"

    @pytest.mark.parametrize(
        ("fields", "since"),
        [({"end": END}, []), ({}, ["ended", "a", END]), ({}, ["over", "a", 9, 3, 0, 40, 7])],
        ids=["with hello", "since", "in short"],
    )
    async def test_one_that_has_ended_meanwhile_is_told_at_once(self, fields: dict[str, Any], since: list[Any]) -> None:
        bench = Bench({**HELD, **fields})
        bench.tell(since)
        bench.client.take_up("a", bench)
        assert (bench.heard, bench.client.live_count) == ([("log", 40), Exit(3, 0, at_ms=7)], 0)

    @pytest.mark.parametrize("with_hello", [True, False])
    async def test_one_that_was_refused_meanwhile_is_told_at_once(self, with_hello: bool) -> None:
        refusal = ["command", "no such program", 127]
        bench = Bench({**HELD, "pid": 0, "refused": refusal if with_hello else None})
        if not with_hello:
            bench.tell(["refused", "a", *refusal])
        bench.client.take_up("a", bench)
        assert bench.heard == [("refused", "no such program", 127, StartFailure.COMMAND)]


class TestTheEnd:
    async def test_a_guardian_that_is_gone_is_known_and_asked_no_more(self, caplog: pytest.LogCaptureFixture) -> None:
        bench = Bench()
        assert not bench.client.lost.done()
        bench.client.connection_lost(ConnectionResetError("it was killed"))
        bench.client.connection_lost(None)
        assert bench.client.lost.done()
        bench.client.contact(1)
        assert await bench.asked() == []
        assert "the guardian (process 5) died: it was killed" in caplog.text

    async def test_one_that_is_left_or_ended_on_purpose_is_no_trouble(self, caplog: pytest.LogCaptureFixture) -> None:
        left, ended = Bench(), Bench()
        left.client.close()
        assert left.closed
        ending = asyncio.create_task(ended.client.finish())
        await asyncio.sleep(0)
        assert await ended.asked() == [[["finish", 0]]]
        assert not ending.done()
        for bench in (left, ended):
            bench.client.connection_lost(None)
            assert bench.client.lost.done()
        await asyncio.wait_for(ending, 20)
        assert caplog.text == ""


async def test_a_guardian_that_says_nothing_after_a_start_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    bench = Bench()
    now += SILENCE_S
    assert bench.client.trouble() == "", "nobody asked it for anything"
    for name in ("a", "b"):
        bench.client.start(ProcessSpec(name, ("true",), {}, "/"), bench)
    now += SILENCE_S - 1
    assert bench.client.trouble() == "", "it may be slow"
    bench.tell(["started", "a", 7])
    now += SILENCE_S - 1
    assert bench.client.trouble() == "", "it has much to do, and says so"
    now += 1
    told = "the process that starts its tasks (guardian, process 5) does not answer"
    assert bench.client.trouble() == told
    bench.tell(["over", "b", 8, 0, 0, 0, 1])
    now += 1000
    assert bench.client.trouble() == "", "all that was asked for has begun"
