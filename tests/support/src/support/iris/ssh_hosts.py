"""Hosts to reach by ssh: Debian's sshd, each with a directory of its own as its home.

They are ports of loopback, or hosts of a separate network whose cables can be cut.
"""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from iris.autoscale.boot.release import Release
from iris.autoscale.rules import SshSettings
from iris.python_tools.uv import uv_program
from support.iris.host_cluster import until
from support.iris.hosts import Host, network
from support.iris.hosts import why_not as why_no_network
from support.iris.packages import make_wheel

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
_QUIET_LOOKS = 3

_WORKER = """
import os, pathlib, shutil, signal, sys, time

def main():
    words = sys.argv[1:]
    work = pathlib.Path(words[words.index("--work-dir") + 1])
    note = work / "worker.lock"
    if words[:2] == ["worker", "stop"]:
        if note.exists():
            pid = int(note.read_text())
            try:
                while True:
                    os.kill(pid, signal.SIGTERM)
                    time.sleep(0.01)
            except ProcessLookupError:
                shutil.rmtree(work)
        return
    if "--gpu" in words:
        sys.exit("a former line\\niris: this host has no GPU")
    work.mkdir(exist_ok=True)
    note.write_text(str(os.getpid()))
    (work / "words").write_text("\\n".join(words))
    (work / "environment").write_text("\\n".join(f"{key}={value}" for key, value in os.environ.items()))
    signal.pause()
"""


def why_not() -> str:
    """Return why there can be no hosts; empty if there can be."""
    if SSHD is None:
        return "Debian's openssh-server is not installed"
    return "" if os.getuid() == 0 else "sshd must be started by root"


def why_not_in_a_network() -> str:
    """Return why there can be no hosts of a separate network; empty if there can be."""
    return why_not() or why_no_network()


def fake_release(place: Path, version: str = "1.0") -> Release:
    """Return a release whose `iris worker` only notes how it was started."""
    wheel = place / f"fake_iris-{version}-py3-none-any.whl"
    points = {f"fake_iris-{version}.dist-info/entry_points.txt": "[console_scripts]\niris = fake_iris:main\n"}
    make_wheel(wheel, "fake_iris", version, {"fake_iris.py": _WORKER, **points})
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return Release(version, python, {wheel.name: wheel.read_bytes()}, Path(uv_program()))


class SshHost:
    """A machine.

    Args:
        place: Its directory.
        authorized: The public key that may log in.
        environment: Variables of its sessions.
        host: The host of a separate network; None for a port of loopback.
    """

    def __init__(self, place: Path, authorized: Path, environment: Mapping[str, str], host: Host | None = None) -> None:
        self.home = place / "home"
        self.files = self.home / "iris-host"
        self._place = place
        self.home.mkdir(parents=True)
        self._host = host
        self.ip, self.port = host.address if host is not None else "127.0.0.1", 22
        if host is None:
            with socket.create_server((self.ip, 0)) as free:
                self.port = int(free.getsockname()[1])
        self.address = f"{self.ip}:{self.port}"
        _keygen(place / "host-key")
        variables = {"HOME": self.home, "IRIS_HOST_DIR": self.files, **environment}
        words = " ".join(f'"{key}={value}"' for key, value in variables.items())
        (place / "config").write_text(
            f"Port {self.port}\nListenAddress {self.ip}\nHostKey {place}/host-key\nAuthorizedKeysFile {authorized}\n"
            f"PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\n"
            f"Subsystem sftp internal-sftp\nMaxStartups 100\nSetEnv {words}\n"
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def change_key(self) -> None:
        """Give the host another key, as if it were installed anew."""
        self._end_sshd()
        (self._place / "host-key").unlink()
        _keygen(self._place / "host-key")
        self.start()

    @property
    def known(self) -> str:
        """The line of known hosts."""
        kind, key = (self._place / "host-key.pub").read_text().split()[:2]
        name = self.ip if self.port == 22 else f"[{self.ip}]:{self.port}"
        return f"{name} {kind} {key}\n"

    def start(self) -> None:
        """Let it be reached."""
        if self._host is not None:
            self._host.mend()
            if self._process is not None:
                return
        Path("/run/sshd").mkdir(exist_ok=True)
        command = [str(SSHD), "-D", "-f", str(self._place / "config"), "-E", str(self._place / "log")]
        self._process = subprocess.Popen(self._host.command(command) if self._host is not None else command)
        log = self._place / "log"
        until(lambda: log.exists() and "listening on" in log.read_text(), "sshd listens")

    def cut(self) -> None:
        """Let it be out of reach; what runs on it goes on. A cable that is cut breaks no connection."""
        if self._host is not None:
            self._host.cut()
        else:
            self._end_sshd()

    def _end_sshd(self) -> None:
        assert self._process is not None
        sessions = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for session in sessions:
            with contextlib.suppress(psutil.NoSuchProcess):
                session.kill()
        self._process.wait()
        self._process = None
        (self._place / "log").unlink()

    def processes(self) -> list[psutil.Process]:
        """Return what runs of what was started there. Workers hide their environment."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_here = process.environ().get("HOME") == str(self.home) or str(self.files) in " ".join(
                    process.cmdline()
                )
                if is_here and "sshd" not in process.name():
                    found.append(process)
        return found

    def reboot(self) -> None:
        """Kill all that runs there."""
        # A process that begins a program shows neither its environment nor its command: one look may miss it.
        quiet = 0
        while quiet < _QUIET_LOOKS:
            found = self.processes()
            for process in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(found, 0.1)
            quiet = 0 if found else quiet + 1

    def close(self) -> None:
        if self._process is not None:
            self._end_sshd()
        self.reboot()


class SshHosts:
    """Machines, and the settings with which they are reached."""

    def __init__(self, place: Path, environment: Mapping[str, str], hosts: Sequence[Host | None]) -> None:
        self.place = place
        _keygen(place / "key")
        public = place / "key.pub"
        self.hosts = [SshHost(place / f"h{number}", public, environment, host) for number, host in enumerate(hosts)]
        self.known_hosts = place / "known_hosts"
        self.trust()
        self.settings = SshSettings(getpass.getuser(), str(place / "key"), 22, 5, str(self.known_hosts))

    def trust(self) -> None:
        """Write the keys that the hosts have now to the file of known hosts."""
        self.known_hosts.write_text("".join(host.known for host in self.hosts))

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(host.address for host in self.hosts)


@contextlib.contextmanager
def ssh_hosts_of_a_network(place: Path, count: int) -> Iterator[SshHosts]:
    """Run hosts in network namespaces; this thread is on another host of their network."""
    with network(["ctl", *(f"h{number}" for number in range(count))]) as hosts:
        own = hosts.pop("ctl")
        with own.inside(), ssh_hosts(place, count, hosts=tuple(hosts.values())) as made:
            yield made


@contextlib.contextmanager
def ssh_hosts(
    place: Path, count: int, environment: Mapping[str, str] | None = None, hosts: Sequence[Host] = ()
) -> Iterator[SshHosts]:
    """Run hosts: on ports of loopback, or on hosts of a separate network."""
    made = SshHosts(place, environment or {}, hosts or [None] * count)
    try:
        yield made
    finally:
        for host in made.hosts:
            host.close()


def _keygen(place: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place)], check=True)
