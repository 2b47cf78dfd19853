"""Conversations of a worker with controllers that are played, message by message, and when it has another."""

import asyncio
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from iris.domain.resources import Resources
from iris.domain.states import FailureKind, TaskState
from iris.rpc.auth import Unauthenticated
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.generated import iris_pb2_grpc
from iris.rpc.key_proof import check_proof
from iris.rpc.protocol import PROTOCOL_VERSION
from iris.worker.connection.agent import Agent, AgentEnd
from iris.worker.connection.session import AgentSession, GrpcControllerLink, Incompatible, SessionEnd, WorkerIdentity
from iris.worker.connection.socket_call import SocketCall
from iris.worker.host.disk_offer import CapacityOffer
from iris.worker.reports.outbox import ReportOutbox
from iris.worker.types import Observation
from rigging.errors import Conflict, NotFound, Unavailable
from rigging.timing import ExponentialBackoff

IDENTITY = WorkerIdentity("w1", "i1", Resources(4000, 1, 2), {"zone": "a"})
MB = 2**20
SEEN = Observation("/u/job/0:0", TaskState.RUNNING, 7)


class Supervisor:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.outbox = ReportOutbox(lambda name: None)
        self.contacts: list[int] = []
        self.contact = self.contacts.append
        self.resumed: list[dict[str, int]] = []
        self.changes: list[Any] = []
        self.acknowledged: list[tuple[str, int]] = []
        self.acknowledge_log = lambda name, offset: self.acknowledged.append((name, offset))
        self.live_count = self.reserved_disk = 0
        self.why_stuck = ""
        self.trouble = lambda: self.why_stuck
        self.inventory = lambda: [SEEN]
        self.now_ms = lambda: 7777
        self.is_resumed, self.is_asked = asyncio.Event(), asyncio.Event()

    def resume_logs(self, offsets: dict[str, int]) -> None:
        self.resumed.append(offsets)
        self.is_resumed.set()

    def apply(self, change: Any) -> None:
        self.changes.append(change)
        self.is_asked.set()


class Call:
    """The controller's end."""

    def __init__(self) -> None:
        self.sent: list[pb.WorkerMessage] = []
        self.wrote = asyncio.Event()
        self._down: asyncio.Queue[Any] = asyncio.Queue()
        self.cancelled = False
        self.half_closed = False
        self.ended = (grpc.StatusCode.UNAVAILABLE, "going down")

    def say(self, message: Any) -> None:
        self._down.put_nowait(message)

    async def write(self, message: pb.WorkerMessage) -> None:
        self.sent.append(message)
        self.wrote.set()

    async def read(self) -> Any:
        message = await self._down.get()
        if isinstance(message, Exception):
            raise message
        return message

    async def code(self) -> grpc.StatusCode:
        return self.ended[0]

    async def details(self) -> str:
        return self.ended[1]

    async def done_writing(self) -> None:
        self.half_closed = True

    def cancel(self) -> None:
        self.cancelled = True


def welcome(**fields: Any) -> pb.ControllerMessage:
    return pb.ControllerMessage(welcome=pb.Welcome(**{"protocol_version": PROTOCOL_VERSION, **fields}))


GOODBYE = pb.ControllerMessage(goodbye=pb.Goodbye(reason="enough"))


class Bench:
    def __init__(self) -> None:
        self.call, self.supervisor, self.now = Call(), Supervisor(), 1000
        self.session = AgentSession(self.call, IDENTITY, self.supervisor, lambda: self.now)  # type: ignore[arg-type]

    def begin(self, **fields: Any) -> "asyncio.Task[SessionEnd]":
        self.call.say(welcome(**fields))
        return asyncio.create_task(self.session.run())

    async def patient(self) -> "asyncio.Task[SessionEnd]":
        """A session in which no beat is due for ten minutes of the clock."""
        task = self.begin(heartbeat_interval_ms=600_000)
        await self.supervisor.is_resumed.wait()
        return task

    async def news(self, seconds: int = 0, seen: Observation = SEEN) -> pb.WorkerMessage:
        """The message by which the next observation goes, so much later."""
        self.now += seconds * 1000
        self.supervisor.outbox.observe(seen)
        return await self.next_sent(len(self.call.sent) + 1)

    async def next_sent(self, count: int) -> pb.WorkerMessage:
        while len(self.call.sent) < count:
            self.call.wrote.clear()
            await asyncio.wait_for(self.call.wrote.wait(), 20)
        return self.call.sent[count - 1]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_it_says_who_it_is_and_goes_on_from_what_the_controller_has(bench: Bench) -> None:
    others = asyncio.all_tasks()
    bench.supervisor.outbox.observe(SEEN)  # part of the inventory
    task = bench.begin(log_offsets=[pb.LogAck(attempt_id="/u/job/0:0", offset=5)])
    bench.call.say(GOODBYE)
    assert await task is SessionEnd.RECONNECT
    # What still wrote would take news from the next session's outbox.
    assert asyncio.all_tasks() == others
    hello = bench.call.sent[0].hello
    assert (hello.worker_id, hello.instance_id, hello.protocol_version) == ("w1", "i1", PROTOCOL_VERSION)
    assert [item.attempt_id for item in hello.inventory] == ["/u/job/0:0"]
    assert not bench.call.sent[0].leaving
    assert bench.session.welcomed
    assert (bench.supervisor.contacts, bench.supervisor.resumed) == ([1000], [{"/u/job/0:0": 5}])
    assert bench.call.cancelled


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (grpc.aio.EOF, Unavailable, "the controller refused the session: going down"),
        (GOODBYE, Conflict, "did not answer Hello with Welcome"),
        (welcome(protocol_version=PROTOCOL_VERSION + 2), Incompatible, "this worker speaks protocol version"),
        (asyncio.InvalidStateError("RPC already finished."), Unavailable, "the session ended: RPC already finished."),
    ],
)
async def test_no_welcome_is_an_error(bench: Bench, answer: Any, error: type[Exception], words: str) -> None:
    bench.call.say(answer)
    with pytest.raises(error, match=words):
        await bench.session.run()
    assert bench.call.cancelled
    assert not bench.session.welcomed
    assert bench.supervisor.contacts == []


async def test_a_session_that_breaks_off_is_told_with_its_reason(bench: Bench) -> None:
    task = bench.begin()
    bench.call.say(grpc.aio.EOF)
    with pytest.raises(Unavailable, match="the controller ended the session: UNAVAILABLE going down"):
        await task


async def test_wishes_are_carried_out_and_the_revision_is_told(bench: Bench) -> None:
    task = bench.begin()
    acks = [pb.LogAck(attempt_id="/u/a/0:0", offset=9), pb.LogAck(attempt_id="/u/b/0:0", offset=8)]
    bench.call.say(pb.ControllerMessage(desired=pb.Desired(revision=4, forget=["/u/c/0:0"]), log_acks=acks))
    await bench.supervisor.is_asked.wait()
    (change,) = bench.supervisor.changes
    assert (change.revision, change.forget) == (4, ("/u/c/0:0",))
    assert bench.supervisor.acknowledged == [("/u/a/0:0", 9), ("/u/b/0:0", 8)]
    bench.supervisor.outbox.observe(SEEN)
    news = await bench.next_sent(2)
    assert news.applied_revision == 4
    assert [item.attempt_id for item in news.observations] == ["/u/job/0:0"]
    # By this the controller tells what the worker's clock is off.
    assert [message.sent_at_ms for message in bench.call.sent] == [7777, 7777]
    bench.call.say(GOODBYE)
    await task


class TestBeats:
    async def test_they_come_by_themselves_twice_in_an_interval(self, bench: Bench) -> None:
        task = bench.begin(heartbeat_interval_ms=40)
        began = asyncio.get_running_loop().time()
        for number in (1, 2, 3):
            bench.now += 20
            message = await bench.next_sent(number + 1)
            assert message.beat == number
            assert (list(message.observations), message.sent_at_ms) == ([], 0)
        assert asyncio.get_running_loop().time() - began >= 0.05
        bench.call.say(GOODBYE)
        await task

    async def test_news_carry_one_when_it_is_time_and_acknowledged_ones_are_contact(self, bench: Bench) -> None:
        task = await bench.patient()
        beats = []
        for now in (2000, 2001, 301_999, 302_000, 700_000):
            bench.now = now
            beats.append((await bench.news()).beat)
        assert beats == [1, 0, 0, 2, 3]
        for acknowledged in (2, 1, 9, 3):
            bench.call.say(pb.ControllerMessage(beat_ack=acknowledged))
        bench.call.say(GOODBYE)
        await task
        assert bench.supervisor.contacts == [1000, 302_000, 700_000], "each once, and none that is older"


async def test_trouble_is_told_with_a_beat_once_and_again_when_it_is_over(bench: Bench) -> None:
    bench.supervisor.why_stuck = "no guardian"
    await bench.patient()
    told = []
    for trouble in ("no guardian", "no guardian", "", ""):
        bench.supervisor.why_stuck = trouble
        message = await bench.news(300)
        told.append(message.trouble if message.HasField("trouble") else None)
    assert told == ["no guardian", None, "", None]


async def test_what_is_offered_is_told_at_the_beginning_and_with_a_beat_once_it_is_another(bench: Bench) -> None:
    free = [100 * MB]
    offer = CapacityOffer(Resources(4000, 1, 50 * MB), lambda: free[0])
    bench.session = AgentSession(bench.call, IDENTITY, bench.supervisor, lambda: bench.now, offer)  # type: ignore[arg-type]
    await bench.patient()
    assert bench.call.sent[0].hello.capacity.disk_bytes == 100 * MB
    told = []
    # What attempts were promised may be what is lacking: then nothing is known to have changed.
    for seconds, now_free, reserved in ((300, 100, 0), (0, 200, 0), (300, 200, 0), (300, 60, 150), (300, 60, 0)):
        free[0], bench.supervisor.reserved_disk = now_free * MB, reserved * MB
        message = await bench.news(seconds)
        told.append(message.capacity.disk_bytes // MB if message.HasField("capacity") else None)
    assert told == [None, None, 200, None, 60]
    free[0] = 1 * MB
    message = await bench.news(0, replace(SEEN, state=TaskState.WORKER_FAILED, failure=FailureKind.DISK))
    assert message.capacity.disk_bytes == 1 * MB, "with the news of a full disk, not later"


async def test_that_it_leaves_is_said_at_once_and_the_last_words_are_delivered(bench: Bench) -> None:
    task = await bench.patient()
    bench.supervisor.outbox.leave()
    assert (await bench.next_sent(2)).leaving
    bench.supervisor.outbox.observe(SEEN)
    leaving = asyncio.create_task(bench.session.leave())
    assert (await bench.next_sent(3)).observations
    await leaving
    assert bench.call.half_closed
    bench.call.say(GOODBYE)
    await task


async def test_why_its_host_ends_is_told_at_once_after_a_break(bench: Bench) -> None:
    bench.supervisor.outbox.leave("spot")
    task = await bench.patient()
    told = await bench.next_sent(2)
    assert (told.leaving, told.host_ends, told.ending) == (True, True, "spot")
    bench.call.say(GOODBYE)
    await task


class ControllerLink:
    def __init__(self, address: str, token: str, call: Call) -> None:
        self.address, self.token, self._call = address, token, call
        self.closed = False

    def open_session(self) -> Call:
        return self._call

    async def fetch(self, digests: list[str]) -> Any:
        yield digests[0], 0, b"data", True

    async def close(self) -> None:
        self.closed = True


class Agents:
    """An agent whose controllers are played: `answers` is what each session hears, or the error of looking for one."""

    def __init__(self, *answers: Any, orphan_timeout_s: float = 60.0) -> None:
        self.answers = list(answers)
        self.sockets: list[str] = []
        self.token = "token"
        self.links: list[ControllerLink] = []
        self.supervisor = Supervisor()
        self.now = 0.0
        self.agent = Agent(
            IDENTITY, self._resolve, orphan_timeout_s, ExponentialBackoff(initial=0.001, maximum=0.002, jitter=0.0),
            self._monotonic, self._open, lambda: 0,
        )  # fmt: skip

    def _monotonic(self) -> float:
        self.now += 1.0
        return self.now

    def _resolve(self) -> ControllerAddress:
        if not self.answers:
            raise NotFound("no controller")
        if isinstance(self.answers[0], Exception):
            raise self.answers.pop(0)
        return ControllerAddress(f"c:{len(self.links)}", self.token, self.sockets.pop(0) if self.sockets else "")

    def _open(self, place: ControllerAddress) -> ControllerLink:
        call = Call()
        for message in self.answers.pop(0):
            call.say(message)
        self.links.append(ControllerLink(place.address, place.token, call))
        return self.links[-1]

    async def run(self) -> AgentEnd:
        return await asyncio.wait_for(self.agent.run(self.supervisor), 60)  # type: ignore[arg-type]


EXIT = pb.ControllerMessage(goodbye=pb.Goodbye(exit=True))


class TestAgents:
    async def test_it_comes_again_until_it_is_told_to_exit(self, caplog: pytest.LogCaptureFixture) -> None:
        away = [Unavailable("away"), Unavailable("away"), Unavailable("gone")]
        agents = Agents(*away, [welcome(), GOODBYE], [welcome(), EXIT])
        assert agents.agent.address() == ""
        with pytest.raises(Unavailable, match="there is no connection to the controller"):
            [chunk async for chunk in agents.agent.fetch(["d"])]
        assert await agents.run() is AgentEnd.GOODBYE
        assert [link.address for link in agents.links] == ["c:0", "c:1"]
        assert [link.closed for link in agents.links] == [True, False], "one connection at a time"
        assert agents.agent.address() == "c:1"
        assert [chunk async for chunk in agents.agent.fetch(["d"])] == [("d", 0, b"data", True)]
        await agents.agent.close()
        assert agents.links[1].closed
        told = [record.getMessage() for record in caplog.records if "open a session" in record.getMessage()]
        assert told == [
            "cannot open a session with the controller: away",
            "cannot open a session with the controller: gone",
        ]

    async def test_after_a_session_it_comes_again_soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However long it has waited before: many controllers are away for a moment only."""
        waited: list[str] = []
        monkeypatch.setattr(ExponentialBackoff, "reset", lambda backoff: waited.append("from the start"))
        monkeypatch.setattr(ExponentialBackoff, "next_interval", lambda backoff: waited.append("longer") or 0.0)
        assert await Agents(*[Unavailable("away")] * 2, [welcome(), GOODBYE], [welcome(), EXIT]).run()
        assert waited == ["longer", "longer", "from the start", "longer"]

    async def test_without_a_socket_none_is_tried(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tried: list[str] = []

        async def connect(path: str, token: str) -> Call:
            tried.append(path)
            raise OSError("nobody listens")

        monkeypatch.setattr(SocketCall, "connect", connect)
        agents = Agents([welcome(), GOODBYE], [welcome(), EXIT])
        agents.sockets = ["", "/run/c"]
        assert await agents.run() is AgentEnd.GOODBYE
        assert tried == ["/run/c"], "and where nobody listens there is the network"

    @pytest.mark.parametrize(
        ("first", "token", "live", "end"),
        [
            ([welcome(protocol_version=PROTOCOL_VERSION + 2)], "token", 0, AgentEnd.INCOMPATIBLE),
            ([Unauthenticated("revoked")], "c:w1:secret", 0, AgentEnd.REFUSED),
            # What runs is not given up for a controller that knows too little.
            ([Unauthenticated("revoked")], "c:w1:secret", 1, AgentEnd.GOODBYE),
            ([Unauthenticated("revoked")], "w:w1:mac", 0, AgentEnd.GOODBYE),  # one that starts anew makes another one
        ],
    )
    async def test_one_that_will_never_serve_is_let_be(self, first: Any, token: str, live: int, end: AgentEnd) -> None:
        agents = Agents(first, [welcome(), EXIT])
        agents.token, agents.supervisor.live_count = token, live
        assert await agents.run() is end
        assert len(agents.answers) == (0 if end is AgentEnd.GOODBYE else 1)

    async def test_alone_for_too_long_it_gives_up_unless_something_runs(self) -> None:
        agents = Agents([welcome(), GOODBYE], orphan_timeout_s=10.0)
        agents.supervisor.live_count = 1

        def ends() -> None:
            agents.supervisor.live_count = 0

        asyncio.get_running_loop().call_later(0.1, ends)
        assert await agents.run() is AgentEnd.ORPHANED
        assert agents.now > 20.0, "the time in which something ran does not count"

    @pytest.mark.parametrize("end", [grpc.aio.EOF, asyncio.InvalidStateError("RPC already finished.")])
    async def test_one_that_leaves_does_not_come_again(self, end: Any, caplog: pytest.LogCaptureFixture) -> None:
        agents = Agents([welcome()])
        running = asyncio.create_task(agents.run())
        await agents.supervisor.is_resumed.wait()
        agents.supervisor.outbox.observe(SEEN)
        await agents.agent.leave()
        call = agents.links[0]._call
        assert call.half_closed
        call.say(end)
        assert await running is AgentEnd.LEFT
        assert "no session" not in caplog.text, "the controller hangs up on whoever leaves"

    async def test_last_words_without_a_session_go_through_the_next_one(self) -> None:
        agents = Agents(*[Unavailable("broken")] * 3, [welcome()])
        running = asyncio.create_task(agents.run())
        await asyncio.wait_for(agents.agent.leave(), 20)
        call = agents.links[0]._call
        assert call.half_closed
        call.say(grpc.aio.EOF)
        assert await running is AgentEnd.LEFT


class Silent(iris_pb2_grpc.BlobServiceServicer):
    """Takes every request, and answers none."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def FetchBlobs(self, request: Any, context: Any) -> Any:
        self.asked.set()
        await asyncio.Event().wait()
        yield


@pytest.mark.parametrize("is_replaced", [True, False])
async def test_a_fetch_that_is_given_up_ends_and_one_whose_channel_went_is_tried_again(is_replaced: bool) -> None:
    server, blobs = grpc.aio.server(), Silent()
    iris_pb2_grpc.add_BlobServiceServicer_to_server(blobs, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    link = GrpcControllerLink(ControllerAddress(f"127.0.0.1:{port}", "token"))

    async def fetch() -> None:
        _ = [chunk async for chunk in link.fetch(["d"])]

    fetching = asyncio.create_task(fetch())
    await asyncio.wait_for(blobs.asked.wait(), 20)
    if is_replaced:
        await link.close()
        with pytest.raises(Unavailable, match="the connection to the controller was replaced"):
            await fetching
    else:
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        await link.close()
    await server.stop(0)


async def test_a_worker_with_a_key_answers_the_challenge_before_anything_else() -> None:
    key, bench = Ed25519PrivateKey.generate(), Bench()
    identity = replace(IDENTITY, key=key)
    session = AgentSession(bench.call, identity, bench.supervisor, lambda: bench.now)  # type: ignore[arg-type]
    for message in (pb.ControllerMessage(challenge=b"nonce"), welcome(), GOODBYE):
        bench.call.say(message)
    assert await session.run() is SessionEnd.RECONNECT
    hello, answer = bench.call.sent[:2]
    check_proof(hello.hello.public_key, "w1", b"nonce", answer.proof)
    assert key.private_bytes_raw() not in b"".join(sent.SerializeToString() for sent in bench.call.sent)
