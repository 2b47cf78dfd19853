"""The log of a step: its end, parts before it, numbered lines, and what is added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from marin.browser.confined import Confined
from marin.browser.follow import encode_log, follow_file, start_of_id
from marin.browser.site import Site, address, asked_path
from marin.output_files import LOG_FILE, STATUS_FILE
from rigging.errors import MarinError, NotFound
from rigging.web.context import is_fragment, render
from rigging.web.events import event_response, last_event_id
from rigging.web.pages import query_text
from rigging.web.paging import asked_page

LOG_BYTES: Final = 64 << 10
MOST_NUMBERED: Final = 256 << 20
"""Of longer logs, and those in buckets, the lines have no numbers: that would mean to read all of them."""
_RUNNING: Final = "RUNNING"
_LINES: Final = 1000
_PIECE: Final = 256 << 10
_MOST_READ: Final = 16 << 20
_LONGEST: Final = 20_000


@dataclass(frozen=True, slots=True)
class LogPart:
    """A part of a log.

    Attributes:
        text: Its text.
        start: The offset of its start in bytes.
        end: The offset of its end.
        size: The log's total size.
    """

    text: str
    start: int
    end: int
    size: int


def log_part(place: Confined, name: str, end: int | None, most: int = LOG_BYTES) -> LogPart | None:
    """Return the part of a log that ends at a position, in whole lines if possible; None without a log.

    Args:
        place: The storage root.
        name: The log.
        end: The end of the part in bytes; None for the log's end.
        most: Maximum number of bytes.
    """
    size = place.size(name)
    if size is None:
        return None
    end = size if end is None else min(end, size)
    start = max(0, end - most)
    content = place.read(name, start, end)
    if start:
        cut = content.find(b"\n") + 1
        if cut < len(content):
            content = content[cut:]
            start += cut
    return LogPart(_shown(content), start, start + len(content), size)


def _shown(content: bytes) -> str:
    """Return a part of a log as text, with signs for carriage returns and escapes, which HTML has no form for."""
    text = content.decode("utf-8", "replace").replace("\r\n", "\n")
    return text.replace("\r", "\u240d").replace("\x1b", "\u241b")


def text_of(place: Confined, name: str, most: int) -> str | None:
    """Return the beginning of a file as text; None if it cannot be read."""
    try:
        return place.read(name, 0, most).decode("utf-8", "replace")
    except MarinError:  # none, or one that leads elsewhere
        return None


def status_word(status: str | None) -> str | None:
    """Return the status word in a status file of either format."""
    from marin.execution.lease.status_words import parse_status

    return None if status is None else parse_status(status.encode())


def log_page(site: Site, request: Request) -> Response:
    """Show a step's log: its last lines with their numbers, or those with a text; of a long one a part, or the part
    before one."""
    name = asked_path(request)
    log = f"{name}/{LOG_FILE}"
    end = start_of_id(request.query_params.get("end"), -1)
    part = log_part(site.outputs, log, None if end < 0 else end)
    if part is None:
        raise NotFound(f"{name!r} has no log")
    shown: dict[str, Any] = {"name": name, "log": part, "address": address}
    if is_fragment(request):
        return render(request, "marin/log_part.html", **shown)
    wanted = query_text(request, "find", 300).partition("\n")[0]
    if end < 0 and site.outputs.is_local and part.size <= MOST_NUMBERED:
        shown["find"] = wanted
        lines = part.text.split("\n")
        first = site.lines.number_at(log, part.start)
        shown["lines"] = _rows(lines, first)[-_LINES:]
    if "find" in shown and wanted:
        found = site.lines.matching(log, wanted.encode("utf-8", "surrogateescape"), part.size, _LINES)
        shown["found"] = [(number, _shown(line)[:_LONGEST].split(wanted)) for number, line in found]
        shown["most"] = _LINES
    status = status_word(text_of(site.outputs, f"{name}/{STATUS_FILE}", 4096))
    return render(request, "marin/log.html", **shown, is_live=status in (None, _RUNNING))


def log_lines(site: Site, request: Request) -> Response:
    """Return the lines of a log from a number on."""
    name = asked_path(request)
    log = f"{name}/{LOG_FILE}"
    size = site.outputs.size(log)
    if size is None or not site.outputs.is_local or size > MOST_NUMBERED:
        raise NotFound(f"{name!r} has no log with numbered lines")
    number = asked_page(request.query_params.get("from"))
    start = end = site.lines.offset_of(log, number, size)
    pieces: list[bytes] = []
    while end < size and end - start < _MOST_READ and sum(piece.count(b"\n") for piece in pieces) < _LINES:
        pieces.append(site.outputs.read(log, end, min(size, end + _PIECE)))
        end += len(pieces[-1])
    lines = b"".join(pieces).split(b"\n")
    if end < size:
        lines.pop()  # the rest of it is not read
    return JSONResponse(_rows([_shown(line) for line in lines], number)[:_LINES])


def _rows(lines: list[str], first: int) -> list[dict[str, Any]]:
    """Return lines as `LogView` takes them. A last one without an end may go on."""
    rows = [{"kind": "out", "n": number, "text": text[:_LONGEST]} for number, text in enumerate(lines, first)]
    if not lines[-1]:
        return rows[:-1]
    rows[-1]["partial"] = True
    return rows


async def log_events(site: Site, request: Request) -> Response:
    """Stream additions to a step's log from a position on."""
    import anyio.to_thread

    name = asked_path(request)
    site.outputs.path(name)
    log = f"{name}/{LOG_FILE}"
    site.outputs.path(log)
    start = start_of_id(last_event_id(request), start_of_id(request.query_params.get("at"), 0))

    async def is_over() -> bool:
        status = await anyio.to_thread.run_sync(text_of, site.outputs, f"{name}/{STATUS_FILE}", 4096)
        return status_word(status) not in (None, _RUNNING)

    stream = follow_file(
        site.outputs,
        log,
        start,
        encode_log,
        pace=site.pace,
        is_over=is_over,
        is_stopping=lambda: site.is_stopping,
    )
    return event_response(stream)
