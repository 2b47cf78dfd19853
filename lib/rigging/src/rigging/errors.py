"""The one error family of marin: what went wrong, and whether trying again may help.

Each class also derives from the builtin its users catch. All take one message, which names the thing,
the value that was wrong and what is allowed or what to do next.
"""


class MarinError(Exception):
    """Root of every error raised by a marin library; `retryable` says whether the same call may later succeed."""

    retryable: bool = False


class InvalidRequest(MarinError, ValueError):
    """The request can never succeed as it stands."""


class NotFound(MarinError, KeyError):
    """The thing that was named does not exist."""

    def __str__(self) -> str:
        # KeyError prints the repr of its argument; people should read the message, not a quoted string.
        return Exception.__str__(self)


class AlreadyExists(MarinError, FileExistsError):
    """The name is taken."""


class Conflict(MarinError, RuntimeError):
    """The thing is in a state in which this cannot be done."""


class Unavailable(MarinError, RuntimeError):
    """The other side cannot be reached or cannot answer now."""

    retryable = True


class Denied(MarinError, PermissionError):
    """The caller may not do this."""


class JobFailed(MarinError, RuntimeError):
    """A job ended without success."""


class StepFailed(MarinError, RuntimeError):
    """A step of an experiment ended without success."""


class LeaseLost(MarinError, RuntimeError):
    """The lease is no longer held; work done under it is unprotected."""


class BudgetExceeded(MarinError, RuntimeError):
    """A limit on bytes, money or capacity would be passed."""


class DeadlineExceeded(MarinError, TimeoutError):
    """The time allowed ran out first."""
