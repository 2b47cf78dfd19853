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
    """Rows of a list, and where they are in it.

    Attributes:
        rows: The rows.
        number: The page's number, from 1.
        total: How many rows the list has.
        size: Rows on a full page.
    """

    rows: Sequence[Row]
    number: int
    total: int
    size: int = PAGE_SIZE

    @property
    def last(self) -> int:
        """The number of the last page."""
        return max(1, -(-self.total // self.size))

    @property
    def first_row(self) -> int:
        """The place of the first row in the list, from 1; 0 when the list is empty."""
        return (self.number - 1) * self.size + 1 if self.total else 0

    @property
    def last_row(self) -> int:
        """The place of the last row."""
        return min(self.number * self.size, self.total)

    @property
    def numbers(self) -> list[int | None]:
        """The pages to offer: the first, the last, those around this one; None for what is left out."""
        near = range(max(1, self.number - _SHOWN_AROUND), min(self.last, self.number + _SHOWN_AROUND) + 1)
        shown: list[int | None] = []
        for number in sorted({1, *near, self.last}):
            if shown and shown[-1] is not None and number > shown[-1] + 1:
                shown.append(None)
            shown.append(number)
        return shown


def page_of(rows: Sequence[Row], number: int, size: int = PAGE_SIZE) -> Page[Row]:
    """Return a page of a list that is at hand; the last one when there are not so many.

    Args:
        rows: The list.
        number: The page, from 1.
        size: Rows on a page.
    """
    number = page_number(number, len(rows), size)
    return Page(rows[(number - 1) * size : number * size], number, len(rows), size)


def page_number(number: int, total: int, size: int = PAGE_SIZE) -> int:
    """Return the number of a page that exists: the nearest to the one that is asked for.

    Args:
        number: The page that is asked for, from 1.
        total: Rows of the list.
        size: Rows on a page.
    """
    return min(max(1, number), max(1, -(-total // size)))


def asked_page(text: str | None) -> int:
    """Return the page that a query names; the first for anything that is no number."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else 1
