"""The Iris backend under the contract: a separate embedded cluster in a temporary directory."""

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from fray.backends import iris
from fray.protocols import Client
from fray.testing.harness import BackendHarness
from iris.client import IrisClient
from rigging.errors import Unavailable

_STATE_DIR = "IRIS_STATE_DIR"


class IrisHarness(BackendHarness):
    """A controller and a worker as processes on this machine."""

    name = "iris"
    capabilities = iris.CAPABILITIES

    def __init__(self) -> None:
        self._before: str | None = None
        self._cluster: IrisClient | None = None

    def start(self, state_dir: Path) -> None:
        """Start the cluster, with its state in `state_dir`."""
        self._before = os.environ.get(_STATE_DIR)
        os.environ[_STATE_DIR] = str(state_dir)
        self._cluster = IrisClient.local()
        self._cluster.list_jobs()  # connects, so that the address is known

    def make_client(self) -> Client:
        return iris.connect(self._running().address)

    @property
    def spec(self) -> str:
        return f"iris://{self._running().address}"

    def leftovers(self) -> Sequence[str]:
        """Return unfinished jobs, endpoints of actors, and threads that wait for jobs."""
        jobs = [job.job_id for job in self._running().list_jobs() if not job.state.is_terminal]
        endpoints = [f"endpoint {row[0]!s}" for row in self._running().query("SELECT name FROM endpoints").rows]
        threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("fray-")]
        return [*jobs, *endpoints, *threads]

    def stop(self) -> None:
        cluster = self._running()
        # It leaves by itself when its last test was long before the session's end.
        with contextlib.suppress(Unavailable):
            cluster.stop_cluster(stop_jobs=True)
        cluster.shutdown()
        os.environ.pop(_STATE_DIR)
        if self._before is not None:
            os.environ[_STATE_DIR] = self._before

    def _running(self) -> IrisClient:
        assert self._cluster is not None, "the harness was not started"
        return self._cluster
