"""Reads and writes the rows of the table `ledger`."""

import sqlite3
from dataclasses import replace
from typing import Final

from iris.domain.usage import DAY_MS, LedgerRow, Owner, Price, Use
from iris.store.rows import Row

LEDGER_KEY: Final = ("start_ms", "user", "job_id", "worker_group")
_AMOUNTS: Final = tuple(f"{use.name.lower()}_{unit}_ms" for unit in ("core", "chip") for use in Use)
LEDGER_COLUMNS: Final = (*LEDGER_KEY, "counted_ms", "core_hour_price", "chip_hour_price", *_AMOUNTS)
_ALL: Final = ", ".join(LEDGER_COLUMNS)
_IS_OPEN: Final = "running_core_ms + running_chip_ms > 0"
_SUMS: Final = ", ".join(f"sum({name})" for name in _AMOUNTS)
_OLD: Final = f"FROM ledger WHERE start_ms < ? AND (start_ms % {DAY_MS} OR {_IS_OPEN})"


def ledger_row(row: LedgerRow) -> Row:
    """Return the row of the table."""
    return (
        row.start_ms,
        *row.owner,
        row.counted_ms,
        row.price.core_hour,
        row.price.chip_hour,
        *row.core_ms,
        *row.chip_ms,
    )


def read_ledger(connection: sqlite3.Connection) -> tuple[list[LedgerRow], int]:
    """Return the rows that may still change, and the end of the counted time (Unix ms; 0 for an empty table)."""
    newest, counted_ms = connection.execute(
        "SELECT start_ms, max(counted_ms) FROM ledger WHERE start_ms = (SELECT max(start_ms) FROM ledger)"
    ).fetchone()
    if newest is None:
        return [], 0
    found = connection.execute(
        f"SELECT {_ALL} FROM ledger WHERE {_IS_OPEN} OR start_ms = ? ORDER BY {', '.join(LEDGER_KEY)}", (newest,)
    )
    return list(map(_of, found)), counted_ms


def older_day(connection: sqlite3.Connection, before_ms: int) -> tuple[list[int], list[Row]]:
    """Return the hours of the oldest day that still has hours, and the day's rows that replace them.

    Args:
        connection: The database.
        before_ms: Only days before this day (Unix ms).
    """
    (oldest,) = connection.execute(f"SELECT min(start_ms) {_OLD}", (before_ms,)).fetchone()
    if oldest is None:
        return [], []
    day = oldest - oldest % DAY_MS
    where = "FROM ledger WHERE start_ms >= ? AND start_ms < ?"
    span = (day, day + DAY_MS)
    hours = [start_ms for (start_ms,) in connection.execute(f"SELECT DISTINCT start_ms {where}", span)]
    sums = connection.execute(
        f"SELECT ?, user, job_id, worker_group, max(counted_ms), max(core_hour_price), max(chip_hour_price), {_SUMS} "
        f"{where} GROUP BY user, job_id, worker_group",
        (day, *span),
    )
    return hours, [ledger_row(_decided(_of(row))) for row in sums]


def _of(row: Row) -> LedgerRow:
    start_ms, user, job_id, group, counted_ms, core_hour, chip_hour, *amounts = row
    cores, chips = tuple(amounts[: len(Use)]), tuple(amounts[len(Use) :])
    return LedgerRow(start_ms, Owner(user, job_id, group), cores, chips, counted_ms, Price(core_hour, chip_hour))


def _decided(row: LedgerRow) -> LedgerRow:
    """Return the row with its running time as productive: what runs for a month is of use."""
    cores, chips = list(row.core_ms), list(row.chip_ms)
    for amounts in (cores, chips):
        amounts[Use.PRODUCTIVE] += amounts[Use.RUNNING]
        amounts[Use.RUNNING] = 0
    return replace(row, core_ms=tuple(cores), chip_ms=tuple(chips))
