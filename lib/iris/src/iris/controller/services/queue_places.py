"""The places of pending jobs in the queue, for answers to users."""

from collections.abc import Mapping
from typing import Final

from iris.core.state.view import ClusterView
from iris.domain.ids import JobId
from iris.sched.order import places

_JOBS_PER_MS: Final = 10


class QueuePlaces:
    """Each pending job's place, computed on request and cached for long queues."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._known: Mapping[JobId, tuple[int, int]] = {}
        self._good_until_ms = 0

    def at(self, now_ms: int) -> Mapping[JobId, tuple[int, int]]:
        """Return the place of each pending job in its band, from 1, and the number of jobs in the band, in scheduling
        order.

        For 10,000 pending jobs the answer may be a second old.
        """
        lasts_ms = len(self._view.queue) // _JOBS_PER_MS
        if not now_ms < self._good_until_ms <= now_ms + lasts_ms:
            self._known, self._good_until_ms = places(self._view, now_ms), now_ms + lasts_ms
        return self._known
