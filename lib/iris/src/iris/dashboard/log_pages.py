"""The log of a job or task: its newest lines, new lines, and searches."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from iris.client.types import LogLine
from iris.dashboard.cluster_client import ClusterClient, first
from iris.dashboard.job_facts import word_of
from iris.dashboard.log_lines import is_for_programs, last_lines, line_of
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logfilter import LEVELS
from rigging.errors import InvalidRequest, MarinError
from rigging.web.context import render, viewer_of
from rigging.web.events import HEARTBEAT_SECONDS, encode_event, event_response
from rigging.web.login import Viewer
from rigging.web.pages import query_text

SHOWN: Final = 1000
MOST_BACK: Final = 20_000
"""Lines without numbers are read again from the newest on: the most that a page asks for."""
ALL_ATTEMPTS: Final = -1
_MOST_DOWNLOADED: Final = 10_000_000
_GIVEN: Final = ("id", "grep", "level", "attempt", "children")
_TOGETHER_S: Final = 0.1


@dataclass(slots=True)
class LogPages:
    """Serves the pages of logs.

    Args:
        client: The controller.
    """

    client: ClusterClient

    def routes(self) -> list[BaseRoute]:
        """Return the routes of these pages."""
        return [
            Route("/logs", self.page),
            Route("/logs/lines", self.lines),
            Route("/logs/follow", self.follow),
            Route("/logs/text", self.text),
        ]

    async def page(self, request: Request) -> Response:
        """The newest selected lines. The page then follows the log, and reads older lines where it is scrolled."""
        asked, viewer = _wanted(request), viewer_of(request)
        job = await self.client.job(viewer, _job_of(asked.id))
        task, wanted = await self._narrowed(viewer, asked, job)
        found = await self._newest(viewer, wanted)
        since_ms = found[-1][1].at_ms if found else 0
        given = {name: value for name in _GIVEN if (value := request.query_params.get(name))}
        narrow = given | {"id": wanted.id} | ({"attempt": wanted.attempt} if wanted.HasField("attempt") else {})
        # Without a chosen attempt the next one follows, once the page knows where this one's lines are.
        followed = given | {"id": wanted.id} if found and not asked.HasField("attempt") else narrow
        return render(
            request,
            "iris/logs.html",
            id=asked.id,
            job=job,
            state=word_of(pb.JobState.Name(job.state)),
            task=task,
            shown_attempt=wanted.attempt if wanted.HasField("attempt") else None,
            lines=[line_of(entry, wanted, number) for number, entry in found if not is_for_programs(entry)],
            numbered=is_numbered(wanted) and (not found or any(number for number, _ in found)),
            levels=LEVELS,
            given=given,
            children=wanted.include_children,
            more="/logs/lines?" + urlencode(narrow),
            link="/logs?" + urlencode(narrow),
            follow="/logs/follow?"
            + urlencode(followed | {"since": since_ms, "have": sum(e.at_ms == since_ms for _, e in found)}),
            download="/logs/text?" + urlencode(narrow),
        )

    async def lines(self, request: Request) -> Response:
        """Lines from a number on (`from`), or those before the newest `have` lines."""
        wanted, viewer = _of_attempts(_wanted(request)), viewer_of(request)
        begin, have = _number(query_text(request, "from", 20)), _number(query_text(request, "have", 20))
        if begin and is_numbered(wanted):
            wanted.first_line = begin
            found = await first(_from_line(self.client.numbered(viewer, wanted), begin), SHOWN)
        elif have <= MOST_BACK:
            wanted.max_lines = have + SHOWN
            found = [(0, line) for line in (await first(self.client.logs(viewer, wanted), wanted.max_lines))[:-have]]
        else:
            found = []
        return JSONResponse([line_of(line, wanted, number) for number, line in found if not is_for_programs(line)])

    async def _narrowed(
        self, viewer: Viewer, asked: pb.FetchLogsRequest, job: pb.JobStatus
    ) -> tuple[pb.TaskStatus | None, pb.FetchLogsRequest]:
        """Return the only selected task with its log's newest attempt; None and the request for several tasks."""
        wanted = pb.FetchLogsRequest()
        wanted.CopyFrom(asked)
        if asked.id == job.job_id:
            if job.replicas != 1 or asked.include_children:
                return None, _of_attempts(wanted)
            wanted.id = f"{job.job_id}/0"
        task = await self.client.task(viewer, wanted.id)
        if not wanted.HasField("attempt"):
            wanted.attempt = max(task.attempt, 0)
        return task, _of_attempts(wanted)

    async def _newest(self, viewer: Viewer, wanted: pb.FetchLogsRequest) -> list[tuple[int, LogLine]]:
        """Return the newest lines, with their numbers if they are those of one attempt."""
        if is_numbered(wanted) and (newest := await last_lines(self.client, viewer, wanted, SHOWN)):
            return newest
        wanted.max_lines = SHOWN
        return [(0, line) for line in await first(self.client.logs(viewer, wanted), SHOWN)]

    async def follow(self, request: Request) -> Response:
        """A stream of events with new lines."""
        wanted = _of_attempts(_wanted(request))
        wanted.follow = True
        # A browser that connects again says what it had last.
        since, _, have = (request.headers.get("last-event-id") or "").partition("-")
        wanted.since_ms = _number(since) or _number(query_text(request, "since", 20))
        skip = _number(have) if since else _number(query_text(request, "have", 20))
        wanted.from_start = True
        return event_response(self._lines(viewer_of(request), wanted, skip))

    async def text(self, request: Request) -> Response:
        """The selected lines as a text file."""
        wanted = _of_attempts(_wanted(request))
        wanted.max_lines = _MOST_DOWNLOADED
        entries = self.client.logs(viewer_of(request), wanted, to_the_end=True)
        begun = await anext(entries, None)  # what is refused is told as a page

        async def lines() -> AsyncIterator[bytes]:
            async with aclosing(entries):
                if begun is not None:
                    yield begun.data + (b"" if begun.partial else b"\n")
                async for entry in entries:
                    yield entry.data + (b"" if entry.partial else b"\n")

        name = "".join(char if char.isalnum() or char in "-_" else "-" for char in wanted.id.strip("/"))[:100]
        headers = {"content-disposition": f'attachment; filename="{name or "log"}.txt"'}
        return StreamingResponse(lines(), media_type="text/plain; charset=utf-8", headers=headers)

    async def _lines(self, viewer: Viewer, wanted: pb.FetchLogsRequest, skip: int) -> AsyncIterator[bytes]:
        """Yield events with lines, batched per tenth of a second, without the first `skip` lines of the start time."""
        yield encode_event("hello", str(HEARTBEAT_SECONDS))
        place = LogPlace(wanted.since_ms, skip)
        queue: asyncio.Queue[LogLine | MarinError | None] = asyncio.Queue(SHOWN)
        reader = asyncio.create_task(self._read(viewer, wanted, queue))
        try:
            while True:
                try:
                    item = await asyncio.wait_for(queue.get(), HEARTBEAT_SECONDS)
                except TimeoutError:
                    yield encode_event("alive", "")
                    continue
                lines = []
                while isinstance(item, LogLine):
                    if place.is_new(item) and not is_for_programs(item):
                        lines.append(line_of(item, wanted))
                    if queue.empty() or len(lines) >= SHOWN:
                        break
                    item = queue.get_nowait()
                if lines:
                    yield encode_event("lines", json.dumps(lines), place.mark)
                if item is None:
                    yield encode_event("end", "")
                    return
                if isinstance(item, MarinError):
                    yield encode_event("trouble", str(item))
                    return
                await asyncio.sleep(_TOGETHER_S)
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    async def _read(
        self, viewer: Viewer, wanted: pb.FetchLogsRequest, queue: asyncio.Queue[LogLine | MarinError | None]
    ) -> None:
        try:
            async with aclosing(self.client.logs(viewer, wanted)) as entries:
                async for entry in entries:
                    await queue.put(entry)
            await queue.put(None)
        except MarinError as error:
            await queue.put(error)


def is_numbered(wanted: pb.FetchLogsRequest) -> bool:
    """Return whether the lines of a request have numbers: all of one attempt do."""
    return wanted.HasField("attempt") and wanted.id != _job_of(wanted.id) and not (wanted.grep or wanted.level)


async def _from_line(
    lines: AsyncGenerator[tuple[int, LogLine], None], begin: int
) -> AsyncGenerator[tuple[int, LogLine], None]:
    async with aclosing(lines):
        async for number, line in lines:
            if number >= begin or not number:
                yield number, line


class LogPlace:
    """A page's position in a log: the time of its last lines, and their number.

    Args:
        since_ms: The time of the last lines.
        skip: Number of lines with that time on the page.
    """

    def __init__(self, since_ms: int, skip: int) -> None:
        self._since_ms = self._last_ms = since_ms
        self._skip = skip
        self._count = 0

    @property
    def mark(self) -> str:
        """The position as text, for a page to send back."""
        return f"{self._last_ms}-{self._count}"

    def is_new(self, entry: LogLine) -> bool:
        """Advance past an entry; return False if the page already has it."""
        self._count = self._count + 1 if entry.at_ms == self._last_ms else 1
        self._last_ms = entry.at_ms
        if entry.at_ms == self._since_ms and self._skip > 0:
            self._skip -= 1
            return False
        return True


def _wanted(request: Request) -> pb.FetchLogsRequest:
    found = pb.FetchLogsRequest(
        id=query_text(request, "id", 1000),
        grep=query_text(request, "grep", 1000),
        level=query_text(request, "level", 20),
        include_children=request.query_params.get("children") == "1",
    )
    if not found.id:
        raise InvalidRequest("the address needs the id of a job or task: /logs?id=/user/name")
    attempt = query_text(request, "attempt", 10)
    if attempt == "all":
        found.attempt = ALL_ATTEMPTS
    elif attempt:
        if not (attempt.isascii() and attempt.isdigit() and int(attempt) < 1 << 31):
            raise InvalidRequest(f"attempt {attempt!r}: must be the number of an attempt, from 0")
        found.attempt = int(attempt)
    return found


def _of_attempts(wanted: pb.FetchLogsRequest) -> pb.FetchLogsRequest:
    if wanted.attempt == ALL_ATTEMPTS:
        wanted.ClearField("attempt")
    return wanted


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _job_of(id: str) -> str:
    head, _, last = id.rpartition("/")
    return head if last.isdigit() and head.count("/") > 1 else id
