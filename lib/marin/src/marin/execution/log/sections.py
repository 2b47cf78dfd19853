"""The parts of a step's log that processes of its jobs wrote: found again, and completed, by what stands in the log.

A part begins with a heading, which no other has, and ends with a closing line. Of several replicas each line begins
with the replica's number. Without clocks and storage.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from marin.execution.report.events import describe_error
from rigging.redaction import redact_string
from rigging.text.printable import printable

_OWN: Final = " of its job"
_HEADING: Final = r"(?P<tag>(?:\[\d+\] )?)(?P<heading>=== attempt \d+, \S+, \S+, process \d+"
_OPENING: Final = re.compile(rf"{_HEADING}{_OWN})")
# Of a part that a run wrote, too.
_ANY_OPENING: Final = re.compile(rf"{_HEADING}(?:{_OWN})?)")
LOST: Final = "=== lines may be missing here: their process is gone, and nobody has its output"


def heading(attempt: int, began: float) -> str:
    """Return `=== attempt {number}, {time}, {host}, process {id}`, of this process.

    Args:
        attempt: The attempt's number in its run, from 1.
        began: When it began, in seconds since the epoch.
    """
    when = datetime.datetime.fromtimestamp(began).astimezone().isoformat(timespec="milliseconds")
    return f"=== attempt {attempt}, {when}, {os.uname().nodename}, process {os.getpid()}"


def failed_line(error: BaseException) -> str:
    """Return `=== failed: ...`, with the first line of an error; the error file has all of it."""
    told = printable(redact_string(describe_error(error)))
    return f"=== failed: {told.partition(chr(10))[0]}"


def heading_in_job(heading: str) -> str:
    """Return the heading of what a job's process writes itself; that of a run's part is without the last words."""
    return f"{heading}{_OWN}"


@dataclass(frozen=True, slots=True)
class Section:
    """One process's part of a log.

    Attributes:
        heading: Its first line, without the replica's number: `=== attempt 1, {time}, {host}, process 12 of its job`.
        replica: The replica's number where there are several; None for the only one.
    """

    heading: str
    replica: int | None = None

    @property
    def tag(self) -> str:
        """Beginning of each of its lines."""
        return "" if self.replica is None else f"[{self.replica}] "

    @property
    def opening(self) -> str:
        """Its first line in the log."""
        return f"{self.tag}{self.heading}"

    @property
    def closing(self) -> str:
        """Its last line in the log."""
        return f"{self.tag}=== end of {self.heading.removeprefix('=== ')}"

    def tagged(self, lines: Sequence[str]) -> list[str]:
        """Return lines as they stand in the log."""
        return [f"{self.tag}{line}" for line in lines] if self.tag else list(lines)


def missing_lines(log: str, section: Section, lines: Sequence[str]) -> list[str] | None:
    """Return what a log lacks of a section, its opening and closing included; None when it is closed.

    Args:
        log: The log.
        section: The section.
        lines: Its lines, without the replica's number: those that the log has are their beginning.
    """
    if is_closed(log, section):
        return None
    if section.opening not in log.split("\n"):
        return [section.opening, *section.tagged(lines), section.closing]
    return [*section.tagged(lines[_count_written(lines_of(log, section), lines) :]), section.closing]


def _count_written(written: Sequence[str], lines: Sequence[str]) -> int:
    """How many of a section's lines are written; what a run says of its own may stand between them."""
    count = 0
    for line in written:
        is_own = line.startswith("=== ") and (count >= len(lines) or line != lines[count])
        count += not is_own
    return count


def lines_of(log: str, section: Section) -> list[str]:
    """Return the lines that a log has of a section, without the replica's number; [] when it has not begun."""
    # Lines end with newlines alone: output may have other characters that `splitlines` takes for ends.
    written = log.removesuffix("\n").split("\n")
    if section.opening not in written:
        return []
    found: list[str] = []
    for line in written[written.index(section.opening) + 1 :]:
        if line == section.closing or (section.replica is None and _ANY_OPENING.fullmatch(line)):
            break
        if line.startswith(section.tag):
            found.append(line.removeprefix(section.tag))
    return found


def is_closed(log: str, section: Section) -> bool:
    """True if a log has all of a section."""
    return f"{section.closing}\n" in log


def open_sections(log: str, replica: int | None) -> list[Section]:
    """Return the sections of a replica (None: of the only one) that a log has begun and not closed, in order."""
    found: dict[str, Section] = {}
    for line in log[: log.rfind("\n") + 1].split("\n"):  # the last one may still be written
        match = _OPENING.fullmatch(line)
        if match is None:
            found.pop(line, None)
            continue
        section = Section(match["heading"], int(match["tag"][1:-2]) if match["tag"] else None)
        if section.replica == replica:
            found[section.closing] = section
    return list(found.values())
