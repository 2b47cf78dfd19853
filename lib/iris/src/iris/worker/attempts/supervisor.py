"""Carries out what the attempt machine instructs: prepares, starts, stops, reads output, reports."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from iris.domain.states import FailureKind, TaskState
from iris.rpc.logformat import encode
from iris.worker.attempts.attempt import Attempt, adopted
from iris.worker.attempts.ends import EndReader
from iris.worker.attempts.machine import (
    Accepted,
    Act,
    AttemptPhase,
    Event,
    Handed,
    HandedBack,
    Spawned,
    SpawnFailed,
    StopAsked,
    Terminate,
    Unhealthy,
    advance,
)
from iris.worker.attempts.prefill import PrefillQueue
from iris.worker.attempts.preparing import Preparation
from iris.worker.attempts.rooms import Room, Rooms
from iris.worker.attempts.starts import StartQueue
from iris.worker.host.oom import OomKills
from iris.worker.output.log_writer import LogWriter
from iris.worker.paths import WorkPaths
from iris.worker.prepare.preparer import RuntimeTools
from iris.worker.processes import Exit, Runtime, StartFailed, StartFailure
from iris.worker.reports.logs import AttemptLog
from iris.worker.reports.outbox import ReportOutbox
from iris.worker.reports.result_file import SendBlob, remove
from iris.worker.types import (
    DesiredChange,
    Observation,
    StartRequest,
    StopRequest,
)
from iris.worker.watch.watcher import Watched, Watcher

logger = logging.getLogger(__name__)

_QUIET_BUILD_S: Final = 0.02
"""That preparing has begun is not reported at once: mostly it is done by then."""
_SUPERSEDED_GRACE_MS: Final = 1000
_UNHEALTHY_GRACE_MS: Final = 5000
_REFUSALS: Final = {
    StartFailure.COMMAND: FailureKind.START,
    StartFailure.HOST: FailureKind.WORKER,
    StartFailure.FENCED: FailureKind.PREEMPTED,  # neither its fault nor the host's
    StartFailure.STOPPED: FailureKind.PREEMPTED,
}


class Supervisor:
    """All attempts of this worker, from the controller's wish to its `forget`.

    Args:
        paths: The worker's files.
        runtime: Holds what runs; attempts beyond what it can hold wait for their start.
        rooms: Make what attempts need.
        oom_kills: What the kernel killed for lack of memory.
        now: Unix time in seconds.
        hand_back_s: So long an attempt that was prefilled waits for its turn.
        log_limit_bytes: So much of an attempt's log may be on this disk; 0: the default.
        send_blob: Sends large return values to the controller; None: they are not sent.
    """

    def __init__(
        self,
        paths: WorkPaths,
        runtime: Runtime,
        rooms: Rooms,
        oom_kills: OomKills | None = None,
        now: Callable[[], float] = time.time,
        log_limit_bytes: int = 0,
        hand_back_s: float | None = None,
        send_blob: SendBlob | None = None,
    ) -> None:
        self._log_limit = log_limit_bytes
        # While there is more to begin, the controller is in no hurry to hear of ends.
        self.outbox = ReportOutbox(self._log_of, lambda: self._prefilled.is_news_patient())
        self._paths = paths
        self._runtime = runtime
        self._rooms = rooms
        self._ends = EndReader(rooms, oom_kills or OomKills(()), send_blob, self._advance)
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._attempts: dict[str, Attempt] = {}
        self._live: dict[str, None] = {}  # an ordered set: the order of what follows is always the same
        self._prefilled = PrefillQueue(lambda attempt, why: self._advance(attempt, HandedBack(why)), hand_back_s)
        self._preparation = Preparation(rooms, self._write_log)
        self._starts = StartQueue(runtime, rooms, self)
        self._watcher = Watcher(RuntimeTools(runtime), self._unhealthy)
        self._leaving = ""  # why this worker goes away
        self._idle = asyncio.Event()
        self._idle.set()
        for held in runtime.held():
            self._take_up(adopted(held, self))
        for room in rooms.all():
            room.directories.keep_only(self._live)

    @property
    def live_count(self) -> int:
        """Attempts that have not ended."""
        return len(self._live)

    @property
    def live_attempts(self) -> list[str]:
        """Their ids, in the order in which they came."""
        return list(self._live)

    @property
    def reserved_disk(self) -> int:
        """Bytes of disk that attempts which have not ended were promised."""
        return sum(self._attempts[name].request.launch.resources.disk_bytes for name in self._live)

    def trouble(self) -> str:
        """Return why nothing can be started here at present; empty: nothing is known to speak against it."""
        return self._runtime.trouble()

    def now_ms(self) -> int:
        """The clock by which observations have their times."""
        return int(self._now() * 1000)

    def inventory(self) -> list[Observation]:
        """Every attempt that the controller has not told to forget, as a session begins with it."""
        return [attempt.inventory_observation() for attempt in self._attempts.values()]

    def apply(self, change: DesiredChange) -> None:
        """Make the desired set so. Starts of known attempts and stops of ended ones change nothing."""
        for request in change.start:
            self._accept(request)
        for stop in change.stop:
            self._stop(stop)
        for attempt_id in change.withdraw:
            self._withdraw(attempt_id)
        for attempt_id in change.forget:
            self._forget(attempt_id)

    def resume_logs(self, offsets: dict[str, int]) -> None:
        """A session has begun: ship every log from the offset that the controller has."""
        for attempt_id, attempt in self._attempts.items():
            if attempt.ended and attempt.log.acked < attempt.log.size:
                self.outbox.observe(attempt.observation())  # held back from the inventory
            attempt.log.rewind(offsets.get(attempt_id, 0))
            if attempt.log.sent < attempt.log.size:
                self.outbox.log_grew(attempt_id)

    def acknowledge_log(self, attempt_id: str, offset: int) -> None:
        attempt = self._attempts.get(attempt_id)
        if attempt is None:
            return
        attempt.log.acknowledge(offset)
        if attempt.log.sent < attempt.log.size:
            self.outbox.log_grew(attempt_id)

    def contact(self, sent_ms: int) -> None:
        """The controller counted this worker as alive when a beat was sent at this moment (`protocol.boot_ms`)."""
        self._runtime.contact(sent_ms)

    async def stop_all(self, reason: str, grace_ms: int, preempted: bool = False) -> None:
        """End every attempt, and whatever is still sent, and return when all are gone.

        Args:
            reason: Told to the controller.
            grace_ms: Time between SIGTERM and SIGKILL.
            preempted: The platform takes the host away; else the attempts count as failures of this worker.
        """
        self._leaving = reason
        self.outbox.leave()
        self._prefilled.hand_back_all(f"handed back, not begun: {reason}")
        for attempt_id in list(self._live):
            self._advance(self._attempts[attempt_id], StopAsked(reason, grace_ms, leaving=True, preempted=preempted))
        await self._idle.wait()
        await self._rooms.close()

    # --- the controller's wishes ---

    def _accept(self, request: StartRequest) -> None:
        known = self._attempts.get(request.attempt_id)
        if known is not None and known.is_prefilled and not request.prefilled:
            self._prefilled.remove(known)
            self._begin(known)
            return
        if known is not None:
            self._report(known, at_once=True)
            return
        attempt = self._add(request)
        if self._leaving:
            # It never began, so it does not speak against the host.
            self._advance(attempt, StopAsked(self._leaving, 0, leaving=True, preempted=True))
        elif request.prefilled:
            self._prefilled.add(attempt)
        else:
            self._begin(attempt)

    def _begin(self, attempt: Attempt) -> None:
        is_prepared = self._preparation.is_done(attempt)
        if attempt.spec is not None and not is_prepared:
            self._starts.make_unready(attempt)  # what it was made for is gone
        self._advance(attempt, Accepted(prepare=not is_prepared))
        if attempt.request.prefilled:
            # Told with the end of the one whose place it has: else the controller would give that place away.
            self.outbox.observe(attempt.observation())

    def _add(self, request: StartRequest) -> Attempt:
        attempt = Attempt(request, self._paths.log(request.attempt_id), self, self._rooms.find(request.attempt_id))
        self._attempts[request.attempt_id] = attempt
        self._live[request.attempt_id] = None
        self._room(attempt).tokens.hold(request)
        self._idle.clear()
        return attempt

    def _take_up(self, attempt: Attempt) -> None:
        self._attempts[attempt.attempt_id] = attempt
        self._live[attempt.attempt_id] = None
        attempt.room = self._rooms.find_held(attempt.attempt_id, attempt.room)
        self._room(attempt).tokens.hold(attempt.request)
        self._idle.clear()
        self._starts.take_up(attempt)
        if attempt.slot:
            self._room(attempt).directories.adopt(attempt.attempt_id, attempt.slot)
        attempt.process = self._runtime.take_up(attempt.attempt_id, attempt)
        self._watch(attempt)

    def _stop(self, stop: StopRequest) -> None:
        attempt = self._attempts.get(stop.attempt_id)
        if attempt is None:
            # Nothing of it is here; saying so frees what the controller holds for it.
            error = stop.reason or "stopped before it reached the worker"
            now = int(self._now() * 1000)
            self.outbox.observe(Observation(stop.attempt_id, TaskState.KILLED, now, error=error))
            return
        if attempt.ended:
            self.outbox.observe(attempt.observation())
            return
        self._advance(attempt, StopAsked(stop.reason or "stopped", stop.grace_ms))

    def _withdraw(self, attempt_id: str) -> None:
        attempt = self._attempts.get(attempt_id)
        if attempt is None:
            why = "handed back, not begun: it had not reached its worker"
            self.outbox.observe(Observation(attempt_id, TaskState.PENDING, self.now_ms(), error=why))
        elif attempt.state.phase in (AttemptPhase.NEW, AttemptPhase.BUILDING):
            self._advance(attempt, HandedBack("handed back, not begun: an earlier attempt has its task"))
        else:
            self._report(attempt, at_once=True)

    def _forget(self, attempt_id: str) -> None:
        attempt = self._attempts.get(attempt_id)
        if attempt is None or not attempt.ended:
            return  # what still runs is not forgotten, or it would never be ended
        del self._attempts[attempt_id]
        self.outbox.forget(attempt_id)
        attempt.log.release()
        if attempt.process is None:
            attempt.log.remove()  # the guardian never heard of it
        else:
            self._runtime.forget(attempt_id)
        room = self._room(attempt)
        remove(room.paths.error(attempt_id))
        remove(room.paths.result(attempt_id))
        room.tokens.release(attempt.request)

    # --- what happens to attempts ---

    def started(self, attempt: Attempt, pid: int) -> None:
        """Called by an attempt's process."""
        self._advance(attempt, Spawned(pid))
        self._watch(attempt)

    def _watch(self, attempt: Attempt) -> None:
        rules, pid = attempt.request.launch.watch, attempt.state.pid
        if rules.is_on and pid and not attempt.ended:
            identity = self._room(attempt).identity
            self._watcher.begin(Watched(attempt.attempt_id, pid, rules, attempt.progress, identity))

    def _unhealthy(self, attempt_id: str, reason: str) -> None:
        attempt = self._attempts.get(attempt_id)
        if attempt is not None:
            self._advance(attempt, Unhealthy(reason, _UNHEALTHY_GRACE_MS))

    def refused(self, attempt: Attempt, error: StartFailed) -> None:
        """Called by an attempt's process, which will never be."""
        self._advance(attempt, SpawnFailed(_REFUSALS[error.why], str(error), error.exit_code))

    def log_grew(self, attempt: Attempt, size: int) -> None:
        """Called by an attempt's process."""
        if attempt.log.grew(size):
            self.outbox.log_grew(attempt.attempt_id)

    def used(self, attempt: Attempt) -> None:
        """Called by an attempt's process."""
        self.outbox.used(attempt.attempt_id, attempt.usage)

    def exited(self, attempt: Attempt, exit: Exit) -> None:
        """Called by an attempt's process."""
        if exit.unmarked:
            attempt.log.append_words(encode(True, exit.at_ms, exit.unmarked.encode(), note=True))
            self.outbox.log_grew(attempt.attempt_id)
        self._ends.read(attempt, exit)

    def _advance(self, attempt: Attempt, event: Event, at_ms: int = 0) -> None:
        before = attempt.state.task_state
        attempt.state, instructions = advance(attempt.state, event)
        if attempt.state.task_state is not before:
            attempt.at_ms = at_ms or int(self._now() * 1000)
            if attempt.state.task_state is TaskState.RUNNING or attempt.started_at_ms > attempt.at_ms:
                attempt.started_at_ms = attempt.at_ms  # it may have ended before it was seen to run
        if attempt.state.phase is AttemptPhase.ENDED and attempt.attempt_id in self._live:
            self._ended(attempt)
        for instruction in instructions:
            match instruction:
                case Act.REPORT:
                    self._report(attempt, at_once=attempt.state.phase is not AttemptPhase.BUILDING)
                case Act.SPAWN:
                    self._starts.put(attempt)
                case Act.PREPARE:
                    attempt.prepare_task = self._loop.create_task(self._prepare(attempt))
                case Act.CANCEL_PREPARE:
                    if attempt.prepare_task is not None:
                        attempt.prepare_task.cancel()
                case Terminate(grace_ms):
                    if attempt.process is not None:
                        attempt.process.terminate(grace_ms, attempt.note())

    def _ended(self, attempt: Attempt) -> None:
        self._live.pop(attempt.attempt_id, None)
        self._watcher.end(attempt.attempt_id)
        self._starts.ended(attempt)
        attempt.cancel_timer()
        attempt.log.finish()
        if attempt.is_prefilled:
            self._prefilled.remove(attempt)
        elif self._prefilled and (following := self._prefilled.follow(attempt)) is not None:
            self._begin(following)
            self._starts.start_now()
            self._loop.call_soon(self._clean_up_after, attempt)  # the start is on its way by then
            return
        self._room(attempt).directories.remove(attempt.attempt_id)
        if not self._live:
            self._idle.set()

    def _clean_up_after(self, ended: Attempt) -> None:
        self._room(ended).directories.remove(ended.attempt_id)
        coming = self._prefilled.first()
        if coming is not None and self._preparation.is_done(coming):
            self._starts.make_ready(coming)

    def _report(self, attempt: Attempt, at_once: bool) -> None:
        if at_once:
            self.outbox.observe(attempt.observation())
        elif attempt.report_timer is None:
            attempt.report_timer = self._loop.call_later(_QUIET_BUILD_S, self._report_late, attempt)

    def _report_late(self, attempt: Attempt) -> None:
        attempt.report_timer = None
        if not attempt.ended:
            self.outbox.observe(attempt.observation())

    def failed_to_start(self, attempt: Attempt, kind: FailureKind, error: str, exit_code: int = 0) -> None:
        """Called by the queue of starts.

        Args:
            attempt: The attempt.
            kind: Whose fault it is.
            error: The reason, for users.
            exit_code: 0: there was no process.
        """
        if kind is FailureKind.START:
            self._write_log(attempt, error)
        self._advance(attempt, SpawnFailed(kind, error, exit_code))

    def handed(self, attempt: Attempt) -> None:
        """Called by the queue of starts, just before the guardian hears of the attempt."""
        self._advance(attempt, Handed())

    def waits(self, attempt: Attempt) -> None:
        """Called by the queue of starts: the attempt cannot begin yet, and says why."""
        self.outbox.observe(attempt.observation())

    def superseded(self, former: Attempt, by: Attempt) -> None:
        """Called by the queue of starts: the former attempt of the task must be gone first."""
        self._advance(former, StopAsked(f"superseded by {by.attempt_id}", _SUPERSEDED_GRACE_MS))

    # --- starting ---

    async def _prepare(self, attempt: Attempt) -> None:
        self._advance(attempt, await self._preparation.prepare(attempt))

    # --- small things ---

    def _room(self, attempt: Attempt) -> Room:
        return self._rooms.at(attempt.room)

    def _write_log(self, attempt: Attempt, text: str) -> None:
        """End the log of an attempt that never came to its guardian with a line of iris."""
        writer = LogWriter(attempt.log_path, self._log_limit)
        writer.feed(True, f"{text}\n".encode(errors="replace"), int(self._now() * 1000))
        writer.finish(int(self._now() * 1000))
        self.log_grew(attempt, writer.size)

    def _log_of(self, attempt_id: str) -> AttemptLog | None:
        attempt = self._attempts.get(attempt_id)
        return attempt.log if attempt is not None else None
