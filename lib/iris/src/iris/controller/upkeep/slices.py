"""Gives the autoscaler what it needs of its controller."""

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iris.autoscale.missing import Missing
from iris.controller.context import Controller
from iris.core.state.view import ClusterView
from iris.domain.events import Recorded
from iris.domain.ids import JobId, WorkerId
from rigging.errors import NotFound

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AutoscaledCluster:
    """A running controller as the autoscaler's `Cluster`."""

    controller: Controller

    @property
    def view(self) -> ClusterView:
        return self.controller.view

    @property
    def kept(self) -> Mapping[WorkerId, JobId]:
        return self.controller.engine.kept

    def is_present(self, worker_id: WorkerId) -> bool:
        return self.controller.sessions.present(worker_id)

    def record(self, what: Recorded) -> None:
        self.controller.engine.record(what)

    async def confirm(self) -> None:
        await self.controller.confirm()

    async def drain(self, worker_id: WorkerId, reason: str) -> None:
        with contextlib.suppress(NotFound):  # removed meanwhile
            await self.controller.cordon(worker_id, reason, drain=True)

    def tell_missing(self, missing: Sequence[Missing]) -> None:
        for item in missing:
            logger.warning("scale group %s lacks %d slices for long: %s", item.group, item.slices, item.outcome)
        if self.controller.notifier is not None:
            self.controller.notifier.tell_operator(missing)

    async def remove(self, worker_id: WorkerId, reason: str) -> None:
        with contextlib.suppress(NotFound):
            await self.controller.remove_worker(worker_id, reason)
        self.controller.credentials.forget_worker(worker_id)
