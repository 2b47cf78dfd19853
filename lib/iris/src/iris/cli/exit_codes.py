"""Exit codes of the command line, and which error gives which.

`iris job run` ends with the code of the command it ran (128 + n for signal n), which may coincide with one of these; a
line on stderr always says what happened.
"""

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
GONE_WHILE_WAITING: Final = 6
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
    """The exit code for an error that ends a command."""
    return next((code for error_class, code in _TABLE if isinstance(error, error_class)), FAILURE)
