"""The Slurm backend under fray's contract: a Slurm of its own on this machine."""

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path

from fray.backends import slurm
from fray.backends.slurm.address import SlurmAddress
from fray.protocols import Client
from fray.testing.harness import BackendHarness
from support.slurm.cluster import CPUS, SlurmCluster, running_slurm


class SlurmHarness(BackendHarness):
    """slurmctld and slurmd on this machine."""

    name = "slurm"
    capabilities = slurm.CAPABILITIES

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._cluster: SlurmCluster | None = None
        self._address = SlurmAddress()

    def start(self, state_dir: Path) -> None:
        """Start Slurm, with the jobs' files in `state_dir`."""
        self._address = SlurmAddress("main", directory=state_dir)
        self._cluster = self._stack.enter_context(running_slurm())

    def make_client(self) -> Client:
        return slurm.SlurmClient(self._address)

    @property
    def spec(self) -> str:
        return self._address.spec

    @property
    def cpus(self) -> int:
        return CPUS

    def leftovers(self) -> Sequence[str]:
        """Return unfinished jobs and threads that watch jobs."""
        assert self._cluster is not None
        threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("fray-")]
        return [*self._cluster.run("squeue", "--noheader").splitlines(), *threads]

    def stop(self) -> None:
        self._stack.close()
