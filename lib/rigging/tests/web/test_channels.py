"""Channels: each topic is asked for with its viewer's rights; what ends, is refused or too much is told."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from fray.testing.waiting import eventually_async
from rigging.errors import NotFound
from rigging.web.app import create_app
from rigging.web.context import Web, WebSettings
from rigging.web.events import Broadcaster, event_response, last_event_id
from rigging.web.live import channels
from rigging.web.login import Viewer
from rigging.web.pages import PageSet
from rigging.web.serving import WebServer, bind


class Site:
    def __init__(self) -> None:
        self.told = Broadcaster()

        async def events(request: Request) -> Response:
            if request.query_params.get("of") == "nobody":
                raise NotFound("no such thing")
            return event_response(self.told.stream(last_event_id(request)))

        open_pages = [Route("/events", events), Route("/page", lambda request: PlainTextResponse("words"))]
        sets = [
            PageSet("things", open_pages),
            PageSet("secrets", [Route("/secret", events)], viewers=lambda viewer: viewer.name == "root"),
        ]
        self.bound = bind(0)
        self.app: Starlette = create_app(WebSettings("test"), sets)
        self.web: Web = self.app.state.web

    def browser(self, name: str) -> httpx2.AsyncClient:
        cookies = {self.web.settings.cookie: self.web.sessions.open(Viewer(name, grant=f"{name}'s"))}
        headers = {"origin": self.bound.url}
        return httpx2.AsyncClient(base_url=self.bound.url, cookies=cookies, headers=headers, timeout=30)


@asynccontextmanager
async def served() -> AsyncIterator[Site]:
    site = Site()
    server = WebServer(site.app, site.bound, site.told.close)
    running = asyncio.create_task(server.run())
    try:
        yield site
    finally:
        server.stop()
        await asyncio.wait_for(running, 30)


class Channel:
    def __init__(self, browser: httpx2.AsyncClient, answer: httpx2.Response) -> None:
        self._browser = browser
        self._lines = answer.aiter_lines()

    async def next(self) -> tuple[str, Any]:
        """Return the next event's name and data."""
        async with asyncio.timeout(30):
            name = (await anext(self._lines)).removeprefix("event: ")
            data = json.loads((await anext(self._lines)).removeprefix("data: ") or "null")
            assert await anext(self._lines) == ""
        return name, data

    async def open(self) -> "Channel":
        name, (self.id, _) = await self.next()
        assert name == "channel"
        return self

    async def change(self, *added: tuple[int, str, str], drop: tuple[int, ...] = ()) -> int:
        body = {"channel": self.id, "add": added, "drop": drop}
        return (await self._browser.post("/live/topics", json=body)).status_code

    async def is_over(self) -> bool:
        async with asyncio.timeout(30):
            return [line async for line in self._lines] == []


@asynccontextmanager
async def channel(browser: httpx2.AsyncClient) -> AsyncIterator[Channel]:
    async with browser, browser.stream("GET", "/live") as answer:
        assert answer.status_code == 200
        yield await Channel(browser, answer).open()


async def test_topics_of_many_streams_come_in_one_and_go_on_after_their_last_event() -> None:
    async with served() as site, channel(site.browser("ann")) as ann:
        assert await ann.change((1, "/events", "")) == 204
        name, (number, hello) = await ann.next()
        assert (name, number) == ("topic", 1)
        site.told.publish("job", "a")
        site.told.publish("job", "ü")
        _, (_, text) = await ann.next()
        assert "data: a" in text
        assert "data: ü" in text
        last = next(line for line in hello.splitlines() if line.startswith("id: ")).removeprefix("id: ")
        assert await ann.change((2, "/events", last), drop=(1,)) == 204
        await ann.next()
        assert "data: a" in (await ann.next())[1][1]
        await eventually_async(lambda: site.told.listeners == 1, "the dropped topic ends")
    async with asyncio.timeout(30):
        await eventually_async(lambda: site.told.listeners == 0, "all topics end")


@pytest.mark.parametrize(
    ("address", "status"),
    [("/secret", 403), ("/events?of=nobody", 404), ("/nothing", 404), ("/page", 400)],
)
async def test_an_address_that_the_viewer_may_not_follow_is_gone_with_its_status(address: str, status: int) -> None:
    async with served() as site, channel(site.browser("ann")) as ann:
        assert await ann.change((7, address, "")) == 204
        assert await ann.next() == ("gone", [7, status])


async def test_a_channel_belongs_to_its_session_and_ends_with_it() -> None:
    async with served() as site, channel(site.browser("ann")) as ann, channel(site.browser("root")) as root:
        for wrong in ((1, "//elsewhere/x", ""), (1, "/live", ""), (1, "http://x/", ""), (1, 2, 3)):
            assert await ann.change(wrong) == 400, wrong
        assert await root.change((1, "/secret", "")) == 204
        await root.next()
        ann.id, own = root.id, ann.id
        assert await ann.change((2, "/events", "")) == 404
        ann.id = own
        site.web.revoked.add(["ann's"])
        assert await ann.is_over()
        site.web.channels.close()
        assert await root.is_over()


async def test_channels_of_a_viewer_and_topics_of_a_channel_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MOST_CHANNELS", 1)
    monkeypatch.setattr(channels, "MOST_TOPICS", 2)
    async with served() as site, channel(site.browser("ann")) as ann, channel(site.browser("bob")):
        assert await ann.change(*((number, "/events", "") for number in range(3))) == 400
        assert await ann.change(*((number, "/events", "") for number in range(2))) == 204
        async with site.browser("ann") as other:
            answer = await other.get("/live")
        assert (answer.status_code, "1 browsers of yours" in answer.text) == (429, True)
