"""The parts of a step's log that processes of its jobs wrote: found again, and completed, by what stands in the log.

A part begins with a heading, which no other has, and ends with a closing line. Of several replicas each line begins
with the replica's number. Without clocks and storage.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_OWN: Final = " of its job"
_HEADING: Final = r"(?P<tag>(?:\[\d+\] )?)(?P<heading>=== attempt \d+, \S+, \S+, process \d+"
_OPENING: Final = re.compile(rf"{_HEADING}{_OWN})")
# Of a part that a run wrote, too.
_ANY_OPENING: Final = re.compile(rf"{_HEADING}(?:{_OWN})?)")
LOST: Final = "=== lines may be missing here: their process is gone, and nobody has its output"


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


def note_open(open_sections: dict[str, Section], line: str, replica: int | None) -> None:
    """Take in a line of a log: the sections of a replica that are open, by their closing lines, in order.

    Args:
        open_sections: Those of the lines before; changed in place.
        line: The line, without its end.
        replica: The replica whose sections are looked for; None for the only one.
    """
    match = _OPENING.fullmatch(line)
    if match is None:
        open_sections.pop(line, None)
        return
    section = Section(match["heading"], int(match["tag"][1:-2]) if match["tag"] else None)
    if section.replica == replica:
        open_sections[section.closing] = section
