"""The address of this host at which other hosts of the cluster reach it."""

import contextlib
import ipaddress
import socket


def source_address(controller_address: str) -> str:
    """Return the address of this host at which machines on the way to "host:port" find it; empty when only itself does.

    The system is asked which of its addresses it would send from; nothing is sent. IPv6 addresses are in brackets.
    """
    host, _, port = controller_address.rpartition(":")
    with contextlib.suppress(OSError, ValueError):
        choices = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        family, kind, protocol, _, where = choices[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(where)
            own = ipaddress.ip_address(probe.getsockname()[0])
        if not own.is_loopback and not own.is_unspecified:
            return f"[{own}]" if own.version == 6 else str(own)
    return ""
