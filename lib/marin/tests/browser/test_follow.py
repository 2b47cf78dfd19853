"""Files that grow: nothing is lost or told twice, also by a page that connects again."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from marin.browser.confined import Confined
from marin.browser.follow import Pace, encode_log, encode_run_events, follow_file, start_of_id
from marin.recorded.deciding.run_steps import RunStep
from support.marin.recorded_runs import ended, step_ended

PACE = Pace(look=0.001, alive=0.01)


def _follow(root: Path, start: int, over: list[bool]) -> AsyncIterator[bytes]:
    async def is_over() -> bool:
        return over[0]

    return follow_file(
        Confined(str(root)), ".log", start, encode_log, pace=PACE, is_over=is_over, is_stopping=lambda: False
    )


async def _until(stream: AsyncIterator[bytes], mark: str) -> str:
    seen = ""
    async with asyncio.timeout(30):
        async for piece in stream:
            seen += piece.decode()
            if mark in seen:
                return seen
    return seen


def _told(events: str) -> str:
    return "".join(json.loads(block.partition("data: ")[2]) for block in events.split("\n\n") if "event: log" in block)


def test_a_log_is_told_as_it_grows_until_its_step_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        log, over = tmp_path / ".log", [False]
        stream = _follow(tmp_path, 0, over)
        await _until(stream, "event: alive")  # there is no log yet
        log.write_text("one\n")
        assert "one" in await _until(stream, "one")
        with log.open("a") as file:
            file.write("two\n")
        over[0] = True
        rest = await _until(stream, "event: over")
        assert _told(rest) == "two\n"

    asyncio.run(scenario())


def test_a_runs_events_become_changes_of_its_steps() -> None:
    step = {"name": "a", "output_path": "/p/a"}
    lines = [
        {"event": "step_started", "name": "a", "path": "/p/a"},
        {"event": "step_progressed", "name": "a", "path": "/p/a", "done": 30, "total": 120},
        {"event": "step_job_queued", "name": "b", "path": "/p/b", "reason": "no room"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    encode = encode_run_events([RunStep("a", "/p/a"), RunStep("b", "/p/b")])
    events, end = encode(text + b'{"event": "st', 100)
    assert end == 100 + len(text)
    assert json.loads(events.decode().partition("data: ")[2]) == [
        [0, "running", None, "30/120 (25 %)"],
        [1, "queued", None, "no room"],
    ]
    done = json.dumps(step_ended(step)) + "\n" + json.dumps(ended()) + "\n"
    events, _ = encode(done.encode(), end)
    assert '[[0, "succeeded", 61.5, ""]]' in events.decode()
    assert "event: run\ndata: ended" in events.decode()


def test_a_step_that_fails_changes_all_that_wait_for_it() -> None:
    a = RunStep("a", "/p/a", status="running")
    b = RunStep("b", "/p/b", ("/p/a",), status="queued")
    c = RunStep("c", "/p/c", ("/p/b",), status="queued")
    other = RunStep("d", "/p/d", status="queued")
    line = json.dumps(step_ended({"name": "a", "output_path": "/p/a"}, "failed", error="no")) + "\n"
    events, _ = encode_run_events([c, a, other, b])(line.encode(), 0)
    told = json.loads(events.decode().partition("data: ")[2])
    assert told == [[1, "failed", 61.5, "no"], [0, "dep_failed", None, ""], [3, "dep_failed", None, ""]]


@pytest.mark.parametrize("line", ['{"event": "x"}', "[]", "nonsense", '{"path": 3}', '{"event": [], "path": "/p/a"}'])
def test_lines_that_are_no_events_are_passed_over(line: str) -> None:
    events, end = encode_run_events([RunStep("a", "/p/a")])(f"{line}\n".encode(), 0)
    assert events == b""
    assert end == len(line) + 1


@pytest.mark.parametrize(("text", "place"), [("12", 12), ("", 7), (None, 7), ("-1", 7), ("٣", 7), ("9" * 40, 7)])
def test_the_id_of_an_event_is_a_place(text: str | None, place: int) -> None:
    assert start_of_id(text, 7) == place


def test_a_page_that_connects_again_gets_the_rest_and_of_a_log_that_was_begun_anew_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / ".log"
        log.write_text("one\n")
        first = await _until(_follow(tmp_path, 0, [False]), "one")
        last = [line for line in first.splitlines() if line.startswith("id: ")][-1].removeprefix("id: ")
        log.write_text("one\ntwo\n")
        again = await _until(_follow(tmp_path, start_of_id(last, 0), [True]), "event: over")
        assert _told(again) == "two\n"
        assert "event: reset" in await _until(_follow(tmp_path, 1000, [False]), "event: reset")

    asyncio.run(scenario())


def test_characters_are_never_cut_in_two_and_what_is_none_does_not_stop_a_log() -> None:
    content = "zwölf €\n".encode()
    for cut in range(1, 9):
        first, end = encode_log(content[:cut], 0)
        second, last = encode_log(content[end:], end)
        assert last == len(content)
        assert _told((first + second).decode()) == "zwölf €\n"
    content = b"\xff\xff\xff\xff\xff\xff"
    _, end = encode_log(content, 0)
    assert end >= len(content) - 3
    assert end > 0
