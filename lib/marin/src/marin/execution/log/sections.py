"""Find and complete the parts of a step's log that its jobs' processes wrote, from the log's text.

A part begins with a unique heading and ends with a closing line. With several replicas each line begins with the
replica's number. This module uses neither clocks nor storage.
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
LOST: Final = "=== lines may be missing here: their process is gone, and so is its output"


def heading(attempt: int, began: float) -> str:
    """Return this process's heading: `=== attempt {number}, {time}, {host}, process {id}`.

    Args:
        attempt: The attempt's number in its run, from 1.
        began: Its start, in seconds since the epoch.
    """
    when = datetime.datetime.fromtimestamp(began).astimezone().isoformat(timespec="milliseconds")
    return f"=== attempt {attempt}, {when}, {os.uname().nodename}, process {os.getpid()}"


def failed_line(error: BaseException) -> str:
    """Return `=== failed: ...` with the first line of an error. The error file has all of it."""
    told = printable(redact_string(describe_error(error)))
    return f"=== failed: {told.partition(chr(10))[0]}"


def heading_in_job(heading: str) -> str:
    """Return the heading of a part that a job's process writes itself. It ends with words that a run's heading
    lacks."""
    return f"{heading}{_OWN}"


@dataclass(frozen=True, slots=True)
class Section:
    """One process's part of a log.

    Attributes:
        heading: Its first line, without the replica's number: `=== attempt 1, {time}, {host}, process 12 of its job`.
        replica: The replica's number if there are several; None for a single one.
    """

    heading: str
    replica: int | None = None

    @property
    def tag(self) -> str:
        """The prefix of each of its lines."""
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
        """Return lines in log format."""
        return [f"{self.tag}{line}" for line in lines] if self.tag else list(lines)


def missing_lines(log: str, section: Section, lines: Sequence[str]) -> list[str] | None:
    """Return the lines of a section that a log lacks, including its opening and closing; None if it is closed.

    Args:
        log: The log.
        section: The section.
        lines: Its lines, without the replica's number. The log contains the first ones.
    """
    if is_closed(log, section):
        return None
    if section.opening not in log.split("\n"):
        return [section.opening, *section.tagged(lines), section.closing]
    return [*section.tagged(lines[_count_written(lines_of(log, section), lines) :]), section.closing]


def _count_written(written: Sequence[str], lines: Sequence[str]) -> int:
    """Return how many of a section's lines are written, ignoring the run's lines in between."""
    count = 0
    for line in written:
        is_own = line.startswith("=== ") and (count >= len(lines) or line != lines[count])
        count += not is_own
    return count


def lines_of(log: str, section: Section) -> list[str]:
    """Return a section's lines in a log, without the replica's number; [] if it has not started."""
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
    """Return whether a log has a complete section."""
    return f"{section.closing}\n" in log


def open_sections(log: str, replica: int | None) -> list[Section]:
    """Return a replica's open sections in a log (None: the only replica's), in order."""
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
