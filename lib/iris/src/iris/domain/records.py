"""Records of the history: every applied event with its caller, and other requests."""

from dataclasses import dataclass
from typing import Final

from iris.domain.events import Begun, Event, LendCpu, RetryDue
from iris.domain.ids import WorkerId


@dataclass(frozen=True, slots=True)
class Caller:
    """The name and address of a caller; both empty for the controller itself.

    Args:
        name: A user, a job id or a worker id.
        address: The caller's IP address, or "unix" for a socket of this machine.
    """

    name: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Requested:
    """A caller used an RPC that changes no job and no worker, e.g. revoked a token.

    Args:
        action: A readable name of the RPC, e.g. "revoke users' tokens".
        subject: The entity; empty for none.
    """

    action: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class AutoCordoned:
    """The controller cordoned a worker whose host made attempts fail."""

    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True)
class ControllerStarted:
    """A controller loaded the stored state; its predecessor's memory is lost."""

    version: str


UNHURRIED: Final = (ControllerStarted, Begun, LendCpu, RetryDue)
"""Kinds that are written with the next commit and need none themselves: a restart forgets their consequences, too."""

Recorded = Event | Requested | AutoCordoned | ControllerStarted


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the history.

    Args:
        turn: The turn of the engine. A turn ends with a scheduling round, so the records of one turn precede its
            decisions.
        at_ms: Unix time in milliseconds.
        what: The event.
        caller: The caller who requested it.
        is_decision: Whether it is a decision of the scheduler, in this turn's round.
    """

    turn: int
    at_ms: int
    what: Recorded
    caller: Caller
    is_decision: bool = False


NOBODY: Final = Caller()
