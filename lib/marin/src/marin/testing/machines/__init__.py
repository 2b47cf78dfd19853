"""Machines for tests of whole clusters: a laptop, a head and workers, each in Linux namespaces of its own.

Each has its own processes, network, host name, sshd, `/tmp`, `/root`, `/home` and `/opt`; they share `/srv`, as by NFS,
and see the checkout and this Python, which they cannot write to. This computer's own network and processes are not
touched. A cluster file runs on them as it was generated, but for its provider (`local_cluster_file`): `docker`,
`gcloud` and `sudo` are small programs beside this file, which do for it what the real ones would.
"""

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rigging.errors import Unavailable

PROGRAMS: Final = {"sshd": "openssh-server", "ssh": "openssh-client", "rsync": "rsync", "ip": "iproute2"}
"""Programs that have to be installed, each with its Debian package."""

PROJECT: Final = "/root/project"
USER: Final = "ray"
_LAPTOP: Final = "laptop"
_HERE: Final = Path(__file__).parent
_HIDDEN: Final = ("/tmp", "/root", "/opt", "/home")
_NAMESPACES: Final = ("--mount", "--pid", "--net", "--uts")
_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_END_SECONDS: Final = 20.0
_COMPILE_SECONDS: Final = 300.0

VARIABLES: Final = {
    # They cannot write beside the sources; Ray gives a node's agent fifteen seconds, in which it would compile them.
    "PYTHONPYCACHEPREFIX": "/srv/pycache",
    "RAY_USAGE_STATS_ENABLED": "0",
    # A job would start one worker for each CPU that a VM has, of which this computer has a few.
    "RAY_prestart_worker_first_driver": "0",
}
# What Ray looks for to tell whether an image has its dashboard: without, the agents of workers start in a third of the
# time, and a busy computer takes more for the whole ones than the fifteen seconds.
_NO_DASHBOARD: Final = "/srv/image"
_ABSENT: Final = "aiohttp_cors"
_COMPILED: Final = (
    "import ray.autoscaler._private.monitor, ray.dashboard.agent, ray.dashboard.dashboard, ray._private.log_monitor, "
    "ray._private.runtime_env.agent.main, ray.scripts.scripts, ray.util.client.server"
)

_SSHD_CONFIG: Final = """\
HostKey /run/machine/host_key
PidFile /run/sshd.pid
AuthorizedKeysFile /root/.ssh/authorized_keys
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin yes
MaxSessions 100
MaxStartups 100
"""


@functools.cache
def missing() -> str:
    """Why there can be no such machines here, and what to do about it; empty if there can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "machines are namespaces of Linux, which only root can make with a network"
    lacking = [package for program, package in PROGRAMS.items() if shutil.which(program, path=_SYSTEM_PATH) is None]
    if lacking:
        return f"apt-get install {' '.join(lacking)}"
    tried = subprocess.run(
        ["unshare", "--fork", "--pid", "--mount", "--net", "--uts", "mount", "--make-rprivate", "/"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no namespaces are to be had: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass
class Machine:
    """A machine that runs.

    Args:
        process: It ends with the machine; its input's end ends the machine.
        pid: The machine's first process.
    """

    name: str
    address: str
    folder: Path
    process: subprocess.Popen[str]
    pid: int

    def command(self, words: Sequence[str], *, cwd: str = "/root", **variables: str) -> list[str]:
        """Return a command line, for this computer, that runs `words` on the machine."""
        environment = {"HOME": "/root", "USER": "root", "LANG": "C.UTF-8", "TERM": "xterm", **VARIABLES, **variables}
        environment["PATH"] = f"{Path(sys.executable).parent}:{_SYSTEM_PATH}"
        assigned = [f"{name}={value}" for name, value in environment.items()]
        enter = ["nsenter", "--target", str(self.pid), *_NAMESPACES, "--", "env", "-i", *assigned]
        return [*enter, "bash", "-c", 'cd "$0"; exec "$@"', cwd, *words]

    def run(
        self, *words: str, seconds: float = 60, cwd: str = "/root", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the machine; without a terminal and input."""
        return subprocess.run(
            self.command(words, cwd=cwd, **variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def path(self, inside: str) -> Path:
        """Where a file of the machine is on this computer."""
        return self.folder / inside.lstrip("/")

    def processes(self) -> list[str]:
        """Return the command lines of all that runs on it."""
        found = self.run("ps", "-eo", "args", "--no-headers").stdout.splitlines()
        return [line for line in found if not line.startswith("ps -eo")]

    def stop(self) -> None:
        """End the machine at once, as a power cut does."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_SECONDS)
        self.process.kill()
        self.process.wait()


@dataclass
class Machines:
    """A laptop, a head and workers.

    Args:
        folder: What is theirs on this computer's disk.
        hardware: For the head and each worker, what its VM would have: resources as Ray counts them.
        hosts: Names that they know besides, with their addresses.
        variables: Set in their containers besides.
    """

    folder: Path
    checkout: Path
    hardware: Mapping[str, Mapping[str, float]]
    hosts: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    all: dict[str, Machine] = field(default_factory=dict)
    _added: int = 0

    @property
    def laptop(self) -> Machine:
        return self.all[_LAPTOP]

    @property
    def shared(self) -> Path:
        """Their `/srv`."""
        return self.folder / "shared"

    @contextlib.contextmanager
    def running(self) -> Iterator["Machines"]:
        """The machines, started; at the end nothing of them is left but files.

        Raises:
            Unavailable: One does not start; the message has what it said.
        """
        try:
            self._make_keys()
            self._start(_LAPTOP, "10.77.0.254", {})
            network = self._enter(self.laptop)
            self._run(*network, "ip", "link", "add", "machines", "type", "bridge")
            self._run(*network, "ip", "address", "add", "10.77.0.254/24", "dev", "machines")
            self._run(*network, "ip", "link", "set", "machines", "up")
            for name, resources in self.hardware.items():
                self.add(name, resources)
            self.laptop.run("python", "-c", _COMPILED, seconds=_COMPILE_SECONDS)
            yield self
        finally:
            for machine in self.all.values():
                machine.stop()

    def add(self, name: str, resources: Mapping[str, float]) -> Machine:
        """Start one more. Raises Unavailable."""
        self._added += 1
        machine = self._start(name, f"10.77.0.{self._added}", resources)
        self._connect(machine, f"to-{self._added}")
        return machine

    def remove(self, name: str) -> None:
        """End one; its files stay."""
        self.all.pop(name).stop()

    def _make_keys(self) -> None:
        (self.shared / "buckets").mkdir(parents=True)
        (self.shared / "image").mkdir()
        (self.shared / "image" / f"{_ABSENT}.py").write_text(
            "raise ModuleNotFoundError('Ray is here without its dashboard')\n"
        )
        for name in ("host_key", "id"):
            self._run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))

    def _start(self, name: str, address: str, resources: Mapping[str, float]) -> Machine:
        folder = self.folder / name
        self._furnish(folder, name, address, resources)
        visible = [str(self.checkout), sys.base_prefix, sys.prefix]
        outermost = [each for each in visible if not any(each.startswith(f"{other}/") for other in visible)]
        words = ["bash", str(_HERE / "boot.sh"), str(folder), name, ":".join(_HIDDEN), ":".join(outermost)]
        unshare = ["unshare", "--fork", "--pid", "--mount", "--net", "--uts", "--kill-child", "--mount-proc"]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [*unshare, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert process.stdout is not None
        machine = self.all[name] = Machine(name, address, folder, process, 0)
        if process.stdout.readline() != "ready\n":
            raise Unavailable(f"the machine {name} did not start: {(folder / 'log').read_text()}")
        machine.pid = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        return machine

    def _furnish(self, folder: Path, name: str, address: str, resources: Mapping[str, float]) -> None:
        for each in ("root/.ssh", "tmp", "opt", "home", "bin"):
            (folder / each).mkdir(parents=True)
        (folder / "tmp").chmod(0o1777)
        os.symlink(self.shared, folder / "shared")
        shutil.copy(self.folder / "host_key", folder)
        (folder / "sshd_config").write_text(_SSHD_CONFIG)
        # The user of a Google VM may do what root may, by sudo; here it is root's other name.
        passwd = Path("/etc/passwd").read_text()
        (folder / "passwd").write_text(f"{passwd}{USER}:x:0:0::/root:/bin/bash\n")
        names = [_LAPTOP, *self.hardware]
        known = {**{host: f"10.77.0.{number or 254}" for number, host in enumerate(names)}, name: address, **self.hosts}
        hosts = [f"{place} {host}" for host, place in known.items()]
        (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        variables = {
            "IMAGE_PATH": str(Path(sys.executable).parent),
            "RAY_OVERRIDE_RESOURCES": json.dumps(dict(resources)),
            **VARIABLES,
            **({"PYTHONPATH": _NO_DASHBOARD} if resources.get("CPU") else {}),
            **self.variables,
        }
        (folder / "hardware").write_text("".join(f"{key}={value}\n" for key, value in variables.items()))
        (folder / "root" / ".bashrc").write_text("")
        if name == _LAPTOP:
            shutil.copy(self.folder / "id", folder / "root" / ".ssh" / "id")
            return
        shutil.copy(self.folder / "id.pub", folder / "root" / ".ssh" / "authorized_keys")
        for program in ("docker", "gcloud", "sudo"):
            shutil.copy(_HERE / program, folder / "bin")

    def _connect(self, machine: Machine, port: str) -> None:
        own, bridge = self._enter(machine), self._enter(self.laptop)
        peer = ["type", "veth", "peer", "name", "eth0", "netns", str(machine.pid)]
        self._run(*bridge, "ip", "link", "add", port, *peer)
        self._run(*bridge, "ip", "link", "set", port, "master", "machines", "up")
        self._run(*own, "ip", "address", "add", f"{machine.address}/24", "dev", "eth0")
        self._run(*own, "ip", "link", "set", "eth0", "up")
        self._run(*own, "ip", "route", "add", "default", "dev", "eth0")

    def _enter(self, machine: Machine) -> list[str]:
        return ["nsenter", "--target", str(machine.pid), "--net", "--"]

    def _run(self, *words: str) -> None:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"`{' '.join(words)}` failed: {done.stderr.strip()}")


def local_cluster_file(config: Mapping[str, Any], machines: Machines) -> dict[str, Any]:
    """Return a generated cluster file for these machines: its provider, with the types of its VMs, is another.

    The key is given, too, which Ray's provider for Google makes by itself. And Ray is started anew on a node after a
    minute without a sign of life, where a busy computer was too slow to start it.
    """
    hasty = re.sub(r"AUTOSCALER_HEARTBEAT_TIMEOUT_S=\d+", "AUTOSCALER_HEARTBEAT_TIMEOUT_S=60", json.dumps(config))
    config = json.loads(hasty)
    kept = {name: value for name, value in config.items() if name not in ("available_node_types", "head_node_type")}
    head, *workers = [machine.address for name, machine in machines.all.items() if name != _LAPTOP]
    return {
        **kept,
        "provider": {"type": "local", "head_ip": head, "worker_ips": workers},
        "auth": {**config["auth"], "ssh_private_key": "~/.ssh/id"},
    }
