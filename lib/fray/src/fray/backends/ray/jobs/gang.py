"""Jobs of several replicas on Ray: placed and retried together."""

import logging
import threading
from typing import Any

from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fray.backends.common.job_life import AttemptEnd, AttemptEnded, AttemptStatus, Job, Seen, verdict
from fray.backends.ray.jobs.job import JobOwner, Plan, RayJob
from fray.backends.ray.jobs.slices import GangPlacer, Placement
from fray.types import JobRequest

logger = logging.getLogger(__name__)

_PEERS_END_SECONDS = 30.0
_PROBE_SECONDS = 60.0
_NODE_LOSS_GRACE_SECONDS = 2.0
_STOPPED = AttemptEnd(AttemptStatus.STOPPED)


class GangJob(RayJob):
    """A job whose replicas start, fail and restart together, including finished ones.

    Each attempt has a thread, which waits for capacity and, at the attempt's end, checks whether a node was lost.
    """

    def __init__(self, client: JobOwner, job_id: str, request: JobRequest, plan: Plan, placer: GangPlacer) -> None:
        super().__init__(client, job_id, request, plan, review=self._decide)
        self._placer = placer
        self._halt = threading.Event()
        self._changed = threading.Condition(self._lock)
        self._decided = False

    def _start_attempt(self, attempt: int) -> None:
        self._decided = False
        self._refs.clear()  # of peers that did not end in time
        threading.Thread(target=self._run_attempt, args=(attempt,), name="fray-gang", daemon=True).start()

    def _stop_attempt(self, grace: float | None) -> None:
        if self._life.stopping:
            self._halt.set()
        super()._stop_attempt(grace)

    def _decide(self, attempt: int) -> None:  # noqa: ARG002 - of the running one
        self._decided = True

    def _close(self, ended: Job) -> None:
        super()._close(ended)
        self._decided = True
        self._changed.notify_all()

    def _settle(self, ref: Any, end: AttemptEnd) -> None:
        super()._settle(ref, end)
        with self._lock:
            self._changed.notify_all()

    def _run_attempt(self, attempt: int) -> None:
        try:
            self._apply(AttemptEnded(attempt, self._end_of_attempt(attempt)))
        except Exception as error:
            # Ray's or whatever it is: only this thread ends the job, and no caller may wait for ever.
            logger.exception("job %r: its gang is lost", self.request.name)
            self.give_up("its gang is lost", error)

    def _end_of_attempt(self, attempt: int) -> AttemptEnd:
        while (placement := self._placer.acquire(self._halt)) is not None:
            with placement:
                # Ray learns late of a lost node, and hands out places on it until then.
                if not self._gone(placement):
                    return self._run_placed(attempt, placement)
            self._halt.wait(_NODE_LOSS_GRACE_SECONDS)
        return _STOPPED

    def _run_placed(self, attempt: int, placement: Placement) -> AttemptEnd:
        with self._lock:
            if self._life.stopping:
                return _STOPPED
            for replica, place in enumerate(placement.replicas):
                strategy = PlacementGroupSchedulingStrategy(
                    placement_group=place.group, placement_group_bundle_index=place.bundle
                )
                options = {**self.plan.options, **place.options, "scheduling_strategy": strategy}
                self._launch(attempt, replica, options, place.env)
            self._apply(Seen())
            self._changed.wait_for(lambda: self._decided)
            self._changed.wait_for(lambda: len(self._life.ended) == len(placement.replicas), _PEERS_END_SECONDS)
            end, stopping = verdict(self._life), self._life.stopping
        if end.status is not AttemptStatus.FAILED or stopping:
            return end
        # When a host is lost its peers fail too, often sooner, by their own errors.
        gone = self._gone(placement)
        if not gone:
            return end
        reason = (
            f"{len(gone)} of its {len(placement.replicas)} nodes are gone ({', '.join(gone)}); seen as: {end.reason}"
        )
        return AttemptEnd(AttemptStatus.PREEMPTED, reason)

    def _gone(self, placement: Placement) -> list[str]:
        nodes = list(dict.fromkeys(placement.node_ids()))
        gone: list[str] = self.client.sessions.ask(lambda session: session.gone.remote(nodes), _PROBE_SECONDS)
        return gone
