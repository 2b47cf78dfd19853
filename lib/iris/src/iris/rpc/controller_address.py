"""How a client or a worker reaches its controller."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ControllerAddress:
    """Where a controller listens ("host:port") and the token to show it. The repr hides the token.

    Args:
        socket: Path of its Unix socket, when it is on this machine and has one.
    """

    address: str
    token: str
    socket: str = ""

    def __repr__(self) -> str:
        return f"ControllerAddress({self.address!r}, token=<hidden>)"
