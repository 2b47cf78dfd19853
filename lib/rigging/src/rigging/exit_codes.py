"""The exit codes of this project's command lines, and the mapping from errors to exit codes."""

from typing import Final

from rigging.errors import (
    AlreadyExists,
    BudgetExceeded,
    Conflict,
    Denied,
    InvalidRequest,
    MarinError,
    NotFound,
    Unavailable,
)

OK: Final = 0
FAILURE: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
NOT_FOUND: Final = 4
UNREACHABLE: Final = 5
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141

_TABLE: Final[tuple[tuple[type[MarinError], int], ...]] = (
    (NotFound, NOT_FOUND),
    (Unavailable, UNREACHABLE),
    (InvalidRequest, REFUSED),
    (AlreadyExists, REFUSED),
    (Conflict, REFUSED),
    (Denied, REFUSED),
    (BudgetExceeded, REFUSED),
)


def exit_code_of(error: MarinError) -> int:
    """Return the exit code for an error that ends a command."""
    return next((code for error_class, code in _TABLE if isinstance(error, error_class)), FAILURE)
