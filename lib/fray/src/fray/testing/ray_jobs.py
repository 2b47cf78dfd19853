"""The Jobs API of a Ray test cluster."""

import json
import time
import urllib.error
import urllib.request
from typing import Final

_SECONDS: Final = 240.0
_LOOK_SECONDS: Final = 1.0


def await_jobs_api(address: str, seconds: float = _SECONDS) -> None:
    """Wait until the cluster takes jobs, which is after its head answers: another process starts them.

    Raises:
        RuntimeError: It does not in time; the message has what it said last.
    """
    body = json.dumps({"entrypoint": "true"}).encode()
    request = urllib.request.Request(f"{address}/api/jobs/", body, {"Content-Type": "application/json"})
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
