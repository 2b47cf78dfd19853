"""Server-sent events: none is lost, none comes twice, slow pages hold nobody up."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fray.testing.waiting import eventually_async
from rigging.errors import Unavailable
from rigging.web.events import Broadcaster, encode_event, event_response


async def _next(stream: AsyncIterator[bytes]) -> str:
    return (await asyncio.wait_for(anext(stream), 30)).decode()


def _id_of(text: str) -> str:
    return next(line.removeprefix("id: ") for line in text.splitlines() if line.startswith("id: "))


async def test_events_come_in_order_and_a_page_that_was_away_gets_what_it_missed() -> None:
    told = Broadcaster()
    stream = told.stream()
    hello = await _next(stream)
    assert "event: hello" in hello
    told.publish("job", "1")
    told.publish("job", "2")
    both = await _next(stream)
    assert both.index("data: 1") < both.index("data: 2")
    await stream.aclose()
    assert told.listeners == 0
    told.publish("job", "3")
    again = told.stream(_id_of(both))
    await _next(again)
    assert "data: 2" in await _next(again)
    assert "data: 3" in await _next(again)


@pytest.mark.parametrize("last", ["other-1", "nonsense", "-", "x-y-z", "EPOCH-999", "EPOCH-٣", "EPOCH-1"])
async def test_a_page_that_missed_more_than_is_known_is_told_to_load_itself_again(last: str) -> None:
    told = Broadcaster(history=2)
    epoch = _id_of(await _next(told.stream())).partition("-")[0]
    for number in range(5):
        told.publish("job", str(number))
    stream = told.stream(last.replace("EPOCH", epoch))
    await _next(stream)
    assert "event: reset" in await _next(stream)


async def test_a_page_that_reads_too_slowly_is_told_to_load_itself_again_and_holds_nobody_up() -> None:
    told = Broadcaster(most_waiting=3)
    slow, quick = told.stream(), told.stream()
    await _next(slow)
    await _next(quick)
    for number in range(10):
        told.publish("job", str(number))
        assert f"data: {number}" in await _next(quick)
    assert "event: reset" in await _next(slow)
    told.publish("job", "after")
    assert "data: after" in await _next(slow)


async def test_a_quiet_stream_shows_signs_of_life_and_ends_with_the_server() -> None:
    told = Broadcaster(heartbeat=0.01)
    stream = told.stream()
    await _next(stream)
    assert "event: alive" in await _next(stream)
    told.close()
    rest = [piece async for piece in stream]
    assert len(rest) < 10


async def test_a_page_hears_only_what_it_asked_for() -> None:
    told = Broadcaster()
    stream = told.stream(wanted=lambda event: event.name == "job")
    await _next(stream)
    waiting = asyncio.ensure_future(anext(stream))
    await eventually_async(lambda: told.listeners == 1, "the page looks on")
    told.publish("worker", "no")
    told.publish("job", "yes")
    text = (await asyncio.wait_for(waiting, 30)).decode()
    assert "data: yes" in text
    assert "no" not in text.replace("now", "")


def test_text_with_line_breaks_is_one_event() -> None:
    assert encode_event("log", "a\nb\r\nc\rid: 7\n\nevent: x", "1-1").count(b"\n\n") == 1
    assert encode_event("log", "a\nid: 7").decode().splitlines() == ["event: log", "data: a", "data: id: 7", ""]


async def test_a_stream_whose_source_cannot_be_read_ends_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield encode_event("hello", "")
        raise Unavailable("the bucket does not answer")

    assert [piece async for piece in event_response(broken()).body_iterator] == [encode_event("hello", "")]
    assert "the bucket does not answer" in caplog.text
    assert not any(record.exc_info for record in caplog.records)
