"""Tracks the last contact with each worker, and yields the events of its silence: late, lost, attempts ended by fences.

All times are milliseconds of one monotonic clock, passed as `now_ms`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from iris.core.rules.partition import HostSilence, Suspicion, silent_together
from iris.core.state.view import ClusterView
from iris.domain.events import AttemptFenced, Event, WorkerLate, WorkerLost
from iris.domain.ids import WorkerId
from iris.domain.job_spec import JobSpec
from iris.domain.resources import SLICE_ATTRIBUTE

_READS_SHARE: Final = 5
"""Share of `late_after_ms` within which the controller, after a pause, has read its pending messages."""
_CLOCK_ERROR: Final = 1000
"""Maximum drift between two hosts' clocks: one part in this many."""


class Silence(IntEnum):
    """The stages of a worker's silence."""

    NONE = 0
    LATE = 1
    LOST = 2


@dataclass(frozen=True, slots=True)
class ContactRules:
    """Times after which a silent worker is late or lost.

    Args:
        late_after_ms: After this silence a worker gets no new attempts.
        lost_after_ms: After this silence a worker's attempts count as lost, except those that wait for their host.
        fence_margin_ms: Time beyond an attempt's fence for its host to kill it.
        partition_patience_ms: How long workers that fell silent together with too many others
            (`iris.core.rules.partition`) are not declared lost, unless one of them reconnects.
    """

    late_after_ms: int
    lost_after_ms: int
    fence_margin_ms: int
    partition_patience_ms: int = 300_000

    def fenced_after_ms(self, spec: JobSpec) -> int:
        """Return the silence after which no attempt of an exclusive job is alive on its host."""
        return spec.fence_after_ms + spec.fence_after_ms // _CLOCK_ERROR + self.fence_margin_ms


@dataclass(slots=True)
class _Contact:
    """The last message from a worker.

    Args:
        paused_ms: How long the controller itself was paused since the message. first_pause_ms: The start of the first
            pause.
        resumed_ms: When the controller last resumed.
    """

    heard_ms: int
    silence: Silence = Silence.NONE
    has_left: bool = False
    paused_ms: int = 0
    first_pause_ms: int = 0
    resumed_ms: int = 0

    def heard(self, at_ms: int) -> None:
        self.heard_ms, self.paused_ms = at_ms, 0

    def pause(self, from_ms: int, to_ms: int) -> None:
        """Record a pause of the controller."""
        begin = max(from_ms, self.heard_ms)
        if not self.paused_ms:
            self.first_pause_ms = begin
        self.paused_ms += max(to_ms - begin, 0)
        self.resumed_ms = to_ms

    def silent_ms(self, now_ms: int, late_after_ms: int) -> int:
        """Return how long the worker has been silent.

        Pauses of the controller count as silence only after it has run for `late_after_ms` since the first pause. By
        then it has read all messages of the worker from the meantime.
        """
        silent_ms = now_ms - self.heard_ms
        if not self.paused_ms:
            return silent_ms
        has_run_ms = now_ms - self.first_pause_ms - self.paused_ms
        has_read = now_ms - self.resumed_ms >= late_after_ms // _READS_SHARE
        return silent_ms if has_run_ms >= late_after_ms and has_read else silent_ms - self.paused_ms


class Contacts:
    """The last message from every worker. Check it several times per `late_after_ms`."""

    def __init__(self, rules: ContactRules, now_ms: int) -> None:
        self._rules = rules
        self._looked_ms = now_ms
        self._known: dict[WorkerId, _Contact] = {}
        self._given_up: frozenset[WorkerId] = frozenset()
        self.suspicion: Suspicion | None = None
        """Why silent workers are not lost at present: the controller itself may be disconnected."""

    def begin(self, worker_id: WorkerId, now_ms: int) -> None:
        """Record the start of a session. At the controller's start, call this for all known workers."""
        self._known[worker_id] = _Contact(now_ms)
        self._given_up -= {worker_id}

    def heard(self, worker_id: WorkerId, now_ms: int) -> bool:
        """Record a message. Return whether the worker was late until now."""
        contact = self._known.get(worker_id)
        if contact is None:
            self.begin(worker_id, now_ms)
            return False
        contact.heard(now_ms)
        self._given_up -= {worker_id}
        if contact.silence is Silence.NONE:
            return False
        contact.silence = Silence.NONE
        return True

    def left(self, worker_id: WorkerId) -> None:
        """Record that the worker said goodbye, so that its silence has no consequences."""
        contact = self._known.get(worker_id)
        if contact is not None:
            contact.has_left = True

    def is_present(self, worker_id: WorkerId) -> bool:
        """Return whether the worker is connected, or may still reconnect before it is lost."""
        contact = self._known.get(worker_id)
        return contact is not None and contact.silence is not Silence.LOST

    def silent_ms(self, worker_id: WorkerId, now_ms: int) -> int:
        """Return how long the worker has been silent; a lower bound if that is unknown."""
        contact = self._known.get(worker_id)
        return contact.silent_ms(now_ms, self._rules.late_after_ms) if contact is not None else 0

    def fenced_in_ms(self, worker_id: WorkerId, spec: JobSpec, now_ms: int) -> int:
        """Return the ms, at least 1, until an exclusive attempt on a silent worker must have ended.

        Args:
            worker_id: The silent worker.
            spec: The exclusive job.
            now_ms: As in `look`.
        """
        return max(self._rules.fenced_after_ms(spec) - self.silent_ms(worker_id, now_ms), 1)

    def look(self, view: ClusterView, now_ms: int) -> list[Event]:
        """Return the due events. Each stage of a worker's silence occurs once.

        At first, time in which the controller itself was paused (stopped, suspended) does not count as silence, because
        the messages of that time are still unread.
        """
        if now_ms - self._looked_ms > self._rules.late_after_ms:
            for contact in self._known.values():
                contact.pause(self._looked_ms, now_ms)
        self._looked_ms = now_ms
        self._suspect(view, now_ms)
        events: list[Event] = []
        for worker_id, contact in list(self._known.items()):
            silent_ms = contact.silent_ms(now_ms, self._rules.late_after_ms)
            if silent_ms >= self._rules.late_after_ms:
                events += self._steps(view, worker_id, contact, silent_ms)
        return events

    def _suspect(self, view: ClusterView, now_ms: int) -> None:
        """Start or end the suspicion that the controller is cut off."""
        hosts = list(self._hosts(view, now_ms))
        before = self.suspicion
        if before is None:
            found = silent_together(hosts) - self._given_up
            if found:
                self.suspicion = Suspicion(now_ms, found, len(hosts))
            return
        silent = frozenset(host.worker_id for host in hosts if host.is_silent)
        is_back = any(host.worker_id in before.hosts and not host.is_silent for host in hosts)
        if is_back or not before.hosts & silent:
            # One of them is back: so are the others, in a moment, if it was the controller that was away.
            for worker_id in before.hosts & silent:
                contact = self._known[worker_id]
                contact.heard(max(contact.heard_ms, now_ms - self._rules.late_after_ms))
            self.suspicion = None
        elif now_ms - before.since_ms >= self._rules.partition_patience_ms:
            self._given_up = before.hosts
            self.suspicion = None
        else:
            self.suspicion = replace(before, hosts=before.hosts | silent - self._given_up)

    def _hosts(self, view: ClusterView, now_ms: int) -> Iterator[HostSilence]:
        for worker_id, contact in self._known.items():
            worker = view.workers.get(worker_id)
            if worker is None or worker.cordon_reason or contact.has_left or contact.silence is Silence.LOST:
                continue
            is_silent = contact.silent_ms(now_ms, self._rules.late_after_ms) >= self._rules.late_after_ms
            group = worker.attributes.get(SLICE_ATTRIBUTE) or worker_id
            yield HostSilence(worker_id, group, contact.heard_ms, is_silent)

    def _steps(self, view: ClusterView, worker_id: WorkerId, contact: _Contact, silent_ms: int) -> Iterator[Event]:
        worker = view.workers.get(worker_id)
        if worker is None:
            if silent_ms >= self._rules.lost_after_ms:
                del self._known[worker_id]
            return
        # Of a worker that went long ago there is nothing to say.
        matters = worker.connected or any(view.attempts_on(worker_id))
        is_suspected = self.suspicion is not None and worker_id in self.suspicion.hosts
        if contact.silence is Silence.NONE:
            contact.silence = Silence.LATE
            if matters:
                yield WorkerLate(worker_id, silent_ms, keeps=is_suspected)
        if contact.silence is Silence.LATE and silent_ms >= self._rules.lost_after_ms and not is_suspected:
            contact.silence = Silence.LOST
            if matters:
                yield WorkerLost(
                    worker_id, f"worker {worker_id} was not heard for {self._rules.lost_after_ms / 1000:g} s"
                )
        for booking in view.attempts_on(worker_id):
            spec = view.jobs[booking.job_id].spec
            if spec.exclusive and silent_ms >= self._rules.fenced_after_ms(spec):
                reason = f"its host had no contact for {round(silent_ms / 1000, 1):g} s and has ended it by now"
                yield AttemptFenced(booking.attempt_id, reason)
