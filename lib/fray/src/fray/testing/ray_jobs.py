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
    """Return a cluster with a working Jobs API.

    Args:
        cpus: The processors of its head.
        token: The token that it requires; empty for none.
        storage: The folder for its head's state; empty keeps it in memory.
    """
    with RayCluster(cpus=cpus, jobs_api=True, token=token, storage=storage).running() as cluster:
        await_jobs_api(cluster.jobs_address, token)
        yield cluster


def await_jobs_api(address: str, token: str = "", seconds: float = _SECONDS) -> None:
    """Wait until the cluster accepts jobs. Another process starts the Jobs API after the head.

    Args:
        address: The URL of the cluster's dashboard.
        token: The token that it requires; empty for none.
        seconds: Seconds to wait.

    Raises:
        RuntimeError: The dashboard did not start in time. The message includes its last answer.
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
                raise RuntimeError(f"the Ray cluster at {address} does not accept jobs: {said}") from None
            time.sleep(_LOOK_SECONDS)
        else:
            return
