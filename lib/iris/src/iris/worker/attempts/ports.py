"""Ports for tasks: any that is free, or one of the range that a firewall lets through."""

import contextlib
import errno
import itertools
import socket
from collections.abc import Iterator
from typing import Final

_MOST_TRIES: Final = 100
"""Without a range: so often another port is asked for when the one that is free was given to somebody who lives."""


class PortsInUse(OSError):
    """Too few ports of the range are free, but attempts hold some: there are more once one of these has ended."""


class PortChooser:
    """Finds free ports, and remembers who has them: one that a live attempt has not opened yet is not given again.

    Those of a range are given out in turn, so that one just given back is not given again soon.

    Args:
        port_range: First and last port; None: any.
    """

    def __init__(self, port_range: tuple[int, int] | None = None) -> None:
        self._range = port_range
        self._next = port_range[0] if port_range else 0
        self._owners: dict[int, str] = {}

    def free_ports(self, names: tuple[str, ...], owner: str = "") -> dict[str, int]:
        """A free port for each name. All are held until the last is found, so that they differ.

        Args:
            names: As the task calls them.
            owner: Whose they are until `release`; what it had before is given back. "": nobody's.

        Raises:
            PortsInUse: There will be so many when an attempt has ended.
            OSError: There are not so many.
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
        """Give back what an owner has."""
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
