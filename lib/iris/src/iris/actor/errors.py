"""Errors of actor calls."""

from rigging.errors import MarinError, Unavailable


class ActorDied(Unavailable):
    """The actor ended or restarted before it answered the call. The method may have run."""


class ActorStopped(Unavailable):
    """The actor was shut down before the call started. The method did not run."""


class RemoteError(MarinError, RuntimeError):
    """A method raised an exception that cannot be pickled. The message has its type and text."""


class RemoteTraceback(Exception):
    """The traceback in the actor's process: the cause of an exception that was raised there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"
