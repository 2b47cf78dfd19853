"""Whose bytes went through the sockets of this host."""

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from iris.worker.limits.network import (
    NO_TRAFFIC,
    NetworkCounts,
    SocketTraffic,
    Traffic,
    device_traffic,
    network_of,
    parse_answer,
    parse_devices,
    socket_inodes,
    tcp_sockets,
)

DEVICES = """Inter-|   Receive              |  Transmit
 face |bytes    packets errs ... |bytes    packets errs ...
    lo:     500  9 0 0 0 0 0 0   500  9 0 0 0 0 0 0
  eth0:    1000 10 0 0 0 0 0 0    70  1 0 0 0 0 0 0
   wg1:2         1 0 0 0 0 0 0     3  1 0 0 0 0 0 0
"""


def message(cookie: int, inode: int, sent: int, received: int, info_bytes: int = 280) -> bytes:
    """One socket as the kernel tells of it, with an attribute before the one with the counts."""
    info = bytearray(max(info_bytes, 136))
    struct.pack_into("=QQ", info, 120, sent, received)
    attributes = struct.pack("=HHBxxx", 5, 8, 0) + struct.pack("=HH", 4 + info_bytes, 2) + bytes(info[:info_bytes])
    body = bytes(44) + struct.pack("=Q", cookie) + bytes(16) + struct.pack("=I", inode) + attributes
    return struct.pack("=IHHII", 16 + len(body), 20, 2, 1, 0) + body


END = struct.pack("=IHHIIi", 20, 3, 2, 1, 0, 0)
SEEN = [SocketTraffic(1, 11, Traffic(5, 6)), SocketTraffic(3, 0, Traffic(7, 0))]


@pytest.mark.parametrize(
    ("data", "sockets", "is_end"),
    [
        (message(1, 11, 5, 6) + message(2, 12, 0, 0) + message(3, 0, 7, 0), SEEN, False),
        (message(1, 11, 5, 6) + END, SEEN[:1], True),
        (message(1, 11, 5, 6, info_bytes=104), [], False),
        (bytes(10), [], False),
        (bytes(16), [], True),
    ],
    ids=["sockets that carried something", "the end of it", "a kernel before 4.1", "cut off", "empty"],
)
def test_answers_of_the_kernel(data: bytes, sockets: list[SocketTraffic], is_end: bool) -> None:
    assert parse_answer(data) == (sockets, is_end)


def test_a_refusal_says_why_and_devices_are_without_the_loopback() -> None:
    with pytest.raises(OSError, match="the kernel does not show sockets: No such file or directory"):
        parse_answer(struct.pack("=IHHIIi", 36, 2, 0, 1, 0, -2) + bytes(16))
    assert parse_devices(DEVICES) == Traffic(sent=73, received=1002)
    assert parse_devices("eth0: 1 2\nno colon") == NO_TRAFFIC


class Host:
    """Processes, sockets and namespaces as a test says."""

    def __init__(self) -> None:
        self.sockets: list[SocketTraffic] = []
        self.held: dict[int, list[int]] = {}
        self.networks: dict[int, int] = {}
        self.devices: dict[int, Traffic] = {}
        self.pids: dict[str, list[int]] = {"a": [10, 11], "b": [20]}
        self.spent = 0.0
        self.looked_up = 0
        self.error: OSError | None = None
        self.counts = NetworkCounts(
            self._tell,
            lambda pid: self.held.get(pid, ()),
            lambda pid: self.networks.get(pid, 1),
            lambda pid: self.devices.get(pid),
            own_network=1,
            spent=lambda: self.spent,
        )

    def _tell(self) -> list[SocketTraffic]:
        self.spent += 0.01
        if self.error is not None:
            raise self.error
        return self.sockets

    def _pids(self) -> Mapping[str, Iterable[int]]:
        self.looked_up += 1
        return self.pids

    def look(self, now: float) -> tuple[Traffic, Traffic]:
        self.counts.look(now, {owner: pids[0] for owner, pids in self.pids.items()}, self._pids)
        return self.counts.of("a"), self.counts.of("b")


def sockets(*counted: tuple[int, int, int, int]) -> list[SocketTraffic]:
    return [SocketTraffic(cookie, inode, Traffic(sent, received)) for cookie, inode, sent, received in counted]


@pytest.fixture
def host() -> Host:
    """One socket, which is held by a process of "a"."""
    made = Host()
    made.held = {10: [5]}
    made.sockets = sockets((1, 5, 10, 0))
    return made


class TestCounts:
    def test_a_socket_is_its_holders_and_looked_up_once(self, host: Host) -> None:
        host.held = {11: [5], 20: [6]}
        host.sockets = sockets((1, 5, 10, 1), (2, 6, 0, 9), (3, 77, 10, 10), (4, 0, 10, 10))
        assert host.look(0) == (Traffic(10, 1), Traffic(0, 9)), "sockets of others count for no attempt"
        host.sockets = sockets((1, 5, 15, 1), (2, 6, 0, 9), (3, 77, 20, 10), (4, 0, 10, 20))
        assert host.look(10) == (Traffic(15, 1), Traffic(0, 9))
        assert host.looked_up == 1, "what is nobody's is not looked up again"

    def test_what_was_counted_stays_when_the_socket_goes_and_an_inode_comes_back(self, host: Host) -> None:
        host.look(0)
        host.sockets = []
        assert host.look(10)[0] == Traffic(10, 0)
        host.sockets = sockets((9, 5, 3, 4))
        assert host.look(20)[0] == Traffic(13, 4)

    def test_a_socket_that_is_closed_and_still_sends_is_its_last_holders(self, host: Host) -> None:
        host.look(0)
        host.held, host.sockets = {}, sockets((1, 0, 25, 0))
        assert host.look(10)[0] == Traffic(25, 0)

    def test_looks_take_a_two_hundredth_of_the_time(self, host: Host) -> None:
        host.look(0)
        host.sockets = sockets((1, 5, 20, 0))
        assert host.look(1.9)[0] == Traffic(10, 0), "10 ms have to be earned"
        assert host.look(2.1)[0] == Traffic(20, 0)

    def test_a_kernel_that_refuses_is_asked_again_after_a_minute(self, host: Host) -> None:
        host.error = OSError(2, "No such file or directory")
        assert host.look(0) == (NO_TRAFFIC, NO_TRAFFIC)
        assert host.counts.refusal == "No such file or directory"
        host.error = None
        assert host.look(59)[0] == NO_TRAFFIC
        assert host.look(61)[0] == Traffic(10, 0)
        assert host.counts.refusal == ""

    def test_an_attempt_of_the_same_name_begins_at_nothing(self, host: Host) -> None:
        host.look(0)
        pids = host.pids.pop("a")
        host.look(10)
        host.pids["a"], host.sockets = pids, []
        assert host.look(20)[0] == NO_TRAFFIC

    @pytest.mark.parametrize(("networks", "counted"), [({10: 7}, Traffic(50, 60)), ({10: 7, 20: 7}, NO_TRAFFIC)])
    def test_a_network_of_its_own_is_counted_by_its_devices(self, networks: dict[int, int], counted: Traffic) -> None:
        host = Host()
        host.networks = networks
        host.devices = dict.fromkeys(networks, Traffic(100, 200))
        assert host.look(0)[0] == NO_TRAFFIC, "what was there before is not known to be its own"
        host.devices = dict.fromkeys(networks, Traffic(150, 260))
        assert host.look(10) == (counted, NO_TRAFFIC)


PEER = """
import socket, sys
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
peer.sendall(bytes(300_000))
peer.recv(1)
"""


def test_what_a_process_of_this_host_sends_is_its_own() -> None:
    try:
        tcp_sockets()
    except OSError as error:
        pytest.skip(f"{error}")
    own = os.getpid()
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = subprocess.Popen([sys.executable, "-c", PEER, str(server.getsockname()[1])])
        with server.accept()[0] as accepted:
            left = 300_000
            while left:
                left -= len(accepted.recv(65536))
            inode = os.fstat(accepted.fileno()).st_ino  # other sockets of this process are other tests'
            counts = NetworkCounts(
                inodes=lambda pid: [inode] if pid == own else socket_inodes(pid),
                own_network=network_of(own),
                spent=lambda: 0.0,
            )

            def seen() -> tuple[int, int]:
                counts.look(1.0, {"a": sender.pid, "b": own}, lambda: {"a": [sender.pid], "b": [own]})
                return counts.of("a").sent, counts.of("b").received

            # A SYN counts as one byte that was acknowledged.
            eventually(lambda: seen() in ((300_000, 300_000), (300_001, 300_000)), "all is acknowledged and counted")
        sender.wait(30)


def test_processes_that_are_gone_have_nothing(tmp_path: Path) -> None:
    assert list(socket_inodes(1, str(tmp_path))) == []
    assert network_of(1, str(tmp_path)) == 0
    assert device_traffic(1, str(tmp_path)) is None
    assert device_traffic(os.getpid()) is not None
