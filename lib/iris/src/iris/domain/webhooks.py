"""Validates and redacts the webhooks for the ends of jobs. Pure.

All of the address except scheme and host is secret, because many services put the key into the path.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from rigging.errors import InvalidRequest

LONGEST: Final = 2048
_SCHEMES: Final = {"http": 80, "https": 443}
_DEFAULT_PORTS: Final = frozenset(_SCHEMES.items())

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Webhook:
    """The parts of a webhook's address.

    Args:
        target: Path and query.
        userinfo: "user:password"; empty for none.
    """

    scheme: str
    host: str
    port: int
    target: str
    userinfo: str = ""

    @property
    def authority(self) -> str:
        """Host, and the port unless it is the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if (self.scheme, self.port) in _DEFAULT_PORTS else f"{host}:{self.port}"

    def __str__(self) -> str:
        rest = "/..." if self.target != "/" else ""
        return f"{self.scheme}://{self.authority}{rest}"


def parse_webhook(url: str) -> Webhook:
    """Return the parts of an address. Raise InvalidRequest, which shows only its host and scheme."""
    if len(url) > LONGEST:
        raise InvalidRequest(f"the notify URL has {len(url):,} characters; at most {LONGEST:,} are allowed")
    if any(ord(character) <= 32 or ord(character) >= 127 for character in url):
        raise InvalidRequest("the notify URL contains a space, a control character or a non-ASCII character")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidRequest(f"the notify URL cannot be read: {error}") from None
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise InvalidRequest(
            f"the notify URL begins with {url.partition('://')[0][:20]!r}; it must be http://HOST/... or https://HOST/..."
        )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    userinfo = parts.netloc.rpartition("@")[0]
    return Webhook(parts.scheme, parts.hostname, _SCHEMES[parts.scheme] if port is None else port, target, userinfo)


def shown(url: str) -> str:
    """Return the part of an address that may be shown; empty for none."""
    if not url:
        return ""
    try:
        webhook = parse_webhook(url)
    except InvalidRequest:
        return "..."
    # One that has nothing to hide stays as it was written.
    return url if webhook.target == "/" and not webhook.userinfo and "#" not in url else str(webhook)


# Networks of IPv6 whose addresses hold one of IPv4, and the bits below that: NAT64 (RFC 6052), 6to4, IPv4-compatible.
_HOLDS_IPV4: Final = (
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
    (ipaddress.IPv6Network("::/96"), 0),
)
_LOCAL_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")  # RFC 8215; not every Python calls it private


def _reached(address: IpAddress) -> IpAddress:
    """Return the IPv4 address embedded in an IPv6 address, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    for network, bits_below in _HOLDS_IPV4:
        if address in network:
            return ipaddress.IPv4Address((int(address) >> bits_below) & 0xFFFFFFFF)
    return address.ipv4_mapped or address


def _is_public(address: IpAddress) -> bool:
    return address.is_global and not address.is_multicast and address not in _LOCAL_NAT64


def refusal(webhook: Webhook, address: IpAddress, allow: Sequence[str], *, is_private: bool) -> str:
    """Return why a host may not be called; empty if it may be called.

    Args:
        webhook: The requested address.
        address: The address that its host resolves to now.
        allow: The operator's allowlist: hosts ("hooks.example.com"), patterns ("*.example.com"), networks
            ("10.0.0.0/8"). Empty allows every public address.
        is_private: Whether only this machine's user can submit jobs. Then every address is allowed if `allow` is empty.
    """
    if allow:
        if any(fnmatchcase(webhook.host.lower(), entry.lower()) or _is_within(address, entry) for entry in allow):
            return ""
        return f"{webhook} at {address} is not allowed by the operator: {', '.join(allow)} (notify.allow)"
    reached = _reached(address)
    if is_private or _is_public(reached):
        return ""
    means = "" if reached == address else f" (that is {reached})"
    return (
        f"{webhook} is at {address}{means}, which is not a public address; the operator can allow it in the cluster "
        f"file: notify: {{allow: [{webhook.host}]}}"
    )


def _is_within(address: IpAddress, entry: str) -> bool:
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except (ValueError, TypeError):
        return False
