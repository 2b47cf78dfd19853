"""Sends changes of the cluster, and of the controller's availability, to every open page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.requests import Request
from starlette.responses import Response

from iris.dashboard.cluster_client import ClusterClient
from iris.rpc.generated import dashboard_pb2 as pb
from rigging.errors import MarinError
from rigging.timing import ExponentialBackoff
from rigging.web.events import Broadcaster, Event, event_response, last_event_id
from rigging.web.pages import query_text
from rigging.web.revocation import RevokedGrants

logger = logging.getLogger(__name__)

_JOBS = "jobs"
_JOB = "job"


class LiveNews:
    """Listens to the controller while the application runs.

    Args:
        client: The controller.
        broadcaster: Notifies the pages.
        revoked: Receives the ids of revoked tokens.
    """

    def __init__(self, client: ClusterClient, broadcaster: Broadcaster, revoked: RevokedGrants) -> None:
        self._revoked = revoked
        self._client = client
        self.broadcaster = broadcaster
        self.controller_is_away = False

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Context manager: listen to the controller."""
        self._client.open()
        task = asyncio.create_task(self._listen())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self.broadcaster.close()
            await self._client.close()

    async def _listen(self) -> None:
        backoff = ExponentialBackoff(initial=0.1, maximum=1.0)
        while True:
            try:
                async for changes in self._client.changes():
                    backoff.reset()
                    self._present()
                    self._revoked.add(changes.revoked_token_ids)
                    for name, data in events_of(changes):
                        self.broadcaster.publish(name, data)
            except MarinError as error:
                if not self.controller_is_away:
                    logger.info("the controller is away: %s", error)
                    self.controller_is_away = True
                    self.broadcaster.publish("away")
            await asyncio.sleep(backoff.next_interval())

    def _present(self) -> None:
        if self.controller_is_away:
            self.controller_is_away = False
            self.broadcaster.publish("back")

    async def events(self, request: Request) -> Response:
        """Return the event stream of a page, for one job or for all."""
        job_id = query_text(request, "job")
        return event_response(self.broadcaster.stream(last_event_id(request), lambda event: is_wanted(event, job_id)))


def events_of(changes: pb.ClusterChanges) -> list[tuple[str, str]]:
    """Return the page events for changes, as names and data.

    Args:
        changes: The changes.
    """
    found = []
    if changes.job_ids or changes.many_jobs:
        found.append((_JOBS, ""))
        found.append((_JOB, "*" if changes.many_jobs else "\n".join(changes.job_ids)))
    if changes.workers:
        found.append(("workers", ""))
    if changes.endpoints:
        found.append(("endpoints", ""))
    return found


def is_wanted(event: Event, job_id: str) -> bool:
    """Return whether a page gets an event. A job's page gets only events of the job and its descendants.

    Args:
        event: The event.
        job_id: The job of the page; "" for none.
    """
    if event.name == _JOBS:
        return not job_id
    if event.name != _JOB:
        return True
    if not job_id:
        return False
    return event.data == "*" or any(name == job_id or name.startswith(job_id + "/") for name in event.data.split("\n"))
