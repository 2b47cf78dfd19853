"""Addresses of hosts that resolve quickly, for the check at submission. The delivery resolves again."""

import asyncio
import ipaddress
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Final

from iris.domain.webhooks import IpAddress

Lookup = Callable[[str], Awaitable[list[str]]]
"""Returns the addresses of a host; raises OSError if it has none."""

_MOST_KEPT: Final = 1000


async def system_lookup(host: str) -> list[str]:
    """Return the addresses from this machine's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(item[4][0]) for item in found]


class HostAddresses:
    """Resolves hosts and caches the answers, because many jobs name one host. Use it in one event loop.

    Args:
        lookup: The resolver.
        timeout_s: Timeout for an answer.
        kept_s: How long answers and failures are cached.
        now: Returns monotonic seconds.
    """

    def __init__(
        self,
        lookup: Lookup = system_lookup,
        *,
        timeout_s: float = 1.0,
        kept_s: float = 30.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lookup = lookup
        self._timeout_s = timeout_s
        self._kept_s = kept_s
        self._now = now
        self._kept: dict[str, tuple[float, list[IpAddress]]] = {}

    async def of(self, host: str) -> list[IpAddress]:
        """Return the addresses of a host; [] if it has none or they do not resolve in time."""
        until, addresses = self._kept.get(host, (0.0, []))
        if self._now() < until:
            return addresses
        try:
            async with asyncio.timeout(self._timeout_s):
                addresses = [ipaddress.ip_address(text.partition("%")[0]) for text in await self._lookup(host)]
        except (OSError, TimeoutError, UnicodeError):
            addresses = []
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[host] = (self._now() + self._kept_s, addresses)
        return addresses
