"""How a client or a worker reaches its controller."""

from dataclasses import dataclass

from iris.tls.pins import parse_token
from rigging.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class ControllerAddress:
    """Where a controller listens ("host:port") and the token to show it. The repr hides the token.

    Args:
        socket: Path of its Unix socket, when it is on this machine and has one.
        ca_sha256: SHA-256 (hex) of the authority to which alone the token may be shown; empty: it pins none, and the
            connection is in the clear.
        insecure: The token may be shown in the clear beyond loopback.
    """

    address: str
    token: str
    socket: str = ""
    ca_sha256: str = ""
    insecure: bool = False

    @classmethod
    def of(cls, address: str, token_text: str, *, ca_sha256: str = "", insecure: bool = False) -> "ControllerAddress":
        """Make it of a token as people hold it.

        Args:
            address: "host:port".
            token_text: With the authority that it pins, or without.
            ca_sha256: The authority where the text pins none; empty: none.
            insecure: As of the class.
        """
        pinned = parse_token(token_text)
        return cls(address, pinned.token, ca_sha256=pinned.ca_sha256 or ca_sha256, insecure=insecure)

    def __repr__(self) -> str:
        return f"ControllerAddress({self.address!r}, token=<hidden>)"


def parse_address(address: str) -> str:
    """The "host:port" of an address; a scheme in front and a "/" behind are dropped.

    Raises:
        InvalidRequest: Anything else.
    """
    target = address.strip().rpartition("://")[2].rstrip("/")
    host, separator, port = target.rpartition(":")
    if not separator or not host or not port.isdigit() or not 0 < int(port) < 65536 or "/" in target:
        raise InvalidRequest(f"controller address {address!r} must be host:port, e.g. 10.0.0.2:7077")
    return target
