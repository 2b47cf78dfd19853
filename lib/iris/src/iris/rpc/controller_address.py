"""The address of a controller for clients and workers."""

from dataclasses import dataclass

from iris.tls.pins import parse_token
from rigging.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class ControllerAddress:
    """A controller's address ("host:port") and the token for it. The repr hides the token.

    Args:
        socket: Path of its Unix socket, if it is on this machine and has one.
        ca_sha256: SHA-256 (hex) of the only authority to which the token may be sent; empty for none and an unencrypted
            connection.
        insecure: Allow sending the token unencrypted beyond loopback.
    """

    address: str
    token: str
    socket: str = ""
    ca_sha256: str = ""
    insecure: bool = False

    @classmethod
    def of(cls, address: str, token_text: str, *, ca_sha256: str = "", insecure: bool = False) -> "ControllerAddress":
        """Create an address from the text form of a token.

        Args:
            address: "host:port".
            token_text: The token, with or without a pinned authority.
            ca_sha256: The authority if the text pins none; empty for none.
            insecure: As in the class.
        """
        pinned = parse_token(token_text)
        return cls(address, pinned.token, ca_sha256=pinned.ca_sha256 or ca_sha256, insecure=insecure)

    def __repr__(self) -> str:
        return f"ControllerAddress({self.address!r}, token=<hidden>)"


def parse_address(address: str) -> str:
    """Return the "host:port" of an address, without a leading scheme or a trailing "/".

    Raises:
        InvalidRequest: The text is not an address.
    """
    target = address.strip().rpartition("://")[2].rstrip("/")
    host, separator, port = target.rpartition(":")
    if not separator or not host or not port.isdigit() or not 0 < int(port) < 65536 or "/" in target:
        raise InvalidRequest(f"controller address {address!r} must be host:port, e.g. 10.0.0.2:7077")
    return target
