"""Errors of actor calls."""

from rigging.errors import MarinError, Unavailable


class ActorDied(Unavailable):
    """The actor ended, or was started anew, before the call was answered; whether the method has run is not known."""


class ActorStopped(Unavailable):
    """The actor was shut down before the call began: it has not run."""


class RemoteError(MarinError, RuntimeError):
    """A method raised what cannot be sent to another process; the message has its type and text."""


class RemoteTraceback(Exception):
    """The traceback of the actor's process, as the cause of an exception that came from there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"
