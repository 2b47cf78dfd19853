"""Detects that the platform preempts this host, or stops it for maintenance."""

import contextlib
import json
import logging
import time
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Final

from rigging.gce_metadata import Metadata, ask_metadata, metadata_host
from rigging.timing import ExponentialBackoff

logger = logging.getLogger(__name__)

_PATIENCE_S: Final = 1.5
_LONG_POLL_S: Final = 300
_PLANNED: Final = "upcoming-maintenance"
_QUERIES: Final = {_PLANNED: "?alt=json"}
_PLANNED_POLL_S: Final = 60.0
_ENDING_POLL_S: Final = 5.0
_MAINTENANCE_LEAD_S: Final = 300.0
"""A host is left this long before the window of a maintenance begins."""
NOTICES: Final = ("preempted", "maintenance-event", _PLANNED)
"""Keys of the metadata server that announce the host's end."""


class Platform(StrEnum):
    """The platform that a worker's host runs on."""

    NONE = "none"
    """A platform that announces no preemption."""
    GCE = "gce"
    """Compute Engine and TPU VMs, whose metadata server announces preemption and maintenance."""


def announces_end(key: str, value: str, now_s: float) -> bool:
    """Return whether a value of the metadata server says that the host stops within minutes. Pure.

    Args:
        key: One of NOTICES.
        value: Its value.
        now_s: Unix seconds.
    """
    if key == "preempted":
        return value.upper() == "TRUE"
    if key == "maintenance-event":
        return value.upper().startswith("TERMINATE")  # not MIGRATE, which tasks survive
    try:
        planned = json.loads(value)
        if planned.get("maintenance_status") == "ONGOING":
            return True
        begins = datetime.fromisoformat(planned["window_start_time"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return begins.timestamp() - now_s <= _MAINTENANCE_LEAD_S


class GceHost:
    """A Compute Engine virtual machine with its metadata server.

    Args:
        host: "host" or "host:port" of the metadata server; None for the default (`rigging.gce_metadata.metadata_host`).
        ask: Queries the metadata server for a key; raises OSError.
        clock: Returns monotonic time in seconds.
        sleep: Sleeps for a number of seconds.
        unix_s: Returns Unix seconds.
    """

    def __init__(
        self,
        host: str | None = None,
        ask: Callable[[str, str, float], Metadata] = ask_metadata,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        unix_s: Callable[[], float] = time.time,
    ) -> None:
        self._server = host or metadata_host()
        self._ask_server = ask
        self._clock = clock
        self._sleep = sleep
        self._unix_s = unix_s

    def is_preempted(self) -> bool:
        """Return whether the host is being preempted; False if the server does not answer. Blocks for at most 1.5 s."""
        return self._is_announced(NOTICES[0])

    def wait_while_ending(self) -> None:
        """Block while the host's end is announced: what starts now would be lost."""
        complained = False
        while any(map(self._is_announced, NOTICES)):
            if not complained:
                logger.warning("the platform stops this host, so its worker does not start")
            complained = True
            self._sleep(_ENDING_POLL_S)

    def wait_until_ended(self, key: str) -> None:
        """Block until one of NOTICES announces the host's end, for a preemption half a minute before it."""
        if key == _PLANNED:
            return self._wait_for_plan()
        backoff = ExponentialBackoff(initial=0.05, maximum=10.0, factor=3.0)
        query, complained = "", False
        while True:
            began = self._clock()
            try:
                preempted, etag = self._ask(key, query, _LONG_POLL_S + _PATIENCE_S)
                if preempted:
                    return None
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

    def _is_announced(self, key: str) -> bool:
        try:
            return self._ask(key, _QUERIES.get(key, ""), _PATIENCE_S)[0]
        except OSError:
            return False

    def _wait_for_plan(self) -> None:
        """Block until planned maintenance is near. There is an answer only while some is planned."""
        while True:
            with contextlib.suppress(OSError):
                if self._ask(_PLANNED, _QUERIES[_PLANNED], _PATIENCE_S)[0]:
                    return
            self._sleep(_PLANNED_POLL_S)

    def _ask(self, key: str, query: str, timeout_s: float) -> tuple[bool, str]:
        """Return whether a key announces the host's end, and the answer's etag. Raises OSError."""
        answer = self._ask_server(self._server, f"{key}{query}", timeout_s)
        return announces_end(key, answer.value, self._unix_s()), answer.etag
