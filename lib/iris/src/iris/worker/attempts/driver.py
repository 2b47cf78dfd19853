"""Executes the instructions of the attempt machine: prepares, starts and stops attempts, and reads their exits."""

import asyncio
from collections.abc import Callable
from typing import Final

from iris.domain.states import FailureKind, TaskState
from iris.worker.attempts.attempt import Attempt
from iris.worker.attempts.ends import EndReader
from iris.worker.attempts.known import KnownAttempts
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
from iris.worker.attempts.notice import give_notice
from iris.worker.attempts.prefill import PrefillQueue
from iris.worker.attempts.preparing import Preparation
from iris.worker.attempts.reporting import AttemptReports
from iris.worker.attempts.rooms import Rooms
from iris.worker.attempts.starts import StartQueue
from iris.worker.host.oom import OomKills
from iris.worker.prepare.preparer import RuntimeTools
from iris.worker.processes import Exit, Runtime, StartFailed, StartFailure
from iris.worker.reports.result_file import SendBlob
from iris.worker.watch.watcher import Watched, Watcher

_SUPERSEDED_GRACE_MS: Final = 1000
_UNHEALTHY_GRACE_MS: Final = 5000
_REFUSALS: Final = {
    StartFailure.COMMAND: FailureKind.START,
    StartFailure.HOST: FailureKind.WORKER,
    StartFailure.FENCED: FailureKind.PREEMPTED,  # neither its fault nor the host's
    StartFailure.STOPPED: FailureKind.PREEMPTED,
}


class AttemptDriver:
    """Passes events to the machine of each attempt and executes its instructions.

    Events come from the attempts' processes, the start queue, the watcher and, through the supervisor, the controller.

    Args:
        attempts: The known attempts.
        runtime: Runs the processes; attempts beyond its capacity are queued.
        rooms: Create the attempts' files.
        reports: Reports attempts to the controller.
        now_ms: The clock of observations (Unix ms).
        oom_kills: Counts the kernel's out-of-memory kills.
        hand_back_s: How long a prefilled attempt waits for its turn; None for the default.
        send_blob: Uploads large return values to the controller; None to drop them.
    """

    def __init__(
        self,
        attempts: KnownAttempts,
        runtime: Runtime,
        rooms: Rooms,
        reports: AttemptReports,
        now_ms: Callable[[], int],
        oom_kills: OomKills,
        hand_back_s: float | None,
        send_blob: SendBlob | None,
    ) -> None:
        self._attempts = attempts
        self._runtime = runtime
        self._containers = rooms.containers
        self._reports = reports
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._ends = EndReader(rooms, oom_kills, send_blob, self.advance)
        self._preparation = Preparation(rooms, reports.write_log)
        self._starts = StartQueue(runtime, rooms, self)
        self._watcher = Watcher(RuntimeTools(runtime), self._unhealthy)
        self.prefilled = PrefillQueue(lambda attempt, why: self.advance(attempt, HandedBack(why)), hand_back_s)

    def begin(self, attempt: Attempt) -> None:
        """Prepare and start an attempt."""
        is_prepared = self._preparation.is_done(attempt)
        if attempt.spec is not None and not is_prepared:
            self._starts.make_unready(attempt)  # what it was made for is gone
        self.advance(attempt, Accepted(prepare=not is_prepared))
        if attempt.request.prefilled:
            # Told with the end of the one whose place it has: else the controller would give that place away.
            self._reports.report(attempt)

    def take_up(self, attempt: Attempt) -> None:
        """Adopt an attempt that an earlier worker process started."""
        self._starts.take_up(attempt)
        if attempt.slot:
            self._attempts.room(attempt).directories.adopt(attempt.attempt_id, attempt.slot)
        attempt.process = self._runtime.take_up(attempt.attempt_id, attempt)
        self._watch(attempt)

    def advance(self, attempt: Attempt, event: Event, at_ms: int = 0) -> None:
        """Pass an event to the attempt's machine and execute the returned instructions.

        Args:
            attempt: The attempt.
            event: The event or request.
            at_ms: Time of the event (Unix ms); 0 for now.
        """
        before = attempt.state.task_state
        attempt.state, instructions = advance(attempt.state, event)
        if attempt.state.task_state is not before:
            attempt.at_ms = at_ms or self._now_ms()
            if attempt.state.task_state is TaskState.RUNNING or attempt.started_at_ms > attempt.at_ms:
                attempt.started_at_ms = attempt.at_ms  # it may have ended before it was seen to run
        if attempt.state.phase is AttemptPhase.ENDED and self._attempts.end(attempt):
            self._ended(attempt)
        for instruction in instructions:
            match instruction:
                case Act.REPORT:
                    self._reports.report(attempt, at_once=attempt.state.phase is not AttemptPhase.BUILDING)
                case Act.SPAWN:
                    self._starts.put(attempt)
                case Act.PREPARE:
                    attempt.prepare_task = self._loop.create_task(self._prepare(attempt))
                case Act.CANCEL_PREPARE:
                    if attempt.prepare_task is not None:
                        attempt.prepare_task.cancel()
                case Terminate():
                    self._terminate(attempt, instruction)

    def _terminate(self, attempt: Attempt, how: Terminate) -> None:
        if attempt.process is None:
            return
        wait_ms, now_ms = 0, self._now_ms()
        # A later stop never puts off the end that an earlier one announced.
        attempt.kill_at_ms = min(attempt.kill_at_ms or now_ms + how.grace_ms, now_ms + how.grace_ms)
        grace_ms = max(attempt.kill_at_ms - now_ms, 0)
        if how.notice:
            how = Terminate(grace_ms, how.notice)
            wait_ms = give_notice(self._attempts.room(attempt).paths, attempt, how, attempt.kill_at_ms / 1000)
        if attempt.stop_timer is not None:
            attempt.stop_timer.cancel()
        rest_ms = grace_ms - wait_ms
        if wait_ms:
            attempt.stop_timer = self._loop.call_later(
                wait_ms / 1000, attempt.process.terminate, rest_ms, attempt.note()
            )
        else:
            attempt.process.terminate(rest_ms, attempt.note())

    async def _prepare(self, attempt: Attempt) -> None:
        self.advance(attempt, await self._preparation.prepare(attempt))

    def _ended(self, attempt: Attempt) -> None:
        self._watcher.end(attempt.attempt_id)
        if attempt.request.launch.runtime.image and self._containers is not None:
            self._containers.ended(attempt.attempt_id)
        self._starts.ended(attempt)
        attempt.cancel_timers()
        attempt.log.finish()
        if attempt.is_prefilled:
            self.prefilled.remove(attempt)
        elif self.prefilled and (following := self.prefilled.follow(attempt)) is not None:
            self.begin(following)
            self._starts.start_now()
            self._loop.call_soon(self._clean_up_after, attempt)  # the start is on its way by then
            return
        self._attempts.room(attempt).directories.remove(attempt.attempt_id)

    def _clean_up_after(self, ended: Attempt) -> None:
        self._attempts.room(ended).directories.remove(ended.attempt_id)
        coming = self.prefilled.first()
        if coming is not None and self._preparation.is_done(coming):
            self._starts.make_ready(coming)

    def _watch(self, attempt: Attempt) -> None:
        rules, pid = attempt.request.launch.watch, attempt.state.pid
        if rules.is_on and pid and not attempt.ended:
            identity = self._attempts.room(attempt).identity
            inside: tuple[str, ...] = ()
            if attempt.request.launch.runtime.image and self._containers is not None:
                inside = self._containers.inside(attempt.attempt_id)
            self._watcher.begin(Watched(attempt.attempt_id, pid, rules, attempt.progress, identity, inside))

    def _unhealthy(self, attempt_id: str, reason: str) -> None:
        attempt = self._attempts.get(attempt_id)
        if attempt is not None:
            self.advance(attempt, Unhealthy(reason, _UNHEALTHY_GRACE_MS))

    # --- from the processes of attempts (AttemptListener) ---

    def started(self, attempt: Attempt, pid: int) -> None:
        self.advance(attempt, Spawned(pid))
        self._watch(attempt)

    def refused(self, attempt: Attempt, error: StartFailed) -> None:
        self.advance(attempt, SpawnFailed(_REFUSALS[error.why], str(error), error.exit_code))

    def log_grew(self, attempt: Attempt, size: int) -> None:
        self._reports.log_grew(attempt, size)

    def used(self, attempt: Attempt) -> None:
        self._reports.used(attempt)

    def exited(self, attempt: Attempt, exit: Exit) -> None:
        if exit.unmarked:
            self._reports.add_note(attempt, exit.unmarked, exit.at_ms)
        self._ends.read(attempt, exit)

    # --- from the queue of starts (StartListener) ---

    def failed_to_start(self, attempt: Attempt, kind: FailureKind, error: str, exit_code: int = 0) -> None:
        if kind is FailureKind.START:
            self._reports.write_log(attempt, error)
        self.advance(attempt, SpawnFailed(kind, error, exit_code))

    def handed(self, attempt: Attempt) -> None:
        self.advance(attempt, Handed())

    def waits(self, attempt: Attempt) -> None:
        self._reports.report(attempt)

    def superseded(self, former: Attempt, by: Attempt) -> None:
        self.advance(former, StopAsked(f"superseded by {by.attempt_id}", _SUPERSEDED_GRACE_MS))
