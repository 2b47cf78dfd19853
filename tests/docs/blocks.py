"""The fenced blocks of a Markdown page."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+)(?P<info>[^\n`]*)$")


@dataclass(frozen=True)
class FencedBlock:
    """A fenced block.

    Args:
        page: Path of the page, relative to the repository.
        line: Where it begins, counted from 1.
        heading: The text of the last heading above it.
        language: The first word after the fence; may be empty.
        title: `title="..."` after the language; may be empty.
        text: What is inside, without the fence's indentation.
    """

    page: str
    line: int
    heading: str
    language: str
    title: str
    text: str

    @property
    def first_line(self) -> str:
        return next((line.strip() for line in self.text.splitlines() if line.strip()), "")


def blocks_of(page: str) -> list[FencedBlock]:
    """All fenced blocks of a page, in order. Raises ValueError for a fence that is not closed."""
    return list(_blocks(page, (REPOSITORY / page).read_text(encoding="utf-8")))


def _blocks(page: str, text: str) -> Iterator[FencedBlock]:
    heading, begin, opened, inside = "", 0, None, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None:
            if fence is not None:
                opened, begin, inside = fence, number, []
            elif line.startswith("#"):
                heading = line.lstrip("# ")
        elif fence is not None and fence["fence"] == opened["fence"] and not fence["info"]:
            language, _, rest = opened["info"].strip().partition(" ")
            title = re.search(r'title="([^"]*)"', rest)
            yield FencedBlock(page, begin, heading, language, title[1] if title else "", "\n".join(inside) + "\n")
            opened = None
        else:
            inside.append(line.removeprefix(opened["indent"]))
    if opened is not None:
        raise ValueError(f"{page}:{begin}: the fence is not closed")
