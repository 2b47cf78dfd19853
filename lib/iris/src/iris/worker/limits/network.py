"""Bytes that attempts sent and received by TCP, as far as the kernel tells whose they are.

Tasks share the network of their host, and no control group counts bytes. But the kernel counts them for each TCP
socket, and shows the sockets of a network namespace (sock_diag(7)) with the inode by which /proc shows who holds them.
A socket is looked up once, when it first has bytes; so a look costs some 5 us for each socket of the host, and more
only when there are new ones.

All counts are lower bounds: what a socket carried after the last look at it, and sockets that came and went between two
looks, are not counted. Neither is UDP.
"""

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_SOCK_DIAG: Final = 4
_DUMP_BY_FAMILY: Final = 20
_REQUEST_AND_DUMP: Final = 0x301
_DONE: Final = 3
_ERROR: Final = 2
_INFO: Final = 2
_WITHOUT: Final = (1 << 10) | (1 << 6) | (1 << 3)  # that listen, whose end is over, of which nobody has accepted yet
_HEADER: Final = struct.Struct("=IHHII")
_ATTRIBUTE: Final = struct.Struct("=HH")
_COOKIE: Final = struct.Struct("=Q")
_COOKIE_AT: Final = 44
_INODE: Final = struct.Struct("=I")
_INODE_AT: Final = 68
_ATTRIBUTES_AT: Final = 72
_COUNTS: Final = struct.Struct("=QQ")
_COUNTS_AT: Final = 120  # of tcp_info: bytes_acked and bytes_received, from Linux 4.1 on
_ANSWER_BYTES: Final = 256 * 1024
_ANSWER_S: Final = 1.0
_SOCKET: Final = "socket:["

_PAUSE: Final = 200
"""After a look, so many times what it took goes by before the next."""
_REFUSED_S: Final = 60.0
"""After a refusal of the kernel so much time goes by before the next look."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes sent, that the other side has acknowledged, and received."""

    sent: int = 0
    received: int = 0

    def since(self, before: "Traffic") -> "Traffic":
        """Traffic added since `before`; nothing where counts fell."""
        return Traffic(max(self.sent - before.sent, 0), max(self.received - before.received, 0))

    def with_more(self, more: "Traffic") -> "Traffic":
        return Traffic(self.sent + more.sent, self.received + more.received)


NO_TRAFFIC: Final = Traffic()


@dataclass(frozen=True, slots=True)
class SocketTraffic:
    """A TCP socket.

    Args:
        cookie: Its number, which no other socket gets.
        inode: By which /proc shows it; 0: no process has it any more.
        traffic: Since it was made.
    """

    cookie: int
    inode: int
    traffic: Traffic


def parse_answer(data: bytes) -> tuple[list[SocketTraffic], bool]:
    """Read a piece of the kernel's answer.

    Returns:
        The sockets in it that have carried something, and whether the answer is over.

    Raises:
        OSError: The kernel refuses.
    """
    found: list[SocketTraffic] = []
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind = _HEADER.unpack_from(data, at)[:2]
        if kind == _ERROR:
            number = -int(struct.unpack_from("=i", data, at + _HEADER.size)[0])
            raise OSError(number, f"the kernel does not show sockets: {os.strerror(number)}")
        if kind == _DONE or length < _HEADER.size:
            return found, True
        body = at + _HEADER.size
        counts = _counts(data, body + _ATTRIBUTES_AT, at + length)
        if counts != NO_TRAFFIC:
            (cookie,), (inode,) = (
                _COOKIE.unpack_from(data, body + _COOKIE_AT),
                _INODE.unpack_from(data, body + _INODE_AT),
            )
            found.append(SocketTraffic(cookie, inode, counts))
        at += (length + 3) & ~3
    return found, False


def _counts(data: bytes, at: int, end: int) -> Traffic:
    while at + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if kind == _INFO and length >= _ATTRIBUTE.size + _COUNTS_AT + _COUNTS.size:
            return Traffic(*_COUNTS.unpack_from(data, at + _ATTRIBUTE.size + _COUNTS_AT))
        at += max((length + 3) & ~3, _ATTRIBUTE.size)
    return NO_TRAFFIC


def tcp_sockets() -> list[SocketTraffic]:
    """All TCP sockets of this network namespace that have carried something. Raises OSError: the kernel shows none."""
    found: list[SocketTraffic] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as asked:
        asked.settimeout(_ANSWER_S)
        for family in (socket.AF_INET, socket.AF_INET6):
            body = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, 0xFFFFFFFF & ~_WITHOUT)
            asked.send(_HEADER.pack(_HEADER.size + len(body), _DUMP_BY_FAMILY, _REQUEST_AND_DUMP, 1, 0) + body)
            is_over = False
            while not is_over:
                piece, is_over = parse_answer(asked.recv(_ANSWER_BYTES))
                found += piece
    return found


def socket_inodes(pid: int, proc: str = "/proc") -> Iterator[int]:
    """Inodes of the sockets that a process holds; none when it has ended or is another user's."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"{proc}/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(entry.path)
                if target.startswith(_SOCKET):
                    yield int(target[len(_SOCKET) : -1])


def network_of(pid: int, proc: str = "/proc") -> int:
    """Number of the network namespace of a process; 0 when it cannot be seen."""
    try:
        return os.stat(f"{proc}/{pid}/ns/net").st_ino
    except OSError:
        return 0


def parse_devices(text: str) -> Traffic:
    """Read /proc/PID/net/dev: all devices together but the loopback."""
    total = NO_TRAFFIC
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and name.strip() != "lo" and len(words) >= 9:
            total = total.with_more(Traffic(int(words[8]), int(words[0])))
    return total


def device_traffic(pid: int, proc: str = "/proc") -> Traffic | None:
    """As `parse_devices`, of a process's network namespace; None when it cannot be seen."""
    try:
        with open(f"{proc}/{pid}/net/dev") as file:
            return parse_devices(file.read())
    except (OSError, ValueError):
        return None


class NetworkCounts:
    """Counts what attempts send and receive.

    Args:
        sockets: As `tcp_sockets`.
        inodes: As `socket_inodes`.
        network: As `network_of`.
        devices: As `device_traffic`.
        own_network: The namespace that `sockets` shows.
        spent: Processor time of this thread (s).
    """

    def __init__(
        self,
        sockets: Callable[[], list[SocketTraffic]] = tcp_sockets,
        inodes: Callable[[int], Iterable[int]] = socket_inodes,
        network: Callable[[int], int] = network_of,
        devices: Callable[[int], Traffic | None] = device_traffic,
        own_network: int = 0,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self._sockets = sockets
        self._inodes = inodes
        self._network = network
        self._devices = devices
        self._own_network = own_network
        self._spent = spent
        self._due = 0.0
        self._known: dict[int, tuple[str, Traffic]] = {}  # by cookie: whose, "" nobody's; its count at the last look
        self._apart: dict[str, tuple[int, Traffic]] = {}  # who has a namespace: its number and count at the last look
        self._totals: dict[str, Traffic] = {}
        self.refusal = ""
        """Why the last look has counted nothing; empty: it has."""

    def of(self, owner: str) -> Traffic:
        """Bytes that an attempt has sent and received so far."""
        return self._totals.get(owner, NO_TRAFFIC)

    def look(self, now: float, leaders: Mapping[str, int], pids: Callable[[], Mapping[str, Iterable[int]]]) -> None:
        """Count, if it is time.

        Args:
            now: This moment (monotonic clock, s).
            leaders: The attempts, and the pid of the command of each.
            pids: Returns all processes of each of them; called when there are sockets that are not known.
        """
        if now < self._due:
            return
        began = self._spent()
        for gone in self._totals.keys() - leaders.keys():
            del self._totals[gone]
        self._look_at_namespaces(leaders)
        pause = 0.0
        try:
            self._look_at_sockets(self._sockets(), pids)
            self.refusal = ""
        except OSError as error:
            self.refusal, pause = error.strerror or str(error), _REFUSED_S
        self._due = now + max((self._spent() - began) * _PAUSE, pause)

    def _look_at_sockets(self, sockets: list[SocketTraffic], pids: Callable[[], Mapping[str, Iterable[int]]]) -> None:
        holders: dict[int, str] = {}
        if any(item.inode and item.cookie not in self._known for item in sockets):
            for owner, members in pids().items():
                for pid in members:
                    for inode in self._inodes(pid):
                        holders.setdefault(inode, owner)
        before, self._known = self._known, {}
        for item in sockets:
            owner, counted = before.get(item.cookie) or (holders.get(item.inode, ""), NO_TRAFFIC)
            self._known[item.cookie] = owner, item.traffic
            if owner:
                self._add(owner, item.traffic.since(counted))

    def _look_at_namespaces(self, leaders: Mapping[str, int]) -> None:
        before, self._apart = self._apart, {}
        inside: dict[int, list[str]] = {}
        for owner, pid in leaders.items():
            number = self._network(pid)
            if number and number != self._own_network:
                inside.setdefault(number, []).append(owner)
        for number, owners in inside.items():
            # What several attempts do in one namespace cannot be told apart.
            if len(owners) == 1 and (count := self._devices(leaders[owners[0]])) is not None:
                was, counted = before.get(owners[0], (0, NO_TRAFFIC))
                self._apart[owners[0]] = number, count
                if was == number:
                    self._add(owners[0], count.since(counted))

    def _add(self, owner: str, more: Traffic) -> None:
        self._totals[owner] = self._totals.get(owner, NO_TRAFFIC).with_more(more)


def network_counts() -> NetworkCounts:
    """Counts for the attempts of this process."""
    return NetworkCounts(own_network=network_of(os.getpid()))
