"""The table of what cores and chips were used for, in hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

CLASSES: Final = ("productive", "running", "environment", "waiting", "restart", "lost", "reserved", "idle")


def hours_table(what: str, sums: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return column headers and rows: a row of cores and a row of chips for each name. Unused classes are left out.

    Args:
        what: Header of the names.
        sums: Objects with `name`, `class`, `core_hours`, `chip_hours` and `cost`, which is None if unknown.
    """
    shown = [name for name in CLASSES if any(each["class"] == name for each in sums)]
    has_cost = any(each["cost"] for each in sums)
    rows = []
    for name in dict.fromkeys(each["name"] for each in sums):
        mine = [each for each in sums if each["name"] == name]
        costs = [f"{sum(each['cost'] or 0 for each in mine):,.2f}"] if has_cost else []
        for unit in ("core", "chip"):
            hours = {column: sum(each[f"{unit}_hours"] for each in mine if each["class"] == column) for column in shown}
            if any(hours.values()):
                amounts = [sum(hours.values()), *hours.values()]
                rows.append([name, f"{unit}s", *(f"{amount:,.2f}" if amount else "-" for amount in amounts), *costs])
                name, costs = "", [""] if has_cost else []
    return [what, "hours of", "total", *shown, *(["cost"] if has_cost else [])], rows
