"""The Jobs API of a Ray test cluster."""

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Final

from fray.testing.ray_harness import RayCluster

_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 1.0


@contextlib.contextmanager
def jobs_cluster(cpus: int = 4, token: str = "", storage: str = "") -> Iterator[RayCluster]:
    """A cluster whose Jobs API takes jobs.

    Args:
        cpus: Processors of its head.
        token: What it wants to be sent; empty: nothing.
        storage: Folder in which its head keeps what it knows; empty: in memory.
    """
    with RayCluster(cpus=cpus, jobs_api=True, token=token, storage=storage).running() as cluster:
        await_jobs_api(cluster.jobs_address, token)
        yield cluster


def await_jobs_api(address: str, token: str = "", seconds: float = _SECONDS) -> None:
    """Wait until the cluster takes jobs, which is after its head answers: another process starts them.

    Args:
        address: URL of the cluster's dashboard.
        token: What it wants to be sent; empty: nothing.
        seconds: How long to wait.

    Raises:
        RuntimeError: It does not in time; the message has what it said last.
    """
    body = json.dumps({"entrypoint": "true"}).encode()
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(f"{address}/api/jobs/", body, headers)
    deadline = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(request, timeout=60).close()
        except OSError as error:
            said = error.read().decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else str(error)
            if time.monotonic() > deadline:
                raise RuntimeError(f"the Ray cluster at {address} takes no jobs: {said}") from None
            time.sleep(_LOOK_SECONDS)
        else:
            return
