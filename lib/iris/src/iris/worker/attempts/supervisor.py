"""Makes the attempts of this worker match the controller's desired set."""

import time
from collections.abc import Callable
from functools import partial

from iris.domain.job_spec import grace_ms_of
from iris.domain.states import PreemptionReason, TaskState
from iris.worker.attempts.attempt import Attempt, adopted
from iris.worker.attempts.driver import AttemptDriver
from iris.worker.attempts.known import KnownAttempts
from iris.worker.attempts.machine import AttemptPhase, HandedBack, StopAsked
from iris.worker.attempts.reporting import AttemptReports
from iris.worker.attempts.rooms import Rooms
from iris.worker.exec.commands import ExecPlace
from iris.worker.host.oom import OomKills
from iris.worker.paths import WorkPaths
from iris.worker.processes import Runtime
from iris.worker.reports.outbox import ReportOutbox
from iris.worker.reports.result_file import SendBlob
from iris.worker.types import DesiredChange, Observation, StartRequest, StopRequest
from rigging.errors import Conflict


class Supervisor:
    """Manages all attempts of this worker, from the controller's request to its `forget`.

    Call `take_up_held` before the first change.

    Args:
        paths: The worker's files.
        runtime: Runs the processes; attempts beyond its capacity are queued.
        rooms: Create the attempts' files.
        oom_kills: Counts the kernel's out-of-memory kills.
        now: Returns Unix time in seconds.
        log_limit_bytes: Maximum size of an attempt's log on this disk; 0 for the default.
        hand_back_s: How long a prefilled attempt waits for its turn; None for the default.
        send_blob: Uploads large return values to the controller; None to drop them.
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
        self._paths = paths
        self._runtime = runtime
        self._rooms = rooms
        self._now = now
        self._attempts = KnownAttempts(rooms)
        # While there is more to begin, the controller is in no hurry to hear of ends.
        self._reports = AttemptReports(
            self._attempts, self.now_ms, lambda: self._driver.prefilled.is_news_patient(), log_limit_bytes
        )
        self._driver = AttemptDriver(
            self._attempts,
            runtime,
            rooms,
            self._reports,
            self.now_ms,
            oom_kills or OomKills(()),
            hand_back_s,
            send_blob,
        )
        self._leaving = ""  # why this worker goes away

    @property
    def outbox(self) -> ReportOutbox:
        """Return the reports to send to the controller."""
        return self._reports.outbox

    @property
    def live_count(self) -> int:
        """The number of attempts that have not ended."""
        return self._attempts.live_count

    @property
    def live_attempts(self) -> list[str]:
        """The ids of the live attempts, in order of arrival."""
        return self._attempts.live_ids

    @property
    def reserved_disk(self) -> int:
        """Bytes of disk reserved for attempts that have not ended."""
        return sum(attempt.request.launch.resources.disk_bytes for attempt in self._attempts.live)

    def trouble(self) -> str:
        """Return why no attempt can start on this worker at present; empty if no reason is known."""
        return self._runtime.trouble()

    def now_ms(self) -> int:
        """Return the current time of observations (Unix ms)."""
        return int(self._now() * 1000)

    def contact(self, sent_ms: int) -> None:
        """Record that the controller acknowledged a heartbeat sent at this time (`protocol.boot_ms`)."""
        self._runtime.contact(sent_ms)

    def inventory(self) -> list[Observation]:
        """Return every attempt that the controller has not asked to forget, for the start of a session."""
        return [attempt.inventory_observation() for attempt in self._attempts]

    def resume_logs(self, offsets: dict[str, int]) -> None:
        """Ship every log from the controller's offset on, at the start of a session."""
        self._reports.resume(offsets)

    def acknowledge_log(self, attempt_id: str, offset: int) -> None:
        """Record that the controller has received an attempt's log up to this offset."""
        self._reports.acknowledge(attempt_id, offset)

    def take_up_held(self) -> None:
        """Adopt the attempts that an earlier worker process started, and remove the files of all others."""
        for held in self._runtime.held():
            attempt = adopted(held, self._driver)
            attempt.room = self._rooms.find_held(attempt.attempt_id, attempt.room)
            self._attempts.add(attempt)
            self._driver.take_up(attempt)
        for room in self._rooms.all():
            room.directories.keep_only(self._attempts.live_ids)

    def exec_place(self, attempt_id: str) -> ExecPlace:
        """Return how to run a command in an attempt. Raise Conflict if it is not running."""
        attempt = self._attempts.get(attempt_id)
        if attempt is None or attempt.ended or not attempt.state.pid:
            raise Conflict(f"{attempt_id} is not running on this worker")
        identity, containers = self._attempts.room(attempt).identity, self._rooms.containers
        uid = 0 if identity is None else identity.uid
        if not attempt.request.launch.runtime.image:
            return ExecPlace(attempt.state.pid, uid)
        if containers is None:
            raise Conflict(f"{attempt_id} runs in a container, and this worker has no container engine")
        return ExecPlace(attempt.state.pid, uid, partial(containers.exec, attempt_id))

    def apply(self, change: DesiredChange) -> None:
        """Apply a change of the desired set. Starting a known attempt or stopping an ended one has no effect."""
        for request in change.start:
            self._accept(request)
        for stop in change.stop:
            self._stop(stop)
        for attempt_id in change.withdraw:
            self._withdraw(attempt_id)
        for attempt_id in change.forget:
            self._forget(attempt_id)

    async def stop_all(self, reason: str, grace_ms: int, notice: PreemptionReason | None = None) -> None:
        """Stop every attempt and every upload; return when all have ended.

        Args:
            reason: The reason to report to the controller.
            grace_ms: Time between SIGTERM and SIGKILL, without a notice.
            notice: Why the platform stops the host; None if it does not: then the attempts count as failures of this
                worker.
        """
        self._leaving = reason
        self.outbox.leave(notice or "")
        self._driver.prefilled.hand_back_all(f"handed back before its start: {reason}")
        for attempt in self._attempts.live:
            grace = grace_ms if notice is None else grace_ms_of(attempt.request.launch.grace_ms, notice)
            self._driver.advance(attempt, StopAsked(reason, grace, True, notice is not None, notice or ""))
        await self._attempts.all_ended()
        await self._rooms.close()

    def _accept(self, request: StartRequest) -> None:
        prefilled, known = self._driver.prefilled, self._attempts.get(request.attempt_id)
        if known is not None and known.is_prefilled and not request.prefilled:
            prefilled.remove(known)
            self._driver.begin(known)
            return
        if known is not None:
            self._reports.report(known)
            return
        name = request.attempt_id
        attempt = Attempt(request, self._paths.log(name), self._driver, self._rooms.find(name))
        self._attempts.add(attempt)
        if self._leaving:
            # It never began, so it does not speak against the host.
            self._driver.advance(attempt, StopAsked(self._leaving, 0, leaving=True, preempted=True))
        elif request.prefilled:
            prefilled.add(attempt)
        else:
            self._driver.begin(attempt)

    def _stop(self, stop: StopRequest) -> None:
        attempt = self._attempts.get(stop.attempt_id)
        if attempt is None:
            why = stop.reason or "stopped before it reached the worker"
            self._reports.report_unknown(stop.attempt_id, TaskState.KILLED, why)
        elif attempt.ended:
            self._reports.report(attempt)
        else:
            self._driver.advance(attempt, StopAsked(stop.reason or "stopped", stop.grace_ms, notice=stop.notice))

    def _withdraw(self, attempt_id: str) -> None:
        attempt = self._attempts.get(attempt_id)
        if attempt is None:
            why = "handed back before its start: it had not reached its worker"
            self._reports.report_unknown(attempt_id, TaskState.PENDING, why)
        elif attempt.state.phase in (AttemptPhase.NEW, AttemptPhase.BUILDING):
            self._driver.advance(attempt, HandedBack("handed back before its start: an earlier attempt runs its task"))
        else:
            self._reports.report(attempt)

    def _forget(self, attempt_id: str) -> None:
        attempt = self._attempts.get(attempt_id)
        if attempt is None or not attempt.ended:
            return  # what still runs is not forgotten, or it would never be ended
        self.outbox.forget(attempt_id)
        attempt.log.release()
        if attempt.process is None:
            attempt.log.remove()  # the guardian never heard of it
        else:
            self._runtime.forget(attempt_id)
        self._attempts.forget(attempt)
