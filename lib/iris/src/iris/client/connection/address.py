"""Addresses of controllers, as users write them."""

from rigging.errors import InvalidRequest


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
