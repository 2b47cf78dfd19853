"""The local backend under the contract."""

import contextlib
import glob
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fray.backends.local import client as local
from fray.protocols import Client
from fray.replica import REPLICA_ENV
from fray.testing.harness import BackendHarness


class LocalHarness(BackendHarness):
    """Callables in threads of the test's process."""

    name = "local"
    capabilities = local.CAPABILITIES

    def start(self, state_dir: Path) -> None:
        """Do nothing."""

    def make_client(self) -> Client:
        return local.LocalClient(max_threads=16)

    @property
    def spec(self) -> str:
        return "local"

    def leftovers(self) -> Sequence[str]:
        """Return threads, and children of this process that run a job."""
        threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("fray-")]
        return [*threads, *_running_jobs()]

    def stop(self) -> None:
        """Do nothing."""


def _running_jobs() -> list[str]:
    """Return the children of this process that have a replica index, where the system reveals them."""
    found = []
    for listing in glob.glob("/proc/self/task/*/children"):
        children: list[str] = []
        # A thread or a child that ends meanwhile is not left.
        with contextlib.suppress(OSError):
            children = Path(listing).read_text().split()
        for pid in children:
            with contextlib.suppress(OSError):
                if f"{REPLICA_ENV}=".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(f"process {pid}")
    return found


class LocalAdmissionHarness(LocalHarness):
    """Callables in threads that wait for processors."""

    name = "local-admission"
    capabilities = replace(local.CAPABILITIES, enforces_resources=True)

    def make_client(self) -> Client:
        return local.LocalClient(max_threads=16, admission=True)

    @property
    def spec(self) -> str:
        return "local://?admission=1"


class LocalProcessHarness(LocalHarness):
    """Callables in separate processes."""

    name = "local-process"
    capabilities = local.PROCESS_CAPABILITIES

    def make_client(self) -> Client:
        return local.LocalClient(max_threads=16, processes=True)

    @property
    def spec(self) -> str:
        return "local://?processes=1"
