import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iris.worker.guardian import client as module
from iris.worker.guardian.client import GuardianClient, attach
from iris.worker.guardian.launch import GuardianPaths, build_of
from iris.worker.guardian.protocol import VERSION, JsonFrameReader, encode
from rigging.errors import Conflict, Unavailable

BUILD = build_of(Path(module.__file__).parent)
END = "the end"


def hello(**fields: Any) -> bytes:
    return encode({"hello": {"guardian": "g1", "pid": 5, "isolation": "bind", "build": BUILD, "held": [], **fields}})


class Bench:
    """Guardians that are played: each connection is answered by the next of `answers`, piece by piece."""

    def __init__(self, root: Path) -> None:
        self.paths = GuardianPaths(root)
        self.answers: list[list[bytes]] = []
        self.heard: list[list[Any]] = []
        self.is_silent = asyncio.Event()
        """The last connection is over."""

    async def listen(self, *answers: list[bytes]) -> asyncio.Server:
        self.answers = list(answers)
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

    async def attach(self, start: Callable[[], Any] | None = None, patience_s: float = 20.0) -> GuardianClient:
        return await attach(self.paths, patience_s=patience_s, start=start)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_it_says_who_it_is_and_takes_what_comes_with_the_answer(bench: Bench) -> None:
    answer = hello(held=[{"id": "a", "log_size": 5}]) + encode({"news": [["grew", "a", 70]]})
    await bench.listen([answer[:3], answer[3:50], answer[50:]])
    client = await bench.attach()
    own = {"version": VERSION, "pid": os.getpid(), "role": "worker"}
    assert bench.heard == [[{"hello": own}]]
    (held,) = client.held()
    assert (client.guardian_id, held.owner, held.log_size) == ("g1", "a", 70)
    client.contact(7)
    client.close()
    await bench.is_silent.wait()
    assert bench.heard[0][1:] == [END]


async def test_one_of_another_version_is_not_asked_again(bench: Bench) -> None:
    await bench.listen([encode({"refused": "too old", "version": 9})])
    with pytest.raises(Conflict, match="incompatible: too old; stop it, or start the worker with its release"):
        await bench.attach()
    await bench.is_silent.wait()
    assert len(bench.heard) == 1


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (encode({"refused": "process 7 is its worker"}), "process 7 is its worker"),
        (encode({"welcome": 1}), "the guardian's first message was not a hello"),
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
    ],
)
async def test_one_that_does_not_take_it_now_is_let_go_and_asked_again(bench: Bench, answer: bytes, why: str) -> None:
    await bench.listen([answer], [hello()])
    assert (await bench.attach()).guardian_id == "g1"
    assert [heard[1:] for heard in bench.heard] == [[END], []], "what it does not use it does not keep"
    bench.answers = [[answer]] * 1000
    with pytest.raises(Unavailable, match=f"does not accept this worker: {why}"):
        await bench.attach(patience_s=0.06)


async def test_one_that_is_suspended_does_not_answer(bench: Bench) -> None:
    await bench.listen([])
    with pytest.raises(Unavailable, match="does not accept this worker: it does not answer"):
        await bench.attach(patience_s=0.06)


async def test_one_of_another_release_is_replaced_when_it_holds_nothing_and_kept_when_it_does(bench: Bench) -> None:
    await bench.listen([hello(build="another")], [hello(guardian="new")])
    assert (await bench.attach()).guardian_id == "new"
    assert bench.heard[0][1:] == [{"do": [["finish", 0]]}, END]
    bench.answers = [[hello(build="another", held=[{"id": "a"}])]]
    assert [held.owner for held in (await bench.attach()).held()] == ["a"]
    assert len(bench.heard[-1]) == 1, "it is told nothing"


async def test_one_is_started_where_there_is_none(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    starts: list[asyncio.Server] = []

    def start() -> Any:
        starts.append(asyncio.run_coroutine_threadsafe(bench.listen([hello()]), loop).result(20))
        return SimpleNamespace(wait=lambda: 0)

    client = await bench.attach(start)
    assert (client.guardian_id, len(starts)) == ("g1", 1)


async def test_one_that_cannot_start_is_told_of_in_its_own_last_words(bench: Bench) -> None:
    bench.paths.log.write_text("of an earlier start\n")
    words = ["Traceback\n", "OSError: no room\n"]

    def start() -> Any:
        with bench.paths.log.open("a") as log:
            log.writelines(words)
        return SimpleNamespace(wait=lambda: 1)

    told = r"the guardian did not start: OSError: no room \(its log: .*guardian\.log\)"
    with pytest.raises(Unavailable, match=told):
        await bench.attach(start)
    words.clear()
    with pytest.raises(Unavailable, match=r"the guardian did not start \(its log"):
        await bench.attach(start)
