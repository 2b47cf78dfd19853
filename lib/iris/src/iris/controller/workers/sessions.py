"""The controller's sessions with workers: connections, orders to send, lost workers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from iris.controller.engine.engine import Engine
from iris.controller.engine.transaction import Transaction
from iris.controller.logs.hub import LogHub
from iris.controller.workers.connected import ConnectedWorker, Greeting, Report, WorkerHost, is_far
from iris.controller.workers.held import HeldReports
from iris.controller.workers.orders import WorkerOrders
from iris.controller.workers.peers import PeerWait
from iris.core.rules.contact import ContactRules, Contacts
from iris.core.rules.reconcile import reconcile
from iris.core.rules.rivals import may_succeed
from iris.domain.effects import Effect, ForgetAttempt, StartAttempt, StopAttempt, WithdrawAttempt
from iris.domain.events import (
    Begun,
    Preempted,
    WorkerConnected,
    WorkerDisconnected,
    WorkerHeard,
    WorkerLost,
    WorkerResized,
    WorkerTroubled,
)
from iris.domain.ids import AttemptId, JobId, WorkerId, parse_attempt_id, parse_task_id
from iris.domain.job_spec import JobSpec
from iris.domain.resources import Resources
from iris.domain.states import PreemptionReason, TaskState
from rigging.errors import Conflict, Unavailable

logger = logging.getLogger(__name__)

_FOR_WORKERS: Final = (StartAttempt, StopAttempt, WithdrawAttempt, ForgetAttempt)

STOP_REASON_UNKNOWN: Final = "the controller does not know this attempt"
RIVAL_SHOWN_MS: Final = 60_000
"""How long to show a refused copy of a worker."""
_LOOKS: Final = 8
"""Number of checks per lateness period of a worker."""


class Sessions:
    """All sessions. Sends effects to workers, processes their reports, and declares silent workers lost.

    Args:
        rules: The rules for silent workers. Silence counts from the controller's start.
        log_wait_s: How long an end waits for the rest of its log.
        on_worker: Called with the id of each connecting worker after the commit.
        confirm: Awaited before a new session sends orders, because commits must be replicated first.
        peer_wait_s: How long the end of a gang's member waits for the causes of others.
    """

    def __init__(
        self,
        engine: Engine,
        hub: LogHub,
        rules: ContactRules,
        log_wait_s: float,
        on_worker: Callable[[WorkerId], None],
        confirm: Callable[[], Awaitable[None]] | None = None,
        peer_wait_s: float = 10.0,
    ) -> None:
        self._engine = engine
        self._hub = hub
        self._peers = PeerWait(engine, peer_wait_s)
        self._held = HeldReports(engine, hub, log_wait_s, self._peers.pass_on)
        self._on_worker = on_worker
        self._confirm = confirm
        self._loop = asyncio.get_running_loop()
        self._open: dict[WorkerId, ConnectedWorker] = {}
        self._rules = rules
        self._contacts = Contacts(rules, self._now_ms())
        self._look_every_s = rules.late_after_ms / 1000 / _LOOKS
        self._look_timer: asyncio.TimerHandle | None = None
        self._leaving = ""
        self._ending: dict[WorkerId, set[JobId]] = {}  # whose gangs have their grace
        self._all_closed = asyncio.Event()
        self._all_closed.set()

    def start(self) -> None:
        """Start the reconnect timeout of the previous controller's workers."""
        for worker_id in self._engine.view.workers:
            self._contacts.begin(worker_id, self._now_ms())
        self._look()

    def present(self, worker_id: WorkerId) -> bool:
        """Return whether a worker is connected, or may still reconnect before it is lost."""
        ending, stopping = self._ending.get(worker_id), self._engine.view.stopping_counts
        return self._contacts.is_present(worker_id) if ending is None else any(map(stopping.get, ending))

    def silent_ms(self, worker_id: WorkerId) -> int:
        """Return the ms since a worker's last message."""
        return self._contacts.silent_ms(worker_id, self._now_ms())

    def fenced_in_ms(self, worker_id: WorkerId, spec: JobSpec) -> int:
        """Return the ms until an exclusive attempt on a silent worker must have ended."""
        return self._contacts.fenced_in_ms(worker_id, spec, self._now_ms())

    def partition(self) -> str:
        """Return a message with the consequences if the controller may be cut off from its workers; else empty."""
        suspicion = self._contacts.suspicion
        if suspicion is None:
            return ""
        left_ms = max(suspicion.since_ms + self._rules.partition_patience_ms - self._now_ms(), 0)
        return (
            f"{len(suspicion.hosts)} of {suspicion.known} workers fell silent together, so this controller may be cut "
            "off itself: what runs there is not started elsewhere until one of them is heard, or for "
            f"{left_ms / 1000:.0f} s"
        )

    # ---- a session's life ----

    async def open(self, greeting: Greeting) -> ConnectedWorker:
        """Open a session, replacing the worker's older one. Return after the commit.

        Raises:
            Unavailable: The controller is shutting down.
            Conflict: Another host is connected with this name.
        """
        if self._leaving:
            raise Unavailable(f"the controller is leaving: {self._leaving}")
        worker_id = greeting.worker_id
        session = ConnectedWorker(worker_id, greeting.instance_id, greeting.host, greeting.place)
        older = self._open.get(worker_id)
        if older is not None:
            self._refuse_rival(older, session)
            older.superseded = True
            older.orders.close()
            self._held.release(older)
        self._open[worker_id] = session
        self._ending.pop(worker_id, None)
        self._all_closed.clear()
        self._contacts.begin(worker_id, self._now_ms())
        try:
            await self._engine.decide(lambda transaction: self._connect(transaction, greeting, session))
            if self._confirm is not None:
                await self._confirm()
        except BaseException:
            self.close(session)
            raise
        self._on_worker(worker_id)
        return session

    def _refuse_rival(self, holder: ConnectedWorker, newcomer: ConnectedWorker) -> None:
        """Raise and record Conflict if the new worker is a copy of a connected one."""
        if may_succeed(holder.life, newcomer.life, self.silent_ms(holder.worker_id)):
            return
        now_ms, name = self._now_ms(), holder.worker_id
        asks, has = (session.host.address or "an unknown address" for session in (newcomer, holder))
        if holder.host.rival != asks or now_ms - holder.host.rival_ms > RIVAL_SHOWN_MS:
            logger.warning("a second worker %s, at %s, is refused: the one at %s is heard", name, asks, has)
        holder.host.rival, holder.host.rival_ms = asks, now_ms
        raise Conflict(
            f"a worker {name!r} is connected from {has}, and is heard: this one, at {asks}, uses a copy of its work "
            "directory. Give it a --work-dir and a --name of its own, with a new join token; if it is to replace the "
            "other, end that first"
        )

    def rival_of(self, worker_id: WorkerId) -> str:
        """Return the address of another host that tried to connect as this worker within the last minute; empty for
        none.
        """
        host = self.host_of(worker_id)
        recent = host is not None and self._now_ms() - host.rival_ms <= RIVAL_SHOWN_MS
        return host.rival if host is not None and recent else ""

    def close(self, session: ConnectedWorker) -> None:
        """Handle the end of a stream. The worker is lost unless it reconnects in time."""
        session.orders.close()
        self._held.release(session)
        if self._open.get(session.worker_id) is not session:
            return
        del self._open[session.worker_id]
        if not self._open:
            self._all_closed.set()
        self._engine.post(WorkerDisconnected(session.worker_id, session.instance_id))

    def heard(self, session: ConnectedWorker, beat: int = 0) -> None:
        """Record the time of a worker's message. Acknowledge a heartbeat (0: none) immediately."""
        if self._open.get(session.worker_id) is not session:
            return
        if self._contacts.heard(session.worker_id, self._now_ms()):
            self._engine.post(WorkerHeard(session.worker_id))
        if beat:
            session.orders.acknowledge_beat(beat)

    def note_skew(self, session: ConnectedWorker, skew_ms: int, error_ms: int) -> None:
        """Record a worker's measured clock difference. Log a large difference once.

        Args:
            session: The worker's session.
            skew_ms: Milliseconds by which its clock is ahead.
            error_ms: Maximum error in milliseconds.
        """
        before = session.host.skew
        session.host.skew = (skew_ms, error_ms)
        was_far = before is not None and is_far(*before)
        if is_far(skew_ms, error_ms) and not was_far:
            logger.warning(
                "the clock of worker %s is %.1f s %s this controller's: times of its log lines are as wrong",
                session.worker_id,
                abs(skew_ms) / 1000,
                "ahead of" if skew_ms > 0 else "behind",
            )

    def host_of(self, worker_id: WorkerId) -> WorkerHost | None:
        """Return the known facts about a connected worker's host."""
        session = self._open.get(worker_id)
        return None if session is None else session.host

    def orders_of(self, worker_id: WorkerId) -> WorkerOrders | None:
        """Return the orders of a worker; None if it is not connected."""
        session = self._open.get(worker_id)
        return None if session is None else session.orders

    def resize(self, session: ConnectedWorker, capacity: Resources) -> None:
        """Record a worker's changed capacity."""
        if self._open.get(session.worker_id) is session:
            self._engine.post(WorkerResized(session.worker_id, session.instance_id, capacity))

    def note_trouble(self, session: ConnectedWorker, trouble: str) -> None:
        """Record why the worker cannot start attempts now; "" if it can start them again."""
        if self._open.get(session.worker_id) is session:
            self._engine.post(WorkerTroubled(session.worker_id, session.instance_id, trouble))

    def begin_leaving(self, session: ConnectedWorker, ending: PreemptionReason | None = None) -> None:
        """Record that the worker shuts down: it ends and reports its attempts, and gets no new ones.

        Args:
            session: Its session.
            ending: Why the platform stops its host; None if it does not. Then the worker is not waited for, and the
                members of its gangs on other hosts have the same notice.
        """
        if self._open.get(session.worker_id) is not session:
            return
        if ending is not None and session.worker_id not in self._ending:
            self._ending[session.worker_id] = self._preempt_gangs(session.worker_id, ending)
        if not session.is_leaving:
            session.is_leaving = True
            self._contacts.left(session.worker_id)
            self._engine.post(WorkerDisconnected(session.worker_id, session.instance_id))

    def _preempt_gangs(self, worker_id: WorkerId, ending: PreemptionReason) -> set[JobId]:
        gangs = {item.job_id: item for item in self._engine.view.attempts_on(worker_id) if item.is_gang}
        for booking in gangs.values():
            why = f"the platform stops the host of worker {worker_id} ({ending})"
            self._engine.post(Preempted(booking.attempt_id, why, ending))
        return set(gangs)

    async def say_goodbye(self, reason: str, exit: bool, timeout_s: float) -> None:
        """End all sessions; with `exit` the workers stop and exit. Return when all sessions have ended, or at the
        timeout.

        Args:
            reason: The message for the workers.
            exit: Whether workers stop their attempts and exit.
            timeout_s: Timeout for the ends of the sessions.
        """
        self._leaving = reason
        for session in list(self._open.values()):
            session.orders.goodbye(reason, exit)
        try:
            async with asyncio.timeout(timeout_s):
                await self._all_closed.wait()
        except TimeoutError:
            logger.warning("%d workers did not end their session in %g s", len(self._open), timeout_s)

    def expel(self, worker_id: WorkerId, reason: str) -> bool:
        """End a worker's session now and ignore its further messages. Return whether the worker was connected.

        The worker is asked to stop its attempts and exit. The attempts are retried elsewhere once the worker counts as
        lost.
        """
        session = self._open.get(worker_id)
        if session is None:
            return False
        session.orders.goodbye(reason, exit=True)
        session.superseded = True
        self._contacts.left(worker_id)
        self._held.pass_all_on(session)  # nobody will tell them again
        del self._open[worker_id]
        if not self._open:
            self._all_closed.set()
        self._engine.post(WorkerDisconnected(worker_id, session.instance_id))
        return True

    def stop_timers(self) -> None:
        if self._look_timer is not None:
            self._look_timer.cancel()
        self._peers.stop()
        for session in self._open.values():
            self._held.release(session)

    def on_effects(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if not isinstance(effect, _FOR_WORKERS):
                continue
            session = self._open.get(effect.worker_id)
            if session is None:
                continue  # reconciled when the worker comes back
            if isinstance(effect, StartAttempt):
                self._send_start(session, effect.attempt_id, effect.prefilled)
            elif isinstance(effect, StopAttempt):
                notice = None if effect.preemption is None else (effect.preemption, effect.grace_ms)
                session.orders.stop(effect.attempt_id, effect.reason, notice)
            elif isinstance(effect, WithdrawAttempt):
                session.orders.withdraw(effect.attempt_id)
            else:
                session.orders.forget(effect.attempt_id)

    def report(self, session: ConnectedWorker, report: Report) -> None:
        """Process a worker's observation of an attempt. An end counts once the controller has the whole log."""
        if session.superseded:
            return
        if not self._held.holds(session, report):
            self._peers.pass_on(report.event)

    def append_log(self, session: ConnectedWorker, attempt: AttemptId, offset: int, data: bytes) -> None:
        """Store bytes of an attempt's log and acknowledge the stored size.

        Args:
            session: The worker's session.
            attempt: The attempt.
            offset: The offset of the first byte of `data` in the log.
            data: Whole records.
        """
        if session.superseded:
            return
        size = self._hub.append(attempt, offset, data, session.worker_id)
        session.orders.acknowledge_log(attempt, size)
        self._held.note_log(session, attempt, size)

    def _connect(self, transaction: Transaction, greeting: Greeting, session: ConnectedWorker) -> None:
        worker_id = greeting.worker_id
        known = transaction.view.workers.get(worker_id)
        new_instance = known is not None and known.instance_id != greeting.instance_id
        transaction.apply(
            WorkerConnected(worker_id, greeting.instance_id, greeting.capacity, dict(greeting.attributes))
        )
        inventory = []
        for report in greeting.inventory:
            if self._held.holds(session, report):
                # Its end will be reported again below, with the log; until then it counts as running.
                inventory.append(replace(report.event, state=TaskState.RUNNING))
            elif self._peers.awaits(report.event):
                self._peers.pass_on(report.event)
                inventory.append(replace(report.event, state=TaskState.RUNNING))
            else:
                inventory.append(report.event)
        found = reconcile(transaction.view, worker_id, new_instance, inventory)
        for event in found.events:
            transaction.apply(event)
        for attempt in found.to_start:
            self._start_again(transaction, session, attempt)
        for attempt in found.to_stop:
            booking = transaction.view.bookings.get(attempt)
            session.orders.stop(attempt, STOP_REASON_UNKNOWN, None if booking is None else booking.notice)
        for attempt in found.to_forget:
            session.orders.forget(attempt)
        if greeting.leaving:
            session.is_leaving = True
            self._contacts.left(worker_id)
            transaction.apply(WorkerDisconnected(worker_id, greeting.instance_id))

    def _start_again(self, transaction: Transaction, session: ConnectedWorker, attempt: AttemptId) -> None:
        view = transaction.view
        booking, worker = view.bookings[attempt], view.workers[session.worker_id]
        has_room = view.loads[session.worker_id].has_room(booking.resources, worker.capacity)
        if booking.prefilled and has_room:
            transaction.apply(Begun(attempt))
        else:
            self._send_start(session, attempt, booking.prefilled)

    def _send_start(self, session: ConnectedWorker, attempt: AttemptId, prefilled: bool) -> None:
        task_id, number = parse_attempt_id(attempt)
        job_id, index = parse_task_id(task_id)
        session.orders.start(job_id, index, number, prefilled)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _look(self) -> None:
        self._look_timer = self._loop.call_later(self._look_every_s, self._look)
        if self._engine.stalled:
            return  # no worker can be accepted now, so this time counts as no worker's silence
        before = self._contacts.suspicion
        events = self._contacts.look(self._engine.view, self._now_ms())
        if (before is None) != (self._contacts.suspicion is None):
            logger.warning("%s", self.partition() or "the controller does not suspect any more that it is cut off")
        for event in events:
            if isinstance(event, WorkerLost):
                logger.warning("%s: it is lost", event.reason)
                session = self._open.get(event.worker_id)
                if session is not None:
                    self.close(session)
            self._engine.post(event)
