"""How a worker comes to its guardian: whom it takes, whom it leaves, and what it says of one that it cannot have."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iris.worker.guardian import client as module
from iris.worker.guardian.client import GuardianClient, attach
from iris.worker.guardian.launch import GuardianPaths, build_of
from iris.worker.guardian.protocol import NEWEST_VERSION, OLDEST_VERSION, JsonFrameReader, encode
from rigging.errors import Conflict, Unavailable

BUILD = build_of(Path(module.__file__).parent)
HELLO: dict[str, Any] = {"guardian": "g1", "pid": 5, "version": 2, "build": BUILD, "held": []}
END = "the end"


def hello(**fields: Any) -> bytes:
    return encode({"hello": {**HELLO, **fields}})


class Bench:
    """Guardians that are played: each connection is answered by the next of `answers`, piece by piece."""

    def __init__(self, root: Path) -> None:
        self.paths = GuardianPaths(root)
        self.answers: list[list[bytes]] = []
        self.heard: list[list[Any]] = []
        self.is_silent = asyncio.Event()
        """The last connection is over."""

    async def listen(self) -> asyncio.Server:
        with self.paths.short_name() as name:
            return await asyncio.start_unix_server(self._serve, name)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard: list[Any] = []
        self.heard.append(heard)
        answer = self.answers.pop(0)
        frames = JsonFrameReader()
        while data := await reader.read(65536):
            for message in frames.feed(data):
                heard.append(message)
                for piece in answer if "hello" in message else ():
                    writer.write(piece)
                    for _ in range(5):
                        await asyncio.sleep(0)
                if message == {"do": [["finish", 0]]}:
                    writer.close()
        heard.append(END)
        self.is_silent.set()
        writer.close()

    async def attach(self, patience_s: float = 20.0, **options: Any) -> GuardianClient:
        return await attach(self.paths, patience_s=patience_s, **options)


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., None]:
    def run(scenario: Callable[[Bench], Awaitable[None]], *answers: list[bytes]) -> None:
        async def inner() -> None:
            bench = Bench(tmp_path)
            bench.answers = list(answers)
            server = await bench.listen() if answers else None
            await asyncio.wait_for(scenario(bench), 60)
            if server is not None:
                server.close()

        asyncio.run(inner())

    return run


Play = Callable[..., None]


def test_it_says_who_it_is_and_takes_what_comes_with_the_answer(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        client = await bench.attach()
        assert bench.heard == [
            [{"hello": {"versions": [OLDEST_VERSION, NEWEST_VERSION], "pid": os.getpid(), "role": "worker"}}]
        ]
        ((held,),) = [client.held()]
        assert (client.guardian_id, held.owner, held.log_size) == ("g1", "a", 70)
        client.contact(7)
        client.close()
        await bench.is_silent.wait()
        assert bench.heard[0][1:] == [END]

    answer = hello(held=[{"id": "a", "log_size": 5}]) + encode({"news": [["grew", "a", 70]]})
    play(scenario, [answer[:3], answer[3:50], answer[50:]])


def test_one_of_another_version_is_not_asked_again(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        with pytest.raises(Conflict, match="cannot be used: too old; end it or use the release it is of"):
            await bench.attach()
        await bench.is_silent.wait()
        assert len(bench.heard) == 1

    play(scenario, [encode({"refused": "too old", "versions": [7, 9]})])


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (encode({"refused": "process 7 is its worker"}), "process 7 is its worker"),
        (encode({"welcome": 1}), "the guardian did not begin with hello"),
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
    ],
)
def test_one_that_does_not_take_it_now_is_asked_again_and_each_time_let_go(play: Play, answer: bytes, why: str) -> None:
    async def scenario(bench: Bench) -> None:
        assert (await bench.attach()).guardian_id == "g1"
        assert [heard[1:] for heard in bench.heard] == [[END], []], "what it does not use it does not keep"
        bench.answers = [[answer]] * 1000
        with pytest.raises(Unavailable, match=f"does not take this worker: {why}"):
            await bench.attach(patience_s=0.06)

    play(scenario, [answer], [hello()])


def test_one_of_another_release_that_holds_nothing_is_replaced(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        assert (await bench.attach()).guardian_id == "new"
        assert bench.heard[0][1:] == [{"do": [["finish", 0]]}, END]

    play(scenario, [hello(build="another")], [hello(guardian="new")])


def test_one_of_another_release_that_holds_something_is_kept(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        client = await bench.attach()
        assert [held.owner for held in client.held()] == ["a"]
        assert len(bench.heard[0]) == 1, "it is told nothing"

    play(scenario, [hello(build="another", held=[{"id": "a"}])])


class TestStarts:
    def test_one_is_started_where_there_is_none(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            bench.answers = [[hello()]]
            loop = asyncio.get_running_loop()
            starts: list[asyncio.Server] = []

            def start() -> Any:
                starts.append(asyncio.run_coroutine_threadsafe(bench.listen(), loop).result(20))
                return SimpleNamespace(wait=lambda: 0)

            client = await bench.attach(start=start)
            assert (client.guardian_id, len(starts)) == ("g1", 1)
            starts[0].close()

        play(scenario)

    def test_one_that_cannot_start_is_told_of_in_its_own_last_words(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            bench.paths.log.write_text("of an earlier start\n")
            words = ["Traceback\n", "OSError: no room\n"]

            def start() -> Any:
                with bench.paths.log.open("a") as log:
                    log.writelines(words)
                return SimpleNamespace(wait=lambda: 1)

            told = r"the guardian did not start: OSError: no room \(its log: .*guardian\.log\)"
            with pytest.raises(Unavailable, match=told):
                await bench.attach(start=start)
            words.clear()
            with pytest.raises(Unavailable, match=r"the guardian did not start \(its log"):
                await bench.attach(start=start)

        play(scenario)
