"""Follow growing files and send events about them to a page.

An event's id is a position in the file, so no event is lost or repeated, even if the server restarts meanwhile.

Storage does not announce that a file has grown, so its size is polled; on a disk that costs some microseconds.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio.to_thread

from marin.browser.confined import Confined
from marin.browser.previews.preview import whole_characters
from marin.browser.run_view import parse_events
from marin.recorded.deciding.run_steps import FAILED, RunStep, progress_note, skip_after_failures
from rigging.web.events import encode_event

LOCAL_SECONDS: Final = 0.15
REMOTE_SECONDS: Final = 5.0
_MOST_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Pace:
    """Polling intervals in seconds.

    Attributes:
        look: Between two checks of a file's size; None for the storage's default.
        alive: Between keep-alives to the page.
    """

    look: float | None = None
    alive: float = 10.0


def start_of_id(last_id: str | None, otherwise: int) -> int:
    """Return the position in a file that an event's id names; `otherwise` if the id is invalid."""
    if last_id and last_id.isascii() and last_id.isdigit() and len(last_id) < 16:
        return int(last_id)
    return otherwise


async def follow_file(
    place: Confined,
    name: str,
    start: int,
    encode: Callable[[bytes, int], tuple[bytes, int]],
    *,
    pace: Pace,
    is_over: Callable[[], Awaitable[bool]],
    is_stopping: Callable[[], bool],
) -> AsyncIterator[bytes]:
    """Yield a file's content from a position on as events: `reset` if the file was restarted, `over` at its end.

    Args:
        place: The storage root.
        name: The file, which may not exist yet.
        start: The start position.
        encode: Converts new content at a position to events, and returns the position after them.
        pace: The polling intervals.
        is_over: Returns whether the file is complete. It is called when there is no new content.
        is_stopping: Returns whether the server is stopping.
    """
    look = pace.look or (LOCAL_SECONDS if place.is_local else REMOTE_SECONDS)
    yield b"retry: 1000\n\n" + encode_event("hello", str(pace.alive), str(start))
    sign = time.monotonic()
    while not is_stopping():
        size = await anyio.to_thread.run_sync(place.size, name) or 0
        if size < start:
            start = 0
            yield encode_event("reset", "", "0")
            return
        if size > start:
            content = await anyio.to_thread.run_sync(place.read, name, start, min(size, start + _MOST_BYTES))
            events, end = encode(content, start)
            if events:
                yield events
                sign = time.monotonic()
            if end > start:
                start = end
                continue
        elif await is_over():
            yield encode_event("over", "", str(start))
            return
        if time.monotonic() - sign >= pace.alive:
            yield encode_event("alive", "")
            sign = time.monotonic()
        await asyncio.sleep(look)


def encode_log(content: bytes, start: int) -> tuple[bytes, int]:
    """Return a piece of a log as an event, in whole characters."""
    content = whole_characters(content) or content
    text = content.decode("utf-8", "replace")
    end = start + len(content)
    return encode_event("log", json.dumps(text), str(end)), end


def encode_run_events(shown: Sequence[RunStep]) -> Callable[[bytes, int], tuple[bytes, int]]:
    """Return a function that converts lines of an event log to the page's events.

    Args:
        shown: The steps on the page, in its order.
    """
    numbers = {step.path: number for number, step in enumerate(shown)}
    known = {step.path: step for step in shown}

    def encode(content: bytes, start: int) -> tuple[bytes, int]:
        whole = content[: content.rfind(b"\n") + 1]
        if not whole:
            # A line longer than a piece is passed over; else the writer is within it.
            return b"", start + (len(content) if len(content) >= _MOST_BYTES else 0)
        end = start + len(whole)
        steps: dict[int, list[Any]] = {}
        is_ended, is_unknown, is_failed = False, False, False
        for event in parse_events(whole):
            kind = event.get("event")
            is_ended = is_ended or kind == "run_ended"
            path = event.get("path")
            if path is None:
                continue
            number = numbers.get(path)
            if number is None:
                is_unknown = True
                continue
            change = _change(event)
            if change is not None:
                steps[number] = [number, *change]
                known[path] = replace(known[path], status=change[0])
                is_failed = is_failed or change[0] in FAILED
        pieces = []
        if is_failed:
            skip_after_failures(known)
            below = (numbers[path] for path, step in known.items() if step.status == "dep_failed")
            steps.update((number, [number, "dep_failed", None, ""]) for number in below if number not in steps)
        if steps:
            pieces.append(encode_event("steps", json.dumps(list(steps.values())), str(end)))
        if is_ended or is_unknown:
            pieces.append(encode_event("run", "ended" if is_ended else "grown", str(end)))
        return b"".join(pieces), end

    return encode


_STATUSES: Final = {
    "step_queued": "queued",
    "step_job_queued": "queued",
    "step_started": "running",
    "step_progressed": "running",
    "step_retrying": "retrying",
}


def _change(event: Mapping[str, Any]) -> list[Any] | None:
    """Return a step's new status, seconds and note after an event."""
    kind = str(event.get("event"))
    if kind == "step_ended":
        seconds = event.get("seconds")
        error = str(event.get("error") or "").partition("\n")[0][:200]
        attempts = event.get("attempts")
        tries = len(attempts) if isinstance(attempts, list) else 0
        return [str(event.get("status")), seconds if type(seconds) in (int, float) else None, error or _tries(tries)]
    status = _STATUSES.get(kind)
    if status is None:
        return None
    note = str(event.get("reason") or event.get("error") or "").partition("\n")[0][:200]
    return [status, None, progress_note(event) or note]


def _tries(count: int) -> str:
    return f"{count} attempts" if count > 1 else ""
