"""The HTTP status of each error."""

from __future__ import annotations

from typing import Final

from rigging.errors import (
    AlreadyExists,
    BudgetExceeded,
    Conflict,
    DeadlineExceeded,
    Denied,
    InvalidRequest,
    MarinError,
    NotFound,
    Unavailable,
)

_STATUSES: Final[tuple[tuple[type[MarinError], int], ...]] = (
    (NotFound, 404),
    (InvalidRequest, 400),
    (Denied, 403),
    (Conflict, 409),
    (AlreadyExists, 409),
    (BudgetExceeded, 429),
    (Unavailable, 503),
    (DeadlineExceeded, 504),
)


def status_of(error: Exception) -> int | None:
    """Return the status of an expected error; None for any other."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), None)
