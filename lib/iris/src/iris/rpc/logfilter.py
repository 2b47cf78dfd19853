"""Selects log lines by text, level, time and attempt, for both ends of a connection. Pure.

A filter processes one attempt's records in order and matches whole lines: it buffers partial lines until their end, up
to 1 MiB. It always selects notes about missing output, so that gaps stay visible.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from rigging.errors import InvalidRequest

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
ANY_ATTEMPT: Final = -1
LONGEST_PATTERN: Final = 4096

_RANK: Final = {name: rank for rank, name in enumerate(LEVELS)} | {"warn": 2, "fatal": 4}
_WORD: Final = re.compile(rb"\b(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b")
_LETTER: Final = re.compile(rb"([DIWEC])\d{4,8} ")
_LETTERS: Final = {b"D": 0, b"I": 1, b"W": 2, b"E": 3, b"C": 4}
_HEAD: Final = 100
"""Number of bytes at the start of a line to search for a level."""
_HELD_BYTES: Final = 1024 * 1024

_SPECIAL: Final = frozenset(".^$*+?{}[]|()\\")
_ESCAPED: Final = re.compile(r"\\([^A-Za-z0-9])")
_NUMBERED: Final = re.compile(r"\\[0-9xuUN]")  # a character by its number, or a group
_REPEATED: Final = re.compile(r"[*?+]|\{\d*,?\d*\}")
_SHORTEST_LITERAL: Final = 2
_LOOKS_AROUND: Final = re.compile(r"[\^$*+]|\\[bBAZ]|\{\d*,\}|\(\?(?![ais]+\)|:)")
"""Constructs that depend on a line's ends, such as anchors, or that may scan a whole block at each position."""


class Piece(Protocol):
    """A record of a log, or a client's line, with the fields for a filter."""

    @property
    def is_stderr(self) -> bool: ...
    @property
    def at_ms(self) -> int: ...
    @property
    def data(self) -> bytes: ...
    @property
    def partial(self) -> bool: ...
    @property
    def note(self) -> bool: ...


P = TypeVar("P", bound=Piece)


@dataclass(frozen=True, slots=True)
class LineChoice:
    """The selected lines of a log.

    Args:
        grep: A regular expression to search in the UTF-8 of each line; empty for all lines.
        level: One of LEVELS: lines of this level and above; empty for all. A line without a level, for example of a
            traceback, has the previous line's level. Lines before the first level are selected.
        until_ms: Maximum time of lines in Unix ms; 0 for no maximum.
        attempt: Select only this attempt of each task; ANY_ATTEMPT for all.

    Raises:
        InvalidRequest: The expression or the level is invalid, or a number is out of range.
    """

    grep: str = ""
    level: str = ""
    until_ms: int = 0
    attempt: int = ANY_ATTEMPT

    def __post_init__(self) -> None:
        if len(self.grep) > LONGEST_PATTERN:
            raise InvalidRequest(f"the pattern has {len(self.grep):,} characters; {LONGEST_PATTERN:,} are allowed")
        try:
            re.compile(self.grep.encode())
        except (re.error, UnicodeEncodeError, OverflowError, RecursionError) as error:
            raise InvalidRequest(f"pattern {self.grep!r} is not a regular expression: {error}") from None
        if self.level and self.level.lower() not in LEVELS:
            raise InvalidRequest(f"level {self.level!r} is not one of {', '.join(LEVELS)}")
        if self.until_ms < 0 or self.attempt < ANY_ATTEMPT:
            raise InvalidRequest(
                f"until_ms ({self.until_ms}) must be 0 or more, attempt ({self.attempt}) must be {ANY_ATTEMPT} or more"
            )

    @property
    def looks_at_lines(self) -> bool:
        """Whether lines must be matched; a selection by attempt only selects logs."""
        return bool(self.grep or self.level or self.until_ms)

    @property
    def pattern(self) -> "re.Pattern[bytes] | None":
        """The compiled expression; None for all lines."""
        return re.compile(self.grep.encode()) if self.grep else None


@dataclass(slots=True)
class _Stream(Generic[P]):
    """One stream of an attempt: the pieces of its unfinished line, and the last level."""

    held: list[P] = field(default_factory=list)
    held_bytes: int = 0
    rank: int | None = None


class LineFilter(Generic[P]):
    """Selects the lines of one attempt from its records, in order."""

    def __init__(self, choice: LineChoice) -> None:
        self._pattern = choice.pattern
        self._least = _RANK[choice.level.lower()] if choice.level else None
        self._until_ms = choice.until_ms
        self._streams: dict[bool, _Stream[P]] = {False: _Stream(), True: _Stream()}

    @property
    def is_between_lines(self) -> bool:
        """Whether the next record starts a new line."""
        return not (self._streams[False].held or self._streams[True].held)

    def take(self, piece: P) -> list[P]:
        """Add a piece and return the selected pieces, in order: none, this one, or all pieces of a line."""
        if self._until_ms and piece.at_ms > self._until_ms:
            return []
        if piece.note:
            return [piece]
        stream = self._streams[piece.is_stderr]
        if not piece.partial and not stream.held:
            return [piece] if self._wants(stream, piece.data) else []
        stream.held.append(piece)
        stream.held_bytes += len(piece.data)
        return self._end_line(stream) if not piece.partial or stream.held_bytes > _HELD_BYTES else []

    def finish(self) -> Iterator[P]:
        """Return the selected lines that are unfinished."""
        for stream in self._streams.values():
            if stream.held:
                yield from self._end_line(stream)

    def _end_line(self, stream: _Stream[P]) -> list[P]:
        held, stream.held, stream.held_bytes = stream.held, [], 0
        return held if self._wants(stream, b"".join(piece.data for piece in held)) else []

    def _wants(self, stream: _Stream[P], line: bytes) -> bool:
        if self._least is not None:
            rank = _rank(line)
            if rank is not None:
                stream.rank = rank
            if stream.rank is not None and stream.rank < self._least:
                return False
        return self._pattern is None or self._pattern.search(line) is not None


def _rank(line: bytes) -> int | None:
    head = line[:_HEAD]
    if (letter := _LETTER.match(head)) is not None:
        return _LETTERS[letter[1]]
    word = _WORD.search(head)
    return None if word is None else _RANK[word[1].decode().lower()]


def required_text(pattern: str) -> bytes:
    """Return a long text that every match of the expression must contain; empty if it is not easily determined.

    A block without this text need not be matched line by line.
    """
    if "|" in pattern or "(?" in pattern or _NUMBERED.search(pattern):
        return b""
    runs: list[str] = [""]
    depth = position = 0
    while position < len(pattern):
        character = pattern[position]
        escaped = _ESCAPED.match(pattern, position)
        text = escaped[1] if escaped else "" if character in _SPECIAL else character
        if character == "[":
            position = _class_end(pattern, position)
        else:
            position += 2 if character == "\\" else 1
        depth += (character == "(") - (character == ")")
        repeat = _REPEATED.match(pattern, position)
        if repeat is not None:
            # How often it comes is not known, so it ends the text before it.
            position = repeat.end()
            text = ""
        if text and not depth:
            runs[-1] += text
        else:
            runs.append("")
    longest = max(runs, key=len).encode()
    return longest if len(longest) >= _SHORTEST_LITERAL else b""


def finds_in_blocks(pattern: str) -> bool:
    """Return whether each match in a line is also found if other bytes precede and follow the line.

    Then many lines can be searched at once, and only lines with a match are processed separately. False also if this is
    not easily determined.
    """
    return not _LOOKS_AROUND.search(pattern)


def _class_end(pattern: str, position: int) -> int:
    """Return the end of the character class that starts at an index."""
    position += 2 if pattern[position + 1 : position + 2] == "^" else 1
    position += 1  # a "]" that comes first is one of the class
    while position < len(pattern) and pattern[position] != "]":
        position += 2 if pattern[position] == "\\" else 1
    return position + 1
