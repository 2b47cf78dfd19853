"""Jobs of several replicas on Ray: placed together, retried together."""

import logging
import threading
from typing import Any

from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fray.backends.ray.jobs.failures import AttemptEnd, AttemptStatus
from fray.backends.ray.jobs.job import JobOwner, Plan, RayJob
from fray.backends.ray.jobs.slices import GangPlacer, Placement
from fray.types import JobRequest, JobStatus

logger = logging.getLogger(__name__)

_PEERS_END_SECONDS = 30.0
_PROBE_SECONDS = 60.0
_NODE_LOSS_GRACE_SECONDS = 2.0


class GangJob(RayJob):
    """A job whose replicas start together, fall together, and start over together, finished ones included."""

    def __init__(self, client: JobOwner, job_id: str, request: JobRequest, plan: Plan, placer: GangPlacer) -> None:
        super().__init__(client, job_id, request, plan)
        self._placer = placer
        self._halt = threading.Event()
        self._changed = threading.Condition(self._lock)
        self._refs: list[Any] = []
        self._ends: dict[int, AttemptEnd] = {}

    def start(self) -> None:
        threading.Thread(target=self._run, name="fray-gang", daemon=True).start()

    def refs(self) -> list[Any]:
        with self._lock:
            return [ref for replica, ref in enumerate(self._refs) if replica not in self._ends]

    def _stop(self) -> None:
        with self._lock:
            if self._stopping or self._status.finished():
                return
            self._stopping = True
            refs = list(self._refs)
        self._halt.set()
        self._stop_tasks(refs)

    def _run(self) -> None:
        end = AttemptEnd(AttemptStatus.STOPPED)
        try:
            again = True
            while again and not self._stopping:
                placement = self._placer.acquire(self._halt)
                if placement is None:
                    break
                try:
                    # Ray learns late of a lost node, and hands out places on it until then.
                    if self._gone(placement):
                        self._halt.wait(_NODE_LOSS_GRACE_SECONDS)
                        continue
                    self._begin_attempt()
                    end = self._run_attempt(placement)
                finally:
                    placement.release()
                again = self._attempt_ended(end)
        except Exception as error:
            # Ray's or whatever it is: only this thread ends the job, and no caller may wait for ever.
            logger.exception("job %r: its gang is lost", self.request.name)
            end = AttemptEnd(AttemptStatus.FAILED, f"{type(error).__name__}: {error}")
        self._finish(end)

    def _run_attempt(self, placement: Placement) -> AttemptEnd:
        with self._lock:
            self._ends, self._refs = {}, []
            for replica, place in enumerate(placement.replicas):
                strategy = PlacementGroupSchedulingStrategy(
                    placement_group=place.group, placement_group_bundle_index=place.bundle
                )
                options = {**self.plan.options, **place.options, "scheduling_strategy": strategy}
                ref = self.client.launch(self, self._attempt, replica, options, place.env)
                self._refs.append(ref)
                self.client.completions.add(ref, self._settle)
            if self._stopping:
                self._stop_tasks(self._refs)
            if self._status is JobStatus.PENDING:
                self._status = JobStatus.RUNNING
            self._changed.wait_for(self._decided)
            first = self._first_failure()
            refs = list(self._refs)
        if first is None:
            return AttemptEnd(AttemptStatus.SUCCEEDED)
        self._stop_tasks(refs)
        with self._lock:
            self._changed.wait_for(lambda: len(self._ends) == len(self._refs), timeout=_PEERS_END_SECONDS)
        return self._judge(first, placement)

    def _settle(self, ref: Any, end: AttemptEnd) -> None:
        with self._lock:
            if ref not in self._refs:
                return
            replica = self._refs.index(ref)
            if end.outcome is not None:
                self._keep_output(replica, end.outcome)
            elif end.status is not AttemptStatus.SUCCEEDED:
                self._keep_reported_output(replica)
            self._ends[replica] = end
            self._changed.notify_all()

    def _decided(self) -> bool:
        return len(self._ends) == len(self._refs) or self._first_failure() is not None

    def _first_failure(self) -> AttemptEnd | None:
        return next((end for end in self._ends.values() if end.status is not AttemptStatus.SUCCEEDED), None)

    def _judge(self, first: AttemptEnd, placement: Placement) -> AttemptEnd:
        """Tell preemption from failure: when a host is lost its peers fail too, often sooner, by their own errors."""
        if self._stopping:
            return first
        with self._lock:
            preempted = next((end for end in self._ends.values() if end.status is AttemptStatus.PREEMPTED), None)
        if preempted is not None:
            return preempted
        gone = self._gone(placement)
        if not gone:
            return first
        reason = (
            f"{len(gone)} of its {len(placement.replicas)} nodes are gone ({', '.join(gone)}); seen as: {first.reason}"
        )
        return AttemptEnd(AttemptStatus.PREEMPTED, reason)

    def _gone(self, placement: Placement) -> list[str]:
        nodes = list(dict.fromkeys(placement.node_ids()))
        gone: list[str] = self.client.sessions.ask(lambda session: session.gone.remote(nodes), _PROBE_SECONDS)
        return gone
