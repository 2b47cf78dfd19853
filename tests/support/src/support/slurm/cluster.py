"""Slurm's daemons on this machine, with commands that reach them from outside."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from support.iris.controller_process import fixed_port

PACKAGES = (
    "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "libmunge2", "libhwloc15", "liblua5.1-0",
)  # fmt: skip
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "srun", "sacct", "sinfo")
CPUS = 16

_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
PropagateResourceLimits=NONE
EnforcePartLimits=ALL
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
MaxArraySize=2001
KillWait=2
SlurmdTimeout=10
ReturnToService=2
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.%n.pid
SlurmctldLogFile={state}/slurmctld.log
SlurmdLogFile={state}/slurmd.%n.log
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=DEFAULT CPUs={cpus} RealMemory=16000 Gres=gpu:A100:2,gpu:nvidia_h100_80gb:2 State=UNKNOWN
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=10
"""
_GPUS = """\
Name=gpu Type=A100 File=/run/gpu[0-1]
Name=gpu Type=nvidia_h100_80gb File=/run/gpu[2-3]
"""
_IN_NAMESPACE = 'cd "$0" && exec "$@"'


class SlurmCluster:
    """munged, slurmctld and a slurmd for each node, in a mount namespace.

    Args:
        state: An empty folder for all their files.
        nodes: The number of nodes, `node1` and so on.
    """

    def __init__(self, state: Path, nodes: int = 1) -> None:
        self._state = state
        self._nodes = nodes
        self._holder: subprocess.Popen[str] | None = None
        self.commands = state / "bin"

    def start(self) -> None:
        """Start the daemons. Skip the test where this is impossible."""
        for folder in ("bin", "debs", "overlay"):
            (self._state / folder).mkdir()
        if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("nsenter"):
            pytest.skip("NOT TESTED on Slurm: needs root, unshare and nsenter")
        if not shutil.which("slurmctld"):
            self._download()
        host = socket.gethostname().partition(".")[0]
        ports = {fixed_port()}
        while len(ports) <= self._nodes:
            ports.add(fixed_port())
        own, *others = ports
        conf = _CONF.format(
            host=host, state=self._state, cpus=CPUS,
            controller_port=own,
            nodes="\n".join(
                f"NodeName=node{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
                for number, port in enumerate(others, 1)
            ),
        )  # fmt: skip
        (self._state / "slurm.conf").write_text(conf)
        (self._state / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self._state / "gres.conf").write_text(_GPUS)
        script = Path(__file__).with_name("namespace.sh")
        self._holder = subprocess.Popen(
            ["unshare", "-m", "bash", str(script), str(self._state), str(self._nodes)],
            # Signals to the test's group must not end it before it has ended all others.
            start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        for name in COMMANDS:
            wrapper = self.commands / name
            words = f"exec nsenter -m -t {self._holder.pid} -- /bin/sh -c '{_IN_NAMESPACE}' \"$PWD\""
            wrapper.write_text(f'#!/bin/sh\n{words} /usr/bin/{name} "$@"\n')
            wrapper.chmod(0o755)
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "started\n":
            self.stop()
            raise RuntimeError(f"Slurm did not start: {self.logs()}")
        eventually(self.is_up, "the nodes take jobs", 30 + self._nodes, self.logs)

    def run(self, *command: str) -> str:
        """Run a command in the namespace, and return its output."""
        assert self._holder is not None
        entered = ["nsenter", "-m", "-t", str(self._holder.pid), "--", *command]
        return subprocess.run(entered, capture_output=True, text=True, check=False).stdout

    def pids(self, name: str) -> list[int]:
        """Return the processes of a daemon, e.g. "slurmd"."""
        assert self._holder is not None
        own = os.readlink(f"/proc/{self._holder.pid}/ns/mnt")
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                same = os.readlink(folder / "ns/mnt") == own
                if same and (folder / "comm").read_text().strip() == name:
                    found.append(int(folder.name))
        return found

    def kill(self, daemon: str) -> None:
        """Kill a daemon by SIGKILL."""
        for pid in self.pids(daemon):
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not self.pids(daemon), f"{daemon} is gone")

    def start_again(self, daemon: str) -> None:
        """Start a killed daemon (of node1), and wait until it works."""
        assert self._holder is not None
        command = ["slurmd", "-N", "node1"] if daemon == "slurmd" else [daemon]
        subprocess.run(["nsenter", "-m", "-t", str(self._holder.pid), "--", *command], stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)  # fmt: skip
        eventually(self.is_up, f"{daemon} is back", 60, self.logs)

    def save(self) -> None:
        """Let slurmctld save its jobs. A killed one forgets up to five seconds, and gives the ids of jobs again."""
        began = time.time()
        self.run("sbatch", "--hold", "--output=/dev/null", "--wrap=true")

        def is_saved() -> bool:
            return float(self.run("stat", "--format=%.6Y", "/var/spool/slurmctld/job_state") or 0) > began

        eventually(is_saved, "slurmctld has saved its jobs", 30, self.logs)

    def is_up(self) -> bool:
        """Return whether all nodes take jobs."""
        states = self.run("sinfo", "--noheader", "--format=%T").split()
        return bool(states) and {"idle", "mixed", "allocated"}.issuperset(states)

    def logs(self) -> str:
        """Return the ends of the daemons' logs."""
        return "".join(f"== {path.name}\n{path.read_text()[-2000:]}\n" for path in sorted(self._state.glob("*.log")))

    def stop(self) -> None:
        """End all processes in the namespace."""
        if self._holder is not None:
            self._holder.communicate("")
            self._holder = None

    def _download(self) -> None:
        done = subprocess.run(
            ["apt-get", "download", *PACKAGES], cwd=self._state / "debs", capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            pytest.skip(f"NOT TESTED on Slurm: cannot download Debian's packages: {done.stderr[-300:]}")


@contextlib.contextmanager
def running_slurm(nodes: int = 1) -> Iterator[SlurmCluster]:
    """Run Slurm within the block, with its commands first on PATH."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as state:
        cluster = SlurmCluster(Path(state), nodes)
        before = os.environ.get("PATH", os.defpath)
        try:
            cluster.start()
            os.environ["PATH"] = f"{cluster.commands}:{before}"
            yield cluster
        finally:
            os.environ["PATH"] = before
            cluster.stop()
