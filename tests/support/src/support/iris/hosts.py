"""Hosts of a separate network on this machine: one network namespace each, on one bridge, with links to cut.

Needs root and iproute2. Nothing outside of the namespaces changes: the bridge is in one of them.
"""

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

_NEW_NETWORK: Final = 0x40000000  # CLONE_NEWNET
NETWORK: Final = "10.0.0"
_PROGRAMS: Final = ("ip", "nsenter")
_NOBODY: Final = "02:00:00:00:00:01"
"""A hardware address without a host: packets to it are lost silently."""


def why_not() -> str:
    """Return why hosts are impossible here; empty if they are possible."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"{' and '.join(missing)} is not installed (Debian: iproute2, util-linux)"
    name = f"iris-{secrets.token_hex(3)}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"no network namespaces here: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


class Host:
    """One host, with its address and processes."""

    def __init__(self, name: str, namespace: str, switch: str, address: str) -> None:
        self.name = name
        self.address = address
        self._namespace = namespace
        self._switch = switch
        self._deaf = ""

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv` on this host; files and processes are this machine's."""
        return ["nsenter", f"--net=/run/netns/{self._namespace}", *argv]

    def start(self, argv: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path) -> "subprocess.Popen[bytes]":
        """Start a process on this host; both of its outputs are appended to `log`."""
        with open(log, "ab") as output:
            return subprocess.Popen(
                self.command(argv), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, cwd=cwd
            )

    def run(self, argv: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        """Run a command on this host to its end; `options` are those of subprocess.run."""
        return subprocess.run(self.command(argv), capture_output=True, text=True, check=False, **options)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Put this thread's new sockets and processes on this host."""
        with open("/proc/thread-self/ns/net") as before, open(f"/run/netns/{self._namespace}") as namespace:
            _enter(namespace)
            try:
                yield
            finally:
                _enter(before)

    def listen(self, address: str, port: int = 0) -> socket.socket:
        """Return a socket that listens on this host, for a server in this process."""
        with self.inside():
            return socket.create_server((address, port))

    def cut(self, deaf: str = "") -> None:
        """Silently drop all traffic of the host. With `deaf`: only its traffic to that address."""
        if deaf:
            _ip("-n", self._namespace, "neigh", "replace", deaf, "lladdr", _NOBODY, "nud", "permanent", "dev", "eth0")
        else:
            _ip("-n", self._switch, "link", "set", self.name, "down")
        self._deaf = deaf

    def mend(self) -> None:
        """Restore all traffic."""
        _ip("-n", self._switch, "link", "set", self.name, "up")
        if self._deaf:
            _ip("-n", self._namespace, "neigh", "del", self._deaf, "dev", "eth0")
        self._deaf = ""

    def kill(self) -> None:
        """Kill all processes on the host, like a power failure."""
        found = subprocess.run(["ip", "netns", "pids", self._namespace], capture_output=True, text=True, check=True)
        for pid in found.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@contextlib.contextmanager
def network(names: Sequence[str]) -> Iterator[dict[str, Host]]:
    """Make hosts (names of at most ten letters), the first with 10.0.0.1. Kill their processes at the end."""
    prefix = f"iris-{secrets.token_hex(3)}"
    switch = f"{prefix}-switch"
    hosts = {
        name: Host(name, f"{prefix}-{name}", switch, f"{NETWORK}.{number}") for number, name in enumerate(names, 1)
    }
    made: list[str] = []
    try:
        _ip("netns", "add", switch)
        made.append(switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for host in hosts.values():
            namespace = f"{prefix}-{host.name}"
            _ip("netns", "add", namespace)
            made.append(namespace)
            _ip("-n", switch, "link", "add", host.name, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("-n", switch, "link", "set", host.name, "master", "bridge", "up")
            _ip("-n", namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                _ip("-n", namespace, "link", "set", link, "up")
        yield hosts
    finally:
        for host in hosts.values():
            if f"{prefix}-{host.name}" in made:
                host.kill()
        for namespace in reversed(made):
            _ip("netns", "del", namespace)


def _enter(namespace: TextIO) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace.fileno(), _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
