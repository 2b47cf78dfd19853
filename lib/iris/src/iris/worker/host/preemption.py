"""Detects that the platform preempts this host."""

import logging
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from rigging.gce_metadata import Metadata, ask_metadata, metadata_host
from rigging.timing import ExponentialBackoff

logger = logging.getLogger(__name__)

_PATIENCE_S: Final = 1.5
_LONG_POLL_S: Final = 300


class Platform(StrEnum):
    """The platform that a worker's host runs on."""

    NONE = "none"
    """A platform that announces no preemption."""
    GCE = "gce"
    """Compute Engine, whose metadata server announces preemption."""


class GceHost:
    """A Compute Engine virtual machine with its metadata server.

    Args:
        host: "host" or "host:port" of the metadata server; None for the default (`rigging.gce_metadata.metadata_host`).
        ask: Queries the metadata server for a key; raises OSError.
        clock: Returns monotonic time in seconds.
        sleep: Sleeps for a number of seconds.
    """

    def __init__(
        self,
        host: str | None = None,
        ask: Callable[[str, str, float], Metadata] = ask_metadata,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._server = host or metadata_host()
        self._ask_server = ask
        self._clock = clock
        self._sleep = sleep

    def is_preempted(self) -> bool:
        """Return whether the host is being preempted; False if the server does not answer. Blocks for at most 1.5 s."""
        try:
            return self._ask("", _PATIENCE_S)[0]
        except OSError:
            return False

    def wait_until_preempted(self) -> None:
        """Block until the host is being preempted, about half a minute before it stops."""
        backoff = ExponentialBackoff(initial=0.05, maximum=10.0, factor=3.0)
        query, complained = "", False
        while True:
            began = self._clock()
            try:
                preempted, etag = self._ask(query, _LONG_POLL_S + _PATIENCE_S)
                if preempted:
                    return
                # The first question is what it is, the next ones wait for a change of that: none is missed in between.
                query = f"?wait_for_change=true&timeout_sec={_LONG_POLL_S}&last_etag={etag}"
                complained = False
            except OSError as error:
                if not complained:
                    logger.warning("cannot determine whether this host is being preempted: %s", error)
                complained = True
            if self._clock() - began > 1:
                backoff.reset()  # it waited, as it was asked to
            self._sleep(backoff.next_interval())

    def _ask(self, query: str, timeout_s: float) -> tuple[bool, str]:
        """Return whether the host is being preempted, and the answer's etag. Raises OSError."""
        answer = self._ask_server(self._server, f"preempted{query}", timeout_s)
        return answer.value.upper() == "TRUE", answer.etag
