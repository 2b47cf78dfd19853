"""Detect deadlocks between outputs. A wait that could never end raises an error that names the cycle.

Code that makes an output (a step's function, a cached function, a function under a lock) may wait for another output.
All waits within a process are in memory. A wait in another process is read from a note in the output being made,
written at the start of the wait. The note is valid while its writer holds the output's lease.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import uuid
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from marin.execution.lease.status_words import status_path
from marin.output_files import LOCK_SUFFIX, WAITING_FILE
from rigging.errors import Conflict
from rigging.filesystem import read_bytes_or_none, url_to_fs, write_bytes_atomic
from rigging.filesystem.location import path_in

logger = logging.getLogger(__name__)

_LONGEST_CIRCLE: Final = 100


class CircularWait(Conflict):
    """The code that makes an output would wait forever for its own output."""


class Making(NamedTuple):
    """The outputs that code is making, outermost first, and the tree of runs and jobs it belongs to."""

    tree: str
    outputs: tuple[str, ...] = ()


_nothing = Making(uuid.uuid4().hex)
_current: ContextVar[Making] = ContextVar("marin_making", default=_nothing)
_guard = threading.Lock()
# The outputs that code makes, and the one that it waits for.
_waits: list[tuple[tuple[str, ...], str]] = []


def making_here() -> Making:
    """Return the outputs that the calling code is making."""
    return _current.get()


@contextlib.contextmanager
def making_as(outer: Making) -> Iterator[None]:
    """Context manager: run the block as a job of the code that makes these outputs."""
    token = _current.set(outer)
    try:
        yield
    finally:
        _current.reset(token)


class making:
    """Context manager: record that the code in the block makes an output."""

    __slots__ = ("_made", "_token")

    def __init__(self, output_path: str) -> None:
        self._made = _key(output_path)

    def __enter__(self) -> None:
        outer = _current.get()
        self._token = _current.set(Making(outer.tree, (*outer.outputs, self._made)))

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._token)
        if _waits:
            with _guard:
                _waits[:] = [wait for wait in _waits if self._made not in wait[0]]


def begin_wait(output_path: str) -> None:
    """Record that the calling code waits for another output, until `end_wait` or the end of its own output.

    Raises:
        CircularWait: The other output needs the calling code's own output first. If only a part of the cycle belongs to
            this tree of runs and jobs, this logs a warning instead, because the others may be stopped.
    """
    here, awaited = making_here(), _key(output_path)
    if not here.outputs:
        return
    with _guard:
        circle = _path_to(here.outputs, awaited)
        if circle is None:
            _waits.append((here.outputs, awaited))
    if circle is not None:
        raise CircularWait(_told(here.outputs, circle))
    # Storage that fails here hides a circle, and ends no run.
    try:
        _write_note(here, awaited)
        _look_elsewhere(here, awaited)
    except CircularWait:
        end_wait(output_path)
        raise
    except Exception as error:
        logger.debug("the waits for %s are unknown: %s", output_path, error)


def end_wait(output_path: str) -> None:
    """Record that the calling code no longer waits for an output."""
    here, awaited = making_here(), _key(output_path)
    if not here.outputs:
        return
    with _guard:
        if (here.outputs, awaited) in _waits:
            _waits.remove((here.outputs, awaited))
    with contextlib.suppress(Exception):
        fs, path = url_to_fs(path_in(here.outputs[-1], WAITING_FILE))
        fs.rm_file(path)


def _key(output_path: str) -> str:
    return output_path.rstrip("/")


def _path_to(goals: tuple[str, ...], start: str) -> list[str] | None:
    """Return the outputs from an awaited one to one of the goals, along the waits of this process."""
    paths, seen = [[start]], {start}
    while paths:
        path = paths.pop()
        if path[-1] in goals:
            return path
        for outputs, following in _waits:
            if path[-1] in outputs and following not in seen:
                seen.add(following)
                paths.append([*path, following])
    return None


def _told(outputs: tuple[str, ...], circle: list[str]) -> str:
    # From the output at which the circle closes, inwards, to the one that waits.
    inner = outputs[outputs.index(circle[-1]) :]
    words = [f"{output} waits for" for output in (*inner, *circle[:-1])]
    return f"a cycle that would wait forever: {' '.join(words)} {circle[-1]}; make one of them without the other"


def _holder(output: str) -> str | None:
    content = read_bytes_or_none(status_path(output) + LOCK_SUFFIX)
    return None if content is None else str(json.loads(content)["worker_id"])


def _write_note(here: Making, awaited: str) -> None:
    note = {"tree": here.tree, "outputs": here.outputs, "waits_for": awaited, "holder": _holder(here.outputs[-1])}
    write_bytes_atomic(path_in(here.outputs[-1], WAITING_FILE), json.dumps(note).encode())


def _look_elsewhere(here: Making, awaited: str) -> None:
    """Follow the notes of other processes."""
    circle, notes = [awaited], list[dict[str, Any]]()
    while circle[-1] not in here.outputs:
        content = read_bytes_or_none(path_in(circle[-1], WAITING_FILE))
        if content is None or len(circle) > _LONGEST_CIRCLE:
            return
        note = json.loads(content)
        if note["holder"] is None or note["holder"] != _holder(circle[-1]):
            return  # of one that was killed
        notes.append(note)
        circle.append(note["waits_for"])
    message = _told(here.outputs, circle)
    if all(note["tree"] == here.tree for note in notes):
        raise CircularWait(message)
    holders = ", ".join([str(_holder(here.outputs[-1])), *(note["holder"] for note in notes)])
    logger.warning("%s. They are held by %s: stop one of these", message, holders)
