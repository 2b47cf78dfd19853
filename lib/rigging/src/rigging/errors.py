"""The error classes of marin: the kind of failure, and whether a retry may help.

Each class also derives from the builtin that users catch. Each takes one message, which names the thing, the wrong
value, and the allowed values or the next step.
"""


class MarinError(Exception):
    """The root of every error of a marin library. `retryable` is whether the same call may succeed later."""

    retryable: bool = False


class InvalidRequest(MarinError, ValueError):
    """The request can never succeed in its present form."""


class NotFound(MarinError, KeyError):
    """The named thing does not exist."""

    def __str__(self) -> str:
        # KeyError prints the repr of its argument; people should read the message, not a quoted string.
        return Exception.__str__(self)


class AlreadyExists(MarinError, FileExistsError):
    """The name is taken."""


class Conflict(MarinError, RuntimeError):
    """The thing's current state does not allow this."""


class Unavailable(MarinError, RuntimeError):
    """The other side is unreachable or cannot answer now."""

    retryable = True


class Denied(MarinError, PermissionError):
    """The caller is not allowed to do this."""


class JobFailed(MarinError, RuntimeError):
    """A job ended without success."""


class StepFailed(MarinError, RuntimeError):
    """A step of an experiment ended without success."""


class LeaseLost(MarinError, RuntimeError):
    """The lease is no longer held. Work done under it is unprotected."""


class BudgetExceeded(MarinError, RuntimeError):
    """The request would exceed a limit on bytes, money or capacity."""


class DeadlineExceeded(MarinError, TimeoutError):
    """The time limit expired."""
