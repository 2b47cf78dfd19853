"""The start queue: one attempt per task at a time, within the capacity of the runtime."""

import asyncio
from collections import deque
from typing import Final, Protocol

from iris.domain.states import FailureKind
from iris.worker.attempts.attempt import Attempt
from iris.worker.attempts.ports import PortsInUse
from iris.worker.attempts.rooms import Rooms
from iris.worker.devices.allotment import ChipsHeld
from iris.worker.processes import Runtime, StartFailed

_STARTS_PER_TURN: Final = 50
"""Number of starts after which the loop handles ends and messages."""

_LOOK_S: Final = 1.0
"""Time between two looks at accelerators in use."""


class StartListener(Protocol):
    """Receives the results of the attempts in the queue."""

    def handed(self, attempt: Attempt) -> None: ...

    def failed_to_start(self, attempt: Attempt, kind: FailureKind, error: str, exit_code: int = 0) -> None: ...

    def superseded(self, former: Attempt, by: Attempt) -> None: ...

    def waits(self, attempt: Attempt) -> None: ...


class StartQueue:
    """Starts attempts in turns of the loop.

    Args:
        runtime: Runs the processes; attempts beyond its capacity stay in the queue.
        rooms: Create the specs.
    """

    def __init__(self, runtime: Runtime, rooms: Rooms, listener: StartListener) -> None:
        self._rooms = rooms
        self._runtime = runtime
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Attempt] = deque()
        self._started: dict[str, Attempt] = {}  # by task: one at a time
        self._parked: dict[str, list[Attempt]] = {}  # by task: wait until the one before is gone
        self._for_ports: list[Attempt] = []  # wait until an attempt gives its ports or accelerators back
        self._patience: dict[str, float] = {}  # by attempt: until when it waits for accelerators
        self._look: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None
        self._is_starting = False

    def put(self, attempt: Attempt) -> None:
        """Start the attempt in the next turn, or when the runtime has capacity."""
        self._waiting.append(attempt)
        self._schedule_turn()

    def take_up(self, attempt: Attempt) -> None:
        """Add an attempt that is already running."""
        self._started[attempt.request.task_id] = attempt
        self._rooms.at(attempt.room).specs.adopt(attempt)

    def ended(self, attempt: Attempt) -> None:
        """Record that the attempt has ended, started or not, so that the next one can start."""
        task_id = attempt.request.task_id
        if self._started.get(task_id) is attempt:
            del self._started[task_id]
            self._waiting.extend(self._parked.pop(task_id, ()))
        self._release(attempt)
        if self._waiting:
            self._schedule_turn()

    def start_now(self) -> None:
        """Start the queued attempts now instead of in the next turn of the loop, unless starts are in progress."""
        if self._waiting and not self._is_starting:
            if self._turn is not None:
                self._turn.cancel()
            self._start_some()

    def make_ready(self, attempt: Attempt) -> None:
        """Create the attempt's spec in advance; errors are reported at the start."""
        room = self._rooms.at(attempt.room)
        if attempt.spec is None and not attempt.ended and not room.refusal:
            try:
                attempt.spec = room.specs.make(attempt)
            except (StartFailed, OSError):
                self.make_unready(attempt)

    def make_unready(self, attempt: Attempt) -> None:
        """Undo `make_ready`."""
        attempt.spec = None
        self._release(attempt)
        self._rooms.at(attempt.room).directories.remove(attempt.attempt_id)

    def _release(self, attempt: Attempt) -> None:
        self._rooms.at(attempt.room).specs.release(attempt)
        self._patience.pop(attempt.attempt_id, None)
        self._retry_waiting()

    def _retry_waiting(self) -> None:
        # They have waited longest, so they come first; who is still short of ports waits again.
        if self._for_ports:
            self._waiting.extendleft(reversed(self._for_ports))
            self._for_ports.clear()
            self._schedule_turn()

    def _schedule_turn(self) -> None:
        if self._turn is None:
            self._turn = self._loop.call_soon(self._start_some)

    def _start_some(self) -> None:
        self._turn = None
        self._is_starting = True
        try:
            for _ in range(_STARTS_PER_TURN):
                if not self._waiting or self._runtime.live_count >= self._runtime.most_live:
                    return
                attempt = self._waiting.popleft()
                if not attempt.ended and not self._park(attempt):  # stopped while it waited
                    self._start(attempt)
        finally:
            self._is_starting = False
        if self._waiting:
            self._schedule_turn()

    def _park(self, attempt: Attempt) -> bool:
        """Return whether the attempt must wait, because a superseded attempt of the same task is still here."""
        task_id = attempt.request.task_id
        former = self._started.get(task_id)
        if former is None:
            return False
        self._parked.setdefault(task_id, []).append(attempt)
        self._listener.superseded(former, attempt)
        return True

    def _start(self, attempt: Attempt) -> None:
        room = self._rooms.at(attempt.room)
        if room.refusal:
            self._listener.failed_to_start(attempt, FailureKind.WORKER, room.refusal)
            return
        try:
            spec = attempt.spec or room.specs.make(attempt)
        except StartFailed as error:
            self._listener.failed_to_start(attempt, FailureKind.START, str(error), error.exit_code)
            return
        except PortsInUse as error:
            self._for_ports.append(attempt)  # the host is not at fault: it has more when one of its attempts has ended
            attempt.waits_for = f"{error.strerror or error}; waiting for another attempt on this worker to end"
            self._listener.waits(attempt)
            return
        except ChipsHeld as error:
            self._wait_for_chips(attempt, room.specs.patience_s, error.strerror or str(error))
            return
        except OSError as error:
            self._listener.failed_to_start(attempt, FailureKind.WORKER, f"the worker cannot start it: {error}")
            return
        attempt.spec = None
        attempt.waits_for = ""
        self._patience.pop(attempt.attempt_id, None)
        self._started[attempt.request.task_id] = attempt
        self._listener.handed(attempt)
        attempt.process = self._runtime.start(spec, attempt)

    def _wait_for_chips(self, attempt: Attempt, patience_s: float, why: str) -> None:
        """Try again when an attempt ends, and every second; after `patience_s` the host is at fault."""
        now = self._loop.time()
        if now >= self._patience.setdefault(attempt.attempt_id, now + patience_s):
            self._listener.failed_to_start(attempt, FailureKind.DEVICE, f"{why}; it waited {patience_s:g} s")
            return
        self._for_ports.append(attempt)
        if attempt.waits_for != why:
            attempt.waits_for = why
            self._listener.waits(attempt)
        if self._look is None:
            self._look = self._loop.call_later(min(_LOOK_S, patience_s), self._look_again)

    def _look_again(self) -> None:
        self._look = None
        self._retry_waiting()
