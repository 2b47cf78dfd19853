"""Lines of logs in the form that pages show."""

from __future__ import annotations

import re
from collections import deque
from contextlib import aclosing
from datetime import datetime
from typing import Final

from iris.client.logs.for_programs import MARK
from iris.client.types import LogLine
from iris.dashboard.cluster_client import ClusterClient
from iris.rpc.generated import iris_pb2 as pb
from rigging.text.printable import printable_line
from rigging.web.login import Viewer

_LONGEST_SHOWN: Final = 4000
# Carriage returns, colours and their like; pages show them (rigging/web/static/terminal.js).
_TERMINAL: Final = re.compile(r"\r|\x1b\[[0-9;?]*[A-Za-z]")


async def last_lines(
    client: ClusterClient, viewer: Viewer, wanted: pb.FetchLogsRequest, most: int
) -> list[tuple[int, LogLine]]:
    """Return the last lines of one attempt with their numbers; nothing if they were never counted.

    Args:
        client: The controller.
        viewer: The viewer.
        wanted: A task and its attempt.
        most: Maximum number of lines.
    """
    request = pb.FetchLogsRequest(id=wanted.id, attempt=wanted.attempt, first_line=-most)
    newest: deque[tuple[int, LogLine]] = deque(maxlen=most)
    async with aclosing(client.numbered(viewer, request)) as lines:
        async for item in lines:
            newest.append(item)
    return list(newest)


def is_for_programs(entry: LogLine) -> bool:
    """Return whether a line is for programs and hidden on pages (docs/iris-cli.md, "Lines for programs").

    Args:
        entry: The line.
    """
    return not entry.note and entry.data.startswith(MARK)


def line_of(entry: LogLine, wanted: pb.FetchLogsRequest, number: int = 0) -> dict[str, object]:
    """Return a line in the form for the page.

    Args:
        entry: The line.
        wanted: The request; lines of other tasks than the requested one, and of one of several attempts, name it.
        number: The line's number; 0 if it has none.
    """
    who = entry.task_id.removeprefix(wanted.id).strip("/") if entry.task_id != wanted.id else ""
    if entry.attempt and not wanted.HasField("attempt"):
        who += f" attempt {entry.attempt}"
    text = entry.data[:_LONGEST_SHOWN].decode(errors="replace")
    text = printable_line(_TERMINAL.sub(lambda match: "\u240d" if match[0] == "\r" else "\u241b" + match[0][1:], text))
    if len(entry.data) > _LONGEST_SHOWN:
        text += f" … ({len(entry.data)} bytes)"
    kind = "note" if entry.note else "err" if entry.is_stderr else "out"
    at = datetime.fromtimestamp(entry.at_ms / 1000).strftime("%H:%M:%S.%f")[:-3] if 0 <= entry.at_ms < 2**42 else ""
    return {
        "n": number, "at": at, "who": who, "kind": kind, "text": text, "partial": entry.partial,
        "attempt": entry.attempt,
    }  # fmt: skip
