"""Converts slices and closures of the autoscaler to rows and back. The columns are the fields, in order."""

from dataclasses import astuple, fields, replace
from typing import Final

from iris.autoscale.closures import Closure
from iris.autoscale.model import Outcome, SliceRecord, SliceState
from iris.store.rows import Row

_OTHER_NAMES: Final = {"group": "scale_group"}
"""`group` is a word of SQL."""
SLICE_COLUMNS: Final = tuple(_OTHER_NAMES.get(field.name, field.name) for field in fields(SliceRecord))
CLOSURE_COLUMNS: Final = tuple(field.name for field in fields(Closure))


def slice_row(record: SliceRecord) -> Row:
    """Return the row of a slice."""
    return tuple("" if value is None else value for value in astuple(record))


def slice_of(row: Row) -> SliceRecord:
    """Return the slice of a row."""
    record = SliceRecord(*row)
    return replace(record, state=SliceState(record.state), outcome=Outcome(record.outcome) if record.outcome else None)


def closure_row(closure: Closure) -> Row:
    """Return the row of a closure."""
    return astuple(closure)


def closure_of(row: Row) -> Closure:
    """Return the closure of a row."""
    closure = Closure(*row)
    return replace(closure, outcome=Outcome(closure.outcome))
