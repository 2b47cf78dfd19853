"""Ports for tasks: any free ports, or only ports of a configured range."""

import contextlib
import errno
import itertools
import socket
from collections.abc import Iterator
from typing import Final

_MOST_TRIES: Final = 100
"""Without a range: maximum number of ports to try for one that no live attempt owns."""


class PortsInUse(OSError):
    """Too few ports of the range are free until an attempt that uses some of them ends."""


class PortChooser:
    """Finds free ports and records their owners, so that two live attempts never get the same port.

    Ports of a range are assigned in rotation, so that a released port is not reused soon.

    Args:
        port_range: First and last port; None for any.
    """

    def __init__(self, port_range: tuple[int, int] | None = None) -> None:
        self._range = port_range
        self._next = port_range[0] if port_range else 0
        self._owners: dict[int, str] = {}

    def free_ports(self, names: tuple[str, ...], owner: str = "") -> dict[str, int]:
        """Return a different free port for each name.

        Args:
            names: The task's names for the ports.
            owner: The attempt that owns the ports until `release`; its earlier ports are released. "" for no owner.

        Raises:
            PortsInUse: There will be enough ports when an attempt ends.
            OSError: There are not enough ports.
        """
        self.release(owner)
        ports: dict[str, int] = {}
        with contextlib.ExitStack() as held:
            for name in names:
                ports[name] = self._take(held, len(names))
        if owner:
            self._owners.update(dict.fromkeys(ports.values(), owner))
        return ports

    def release(self, owner: str) -> None:
        """Release the ports of an owner."""
        if self._owners:
            self._owners = {port: other for port, other in self._owners.items() if other != owner}

    def _take(self, held: contextlib.ExitStack, count: int) -> int:
        for port in self._candidates():
            if port in self._owners:
                continue
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("", port))
            except OSError:
                continue
            number = int(probe.getsockname()[1])
            if number not in self._owners:
                return number
        first, last = self._range or (0, 0)
        text = f"no port from {first} to {last} (--port-range) is free"
        if self._owners and count <= last - first + 1:
            raise PortsInUse(errno.EADDRINUSE, text)
        raise OSError(errno.EADDRINUSE, text)

    def _candidates(self) -> Iterator[int]:
        if self._range is None:
            yield from itertools.repeat(0, _MOST_TRIES)
            return
        first, last = self._range
        for _ in range(first, last + 1):
            port = self._next
            self._next = port + 1 if port < last else first
            yield port
