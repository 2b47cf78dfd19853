"""Whether the platform takes this host away."""

import http.client
import logging
import os
import time
from enum import StrEnum
from typing import Final

from rigging.timing import ExponentialBackoff

logger = logging.getLogger(__name__)

_PATH: Final = "/computeMetadata/v1/instance/preempted"
_FLAVOR: Final = ("Metadata-Flavor", "Google")
_PATIENCE_S: Final = 1.5
_LONG_POLL_S: Final = 300


class Platform(StrEnum):
    """What a worker's host stands on."""

    NONE = "none"
    """Nothing that takes hosts away, or nothing that says so."""
    GCE = "gce"
    """Compute Engine, whose metadata server says so."""


class GceHost:
    """A virtual machine of Compute Engine, as its metadata server knows it.

    Args:
        metadata_host: "host" or "host:port" of the server; empty: $GCE_METADATA_HOST, else where it always is.
    """

    def __init__(self, metadata_host: str = "") -> None:
        self._server = metadata_host or os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"

    def is_preempted(self) -> bool:
        """Whether it is being taken away now; a server that does not answer says no. Blocks for 1.5 s at most."""
        try:
            return self._ask("", _PATIENCE_S)[0]
        except OSError:
            return False

    def wait_until_preempted(self) -> None:
        """Return when it is being taken away, about half a minute before it is gone. Blocks until then."""
        backoff = ExponentialBackoff(initial=0.05, maximum=10.0, factor=3.0)
        query, complained = "", False
        while True:
            began = time.monotonic()
            try:
                preempted, etag = self._ask(query, _LONG_POLL_S + _PATIENCE_S)
                if preempted:
                    return
                # The first question is what it is, the next ones wait for a change of that: none is missed in between.
                query = f"?wait_for_change=true&timeout_sec={_LONG_POLL_S}&last_etag={etag}"
                complained = False
            except OSError as error:
                if not complained:
                    logger.warning("whether this host is preempted is not known: %s", error)
                complained = True
            if time.monotonic() - began > 1:
                backoff.reset()  # it waited, as it was asked to
            time.sleep(backoff.next_interval())

    def _ask(self, query: str, timeout_s: float) -> tuple[bool, str]:
        """Whether it is preempted, and the tag of that answer. Raises OSError."""
        connection = http.client.HTTPConnection(self._server, timeout=timeout_s)
        try:
            connection.request("GET", _PATH + query, headers=dict([_FLAVOR]))
            reply = connection.getresponse()
            body = reply.read(16)
        except http.client.HTTPException as error:
            raise OSError(f"{self._server} does not speak HTTP as a metadata server does: {error!r}") from error
        finally:
            connection.close()
        name, value = _FLAVOR
        if reply.status != http.client.OK or reply.headers.get(name) != value:
            raise OSError(f"{self._server} answered {reply.status}, not as a metadata server does")
        return body.strip().upper() == b"TRUE", reply.headers.get("ETag", "0")
