"""One page of a long list. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Row = TypeVar("Row")
PAGE_SIZE: Final = 50
_SHOWN_AROUND: Final = 2
_LONGEST_NUMBER: Final = 9


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Rows of a list, and their position in it.

    Attributes:
        rows: The rows.
        number: The page's number, from 1.
        total: The number of rows in the list.
        size: Rows on a full page.
    """

    rows: Sequence[Row]
    number: int
    total: int
    size: int = PAGE_SIZE

    @property
    def last(self) -> int:
        """The last page's number."""
        return max(1, -(-self.total // self.size))

    @property
    def first_row(self) -> int:
        """The position of the first row in the list, from 1; 0 if the list is empty."""
        return (self.number - 1) * self.size + 1 if self.total else 0

    @property
    def last_row(self) -> int:
        """The position of the last row."""
        return min(self.number * self.size, self.total)

    @property
    def numbers(self) -> list[int | None]:
        """The page numbers to link: the first, the last, and those around this one; None marks a gap."""
        near = range(max(1, self.number - _SHOWN_AROUND), min(self.last, self.number + _SHOWN_AROUND) + 1)
        shown: list[int | None] = []
        for number in sorted({1, *near, self.last}):
            if shown and shown[-1] is not None and number > shown[-1] + 1:
                shown.append(None)
            shown.append(number)
        return shown


def page_of(rows: Sequence[Row], number: int, size: int = PAGE_SIZE) -> Page[Row]:
    """Return a page of an in-memory list; the last page if `number` is too large.

    Args:
        rows: The list.
        number: The page, from 1.
        size: Rows on a page.
    """
    number = page_number(number, len(rows), size)
    return Page(rows[(number - 1) * size : number * size], number, len(rows), size)


def page_number(number: int, total: int, size: int = PAGE_SIZE) -> int:
    """Return the existing page number nearest to the requested one.

    Args:
        number: The requested page, from 1.
        total: The number of rows in the list.
        size: Rows on a page.
    """
    return min(max(1, number), max(1, -(-total // size)))


def asked_page(text: str | None) -> int:
    """Return the page number in a query; 1 if it is not a number."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else 1
