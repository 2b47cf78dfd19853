"""Names of log files: the attempt, the range of the log, and the form.

    ~<index>.<attempt>.log from offset 0 on: records ~<index>.<attempt>.<offset>.log from that offset on
    ~<index>.<attempt>.<offset>-<size>.zst that many bytes from that offset on, packed (`iris.controller.logs.packed`)
    ~<index>.<attempt>.<offset>-<size>.moved the same in the remote state: the file contains the location
    and, on a second line, the number of lines
    ~<index>.<attempt>.exception the exception of the attempt's callable ~<index>.<attempt>.result the return value of
    the attempt's callable

In the remote state a packed piece is `logs/<user>/<job>/~<index>.<attempt>.<offset>-<size>.zst-<salt>`.

A piece passes from form to form; the next form is complete before the previous one is removed.
"""

import re
import secrets
from pathlib import Path
from typing import Final, NamedTuple

# Not allowed in the name of a job, so a log file cannot collide with the directory of a child job.
FILE_MARK: Final = "~"
RAW: Final = "log"
PACKED: Final = "zst"
MOVED: Final = "moved"
_RAW_NAME: Final = re.compile(r"~(\d+)\.(\d+)(?:\.(\d+))?\.log", re.ASCII)
_PACKED_NAME: Final = re.compile(r"~(\d+)\.(\d+)\.(\d+)-(\d+)\.(zst|moved)", re.ASCII)
FOLDER: Final = "logs"
"""Folder in the remote state."""
_OBJECT_NAME: Final = re.compile(FOLDER + r"(/.+)/([^/]+)-[0-9a-f]{8}")


class LogFileName(NamedTuple):
    """The parts of a name: task index, attempt, offset, size if the name contains it (-1 otherwise), and form."""

    task: int
    attempt: int
    start: int
    size: int = -1
    form: str = RAW


def file_name(index: int, attempt: int, start: int) -> str:
    """Return the name of an attempt's log file that starts at an offset.

    Args:
        index: The task's index in its job.
        attempt: The attempt's number.
        start: Offset of the file's first byte in the log.
    """
    return f"{FILE_MARK}{index}.{attempt}.{start}.{RAW}" if start else f"{FILE_MARK}{index}.{attempt}.{RAW}"


def packed_name(index: int, attempt: int, start: int, size: int, form: str = PACKED) -> str:
    """Return the name of a packed piece, or of the note about its remote location.

    Args:
        index: The task's index in its job.
        attempt: The attempt's number.
        start: Offset of its first byte in the log.
        size: Its unpacked size.
        form: PACKED or MOVED.
    """
    return f"{FILE_MARK}{index}.{attempt}.{start}-{size}.{form}"


def moved_note(name: str, lines: int) -> bytes:
    """Return the content of a note about a moved piece: the object's name and the piece's number of lines."""
    return f"{name}\n{lines}".encode()


def read_moved_note(note: Path) -> tuple[str, int | None]:
    """Return the object's name in a note about a moved piece, and the number of lines if known. Raises OSError."""
    name, _, lines = note.read_text().partition("\n")
    return name, int(lines) if lines else None


def exception_file_name(index: int, attempt: int) -> str:
    """Return the name of the file beside an attempt's log with its callable's exception."""
    return f"{FILE_MARK}{index}.{attempt}.exception"


def result_file_name(index: int, attempt: int) -> str:
    """Return the name of the file beside an attempt's log with its callable's result."""
    return f"{FILE_MARK}{index}.{attempt}.result"


def parse_name(name: str) -> LogFileName | None:
    """Return the parts of a log file's name in any form; None for any other file."""
    raw = _RAW_NAME.fullmatch(name)
    if raw is not None:
        return LogFileName(int(raw[1]), int(raw[2]), int(raw[3] or 0))
    packed = _PACKED_NAME.fullmatch(name)
    if packed is None:
        return None
    return LogFileName(int(packed[1]), int(packed[2]), int(packed[3]), int(packed[4]), packed[5])


def object_name(job_id: str, name: LogFileName) -> str:
    """Return an object name in the remote state for a packed piece.

    Each name is unique, so that a later removal never affects a newer job of the same name.

    Args:
        job_id: The job.
        name: The piece.
    """
    return f"{FOLDER}{job_id}/{packed_name(*name[:4])}-{secrets.token_hex(4)}"


def parse_object_name(name: str) -> tuple[str, LogFileName] | None:
    """Return the job and piece of an object in the remote state; None for any other object."""
    found = _OBJECT_NAME.fullmatch(name)
    parsed = None if found is None else parse_name(found[2])
    return None if found is None or parsed is None or parsed.form != PACKED else (found[1], parsed)
