"""The local backend under the contract."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fray.backends import local
from fray.client import Client
from fray.testing.harness import BackendHarness


class LocalHarness(BackendHarness):
    """Callables in threads of the test's process."""

    name = "local"
    capabilities = local.CAPABILITIES

    def start(self, state_dir: Path) -> None:
        """There is nothing to start."""

    def make_client(self) -> Client:
        return local.LocalClient(max_threads=16)

    @property
    def spec(self) -> str:
        return "local"

    def leftovers(self) -> Sequence[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("fray-")]

    def stop(self) -> None:
        """There is nothing to stop."""


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
    """Callables in processes of their own."""

    name = "local-process"
    capabilities = local.PROCESS_CAPABILITIES

    def make_client(self) -> Client:
        return local.LocalClient(max_threads=16, processes=True)

    @property
    def spec(self) -> str:
        return "local://?processes=1"
