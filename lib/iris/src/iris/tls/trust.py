"""Fetches a controller's authority (CA) by its digest, before any secret is sent. Also tells which addresses need no
encryption.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from iris.tls.certificates import SERVER_NAME, authority_in, digest_of
from rigging.errors import Denied, Unavailable
from rigging.filesystem.private import write_private

HANDSHAKE_S: Final = 5.0


class _NoHandshake(OSError):
    """A listener accepted the connection, but did not answer."""


def is_loopback(address: str) -> bool:
    """Return whether a "host:port" or a host is this machine's loopback, where no other host can listen."""
    host = address.rpartition(":")[0] if address.count(":") == 1 or address.startswith("[") else address
    host = host.strip("[]")
    if host == "localhost" or host == "127.0.0.1":
        return True
    import ipaddress

    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def default_ca_dir(environ: Mapping[str, str]) -> Path:
    """Return the user's directory of known authorities: iris/ca in XDG_CACHE_HOME or ~/.cache."""
    base = environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache")) / "iris" / "ca"


def trusted_ca(address: str, ca_sha256: str, ca_dir: Path) -> bytes:
    """Return the authority (PEM) with this digest, from the store or else from the controller.

    Args:
        address: "host:port" of the controller.
        ca_sha256: The digest, in hex.
        ca_dir: The directory of stored authorities, named by digest; a new authority is added.

    Raises:
        Denied: The controller presents another authority, or does not use TLS. No secret was sent.
        Unavailable: The controller cannot be reached.
    """
    kept = ca_dir / f"{ca_sha256}.pem"
    with contextlib.suppress(OSError, ValueError):
        pem = kept.read_bytes()
        if digest_of(pem) == ca_sha256:
            return pem
    pem = fetch_ca(address, ca_sha256)
    with contextlib.suppress(OSError):
        _keep(kept, pem)
    return pem


def fetch_ca(address: str, ca_sha256: str, timeout: float = HANDSHAKE_S) -> bytes:
    """Get a controller's authority in an unverified handshake, and check the authority's digest.

    Args:
        address: "host:port".
        ca_sha256: The expected digest, in hex.
        timeout: Timeout in seconds.

    Raises:
        Denied: The controller presents another authority or none, or does not use TLS.
        Unavailable: The controller cannot be reached.
    """
    import hashlib
    import ssl

    try:
        server = _server_certificate(address, timeout)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError):
        raise Unavailable(f"{address} closed the connection during the TLS handshake; nothing was sent to it") from None
    except ssl.SSLError as error:
        raise Denied(
            f"{address} does not speak TLS, but the token is for a controller that does; nothing was sent to it "
            f"({_words(error)}). If that controller now serves with --insecure, make a new token there"
        ) from None
    except _NoHandshake:
        raise Unavailable(
            f"{address} accepts connections, but answered no TLS handshake within {timeout:g} s: it is stuck, or "
            "serves without TLS (--insecure); then make a new token there. Nothing was sent to it"
        ) from None
    except OSError as error:
        raise Unavailable(f"the controller at {address} cannot be reached: {_words(error)}") from None
    authority = authority_in(server)
    if authority is None:
        raise Denied(f"{address} speaks TLS, but is not an iris controller: its certificate names no authority")
    found = hashlib.sha256(authority).hexdigest()
    if found != ca_sha256:
        raise Denied(
            f"the controller at {address} has the CA {found}, the token is for {ca_sha256}; nothing was sent to it. "
            "Either it is another controller, or its certificates were made anew: then make a new token there"
        )
    return ssl.DER_cert_to_PEM_cert(authority).encode()


def speaks_tls(address: str, timeout: float = 2.0) -> bool:
    """Return whether a listener answers a TLS handshake, for error messages after a plain connection has failed."""
    try:
        _server_certificate(address, timeout)
    except OSError:
        return False
    return True


def _server_certificate(address: str, timeout: float) -> bytes:
    # Imported only here: who stays on loopback needs none of it.
    import socket
    import ssl

    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # What is shown is checked by its digest; this connection carries nothing else.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host.strip("[]"), int(port)), timeout) as raw:
        try:
            with context.wrap_socket(raw, server_hostname=SERVER_NAME) as connection:
                return connection.getpeercert(binary_form=True) or b""
        except TimeoutError:
            raise _NoHandshake from None


def certificate_trouble(reason: str, now: float) -> str:
    """Return the problem with a controller's certificate, as text after "its certificate"; "" for none.

    Args:
        reason: gRPC's message.
        now: Current time of this host in Unix seconds.
    """
    text = reason.lower()
    if "certificate" not in text:
        return ""
    for known in ("is not yet valid", "has expired"):
        if known in text:
            clock = time.strftime("%Y-%m-%d %H:%M", time.gmtime(now))
            return f"{known} by this host's clock, which says {clock} UTC: set it right; nothing was sent to it"
    return "was not signed by the CA that the token pins; nothing was sent to it"


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(getattr(error, "strerror", "") or getattr(error, "reason", "") or error or type(error).__name__)


def _keep(place: Path, pem: bytes) -> None:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(place, pem)
