"""Levels of log lines, as far as the lines tell them."""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iris.client import LogLine

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_RANK: Final = {name: rank for rank, name in enumerate(LEVELS)} | {"warn": 2, "fatal": 4}
_WORD: Final = re.compile(r"\b(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b")
_LETTER: Final = re.compile(r"([DIWEC])\d{4,8} ")
_LETTERS: Final = {"D": 0, "I": 1, "W": 2, "E": 3, "C": 4}
_HEAD: Final = 100
"""The level stands at a line's beginning, if anywhere."""


def at_level(lines: "Iterable[LogLine]", level: str) -> "Iterator[LogLine]":
    """Give the lines of this level and above.

    A line that tells none, such as one of a traceback, belongs to the one before it; lines before the first are given.
    """
    least = _RANK[level.lower()]
    last: dict[tuple[str, int, bool], int] = {}
    for line in lines:
        log = (line.task_id, line.attempt, line.is_stderr)
        rank = _rank(line.text)
        if rank is not None:
            last[log] = rank
        if last.get(log, least) >= least:
            yield line


def _rank(text: str) -> int | None:
    head = text[:_HEAD]
    if (letter := _LETTER.match(head)) is not None:
        return _LETTERS[letter[1]]
    word = _WORD.search(head)
    return None if word is None else _RANK[word[1].lower()]
