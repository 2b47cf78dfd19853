"""Runs a host's attempts: starts and stops them on request, stores their exits, and enforces their fences."""

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from iris.worker.guardian.held import HeldAttempt, HeldPhase
from iris.worker.guardian.joining import joined_spec
from iris.worker.guardian.process import ProcessRuntime
from iris.worker.guardian.protocol import boot_ms
from iris.worker.guardian.reactor import Reactor
from iris.worker.guardian.requests import Json, common_from, join_from, spec_from, spec_of_run
from iris.worker.guardian.watch import Watch
from iris.worker.limits.probe import LimitsAbility
from iris.worker.processes import CommonSpec, ProcessSpec, StartFailed, StartFailure

logger = logging.getLogger(__name__)

_STARTS_PER_TURN: Final = 8
"""Number of starts after which the loop handles output, ends and messages."""
FLUSH_S: Final = 0.1
"""An unfinished line is stored this long after its first byte, for `logs -f`."""
_SWEEP_S: Final = 5.0
_FENCE_TICK_S: Final = 1.0
_STARTED_LATE_S: Final = 0.05
"""Delay of the report of a start. A command that ends sooner reports only its end."""
_GREW_LATE_S: Final = 0.004
_USED_LATE_S: Final = 0.2


class Guardian:
    """All attempts of one work directory.

    Args:
        now_ms: Returns Unix time in ms.
        contact_clock: Returns the time of contacts, like `boot_ms`.
        ability: How limits are enforced; None to enforce and measure nothing.
    """

    def __init__(
        self,
        reactor: Reactor,
        runtime: ProcessRuntime,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        contact_clock: Callable[[], int] = boot_ms,
        ability: LimitsAbility | None = None,
    ) -> None:
        self._reactor = reactor
        self._runtime = runtime
        self._now_ms = now_ms
        self._contact_clock = contact_clock
        self._attempts: dict[str, HeldAttempt] = {}
        self._live: dict[str, HeldAttempt] = {}
        self._watch: Watch | None = None
        if ability is not None:
            self._watch = Watch(reactor, runtime, ability, self._live, lambda item: self._tell(item, _USED_LATE_S))
        self._queue = TurnQueue[HeldAttempt]()
        self._commons: dict[int, CommonSpec] = {}
        self._dirty: dict[str, HeldAttempt] = {}
        self._contact_ms = 0
        self._fence_is_armed = False
        self._sweep_is_armed = False
        self.finishing = False
        self.news_due: float | None = None
        """When (monotonic clock) to report to the worker; None if there is nothing to report."""

    @property
    def live_count(self) -> int:
        return len(self._live)

    @property
    def has_queue(self) -> bool:
        """Whether a command can be started at once."""
        return bool(self._queue)

    def held(self) -> list[Json]:
        """Return all attempts, for a worker process that has connected."""
        self._commons.clear()  # it has numbers of its own
        self._dirty.clear()
        self.news_due = None
        return [attempt.whole() for attempt in self._attempts.values() if not attempt.spec.dies_with_worker]

    def take_news(self) -> list[list[Any]]:
        """Return reports that the worker has not received."""
        news = [item for attempt in self._dirty.values() for item in attempt.news()]
        self._dirty.clear()
        self.news_due = None
        return news

    # --- what it is told ---

    def do(self, verb: object, *details: Any) -> None:
        """Execute one request of the worker; ignore unknown or invalid requests."""
        try:
            match verb:
                case "run":
                    self._run(*details)
                case "start":
                    self._start(*details)
                case "join":
                    self._join(*details)
                case "stop":
                    self._stop(*details)
                case "forget":
                    self._forget(*details)
                case "contact":
                    # What is beyond its fence by now stays so, although this machine has been asleep until now.
                    self._kill_fenced()
                    # What claims to be of the future would put the fence off.
                    self._contact_ms = max(self._contact_ms, min(int(details[0]), self._contact_clock()))
                case "common":
                    self._commons[int(details[0])] = common_from(details[1])
                case "drop":
                    self._commons.pop(int(details[0]), None)
                case "finish":
                    self.finish(int(details[0]))
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            logger.error("invalid request (%s): %r", error, verb)

    def worker_left(self) -> None:
        """Handle the end of the worker's process: stop its tools."""
        for name, attempt in list(self._attempts.items()):
            if attempt.spec.dies_with_worker:
                if attempt.is_live:
                    self._terminate(attempt, 0)
                del self._attempts[name]

    def finish(self, grace_ms: int) -> None:
        """End all attempts and refuse further starts."""
        self.finishing = True
        for attempt in list(self._live.values()):
            self._terminate(attempt, grace_ms)

    def start_some(self) -> None:
        """Start the next few waiting commands."""
        for _ in range(min(_STARTS_PER_TURN, len(self._queue))):
            attempt = self._queue.take()
            if attempt.phase is HeldPhase.QUEUED:
                self._spawn(attempt)

    def _start(self, fields: Json) -> None:
        name = str(fields["id"])
        if name not in self._attempts:  # a repeated request starts nothing
            self._add(name, spec_from(fields))

    def _run(self, number: int, name: str, *own: Any) -> None:
        if name in self._attempts:
            return
        try:
            self._add(name, spec_of_run(self._commons[number], name, *own))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            # The worker waits for a word on it.
            self._add(name, ProcessSpec(name, (), {}, "/"))
            self._refuse(self._attempts[name], StartFailed(f"not understood: {error!r}", why=StartFailure.HOST))

    def _join(self, fields: Json) -> None:
        join = join_from(fields)
        if join.owner in self._attempts:
            return
        target = self._attempts.get(join.attempt)
        if target is None or target.process is None:
            self._add(join.owner, ProcessSpec(join.owner, (), {}, "/", dies_with_worker=True))
            error = StartFailed(f"{join.attempt} is not running here", why=StartFailure.STOPPED)
            self._refuse(self._attempts[join.owner], error)
            return
        self._add(join.owner, joined_spec(target.spec, join))

    def _add(self, name: str, spec: ProcessSpec) -> None:
        attempt = HeldAttempt(spec if self._watch is None else self._watch.limited(spec), self, self._now_ms)
        self._attempts[name] = self._live[name] = attempt
        self._queue.put(name.partition("/")[2].partition("/")[0], attempt)  # /USER/JOB/..., or a tool

    def _stop(self, name: str, grace_ms: int, note: Json | None = None) -> None:
        attempt = self._attempts.get(name)
        if attempt is None or not attempt.is_live:
            return
        if note is not None:
            attempt.note = note
        self._terminate(attempt, int(grace_ms))

    def _forget(self, name: str) -> None:
        attempt = self._attempts.get(name)
        if attempt is None or attempt.is_live:
            return  # what still runs is not forgotten, or it would never be ended
        del self._attempts[name]
        self._dirty.pop(name, None)
        if attempt.log_size:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(attempt.spec.log)

    # --- what it does ---

    def _spawn(self, attempt: HeldAttempt) -> None:
        spec = attempt.spec
        try:
            if self.finishing:
                raise StartFailed("the guardian is exiting", why=StartFailure.STOPPED)
            self._check_fence(attempt)
            attempt.started(self._runtime.start(spec, attempt))
            if self._watch is not None:
                self._watch.began(attempt)
        except StartFailed as error:
            self._refuse(attempt, error)
            return
        except (OSError, ValueError) as error:
            self._refuse(attempt, StartFailed(f"the host cannot start it: {error}", why=StartFailure.HOST))
            return
        self._tell(attempt, 0 if spec.join is not None else _STARTED_LATE_S)
        self._arm_sweep()
        if spec.fence_ms:
            self._arm_fence()

    def _refuse(self, attempt: HeldAttempt, error: StartFailed) -> None:
        attempt.refused(error)
        self._live.pop(attempt.spec.owner, None)
        self._tell(attempt, 0)

    def _terminate(self, attempt: HeldAttempt, grace_ms: int) -> None:
        if attempt.process is None:
            self._refuse(attempt, StartFailed("stopped before its start", why=StartFailure.STOPPED))
            return
        due = time.monotonic() + grace_ms / 1000
        if attempt.grace_timer is not None:
            if attempt.grace_due <= due:
                return  # it was told before, and its time is over sooner
            attempt.grace_timer.cancel()
        else:
            attempt.process.terminate()
        attempt.grace_due = due
        attempt.grace_timer = self._reactor.call_later(grace_ms / 1000, attempt.process.kill)

    # --- what attempts tell ---

    def grew(self, attempt: HeldAttempt) -> None:
        if attempt.output.has_rest and attempt.flush_timer is None:
            attempt.flush_timer = self._reactor.call_later(FLUSH_S, attempt.flush)
        self._tell(attempt, _GREW_LATE_S)

    def ended(self, attempt: HeldAttempt) -> None:
        self._live.pop(attempt.spec.owner, None)
        self._tell(attempt, 0)

    def _tell(self, attempt: HeldAttempt, late_s: float) -> None:
        self._dirty[attempt.spec.owner] = attempt
        due = time.monotonic() + late_s
        if self.news_due is None or due < self.news_due:
            self.news_due = due

    # --- on its own ---

    def _check_fence(self, attempt: HeldAttempt) -> None:
        why = self._beyond_fence(attempt)
        if why:
            raise StartFailed(f"not started: {why}", why=StartFailure.FENCED)

    def _beyond_fence(self, attempt: HeldAttempt) -> str:
        fence_ms = attempt.spec.fence_ms
        silent_ms = self._contact_clock() - self._contact_ms
        if not fence_ms or silent_ms <= fence_ms:
            return ""
        return (
            f"no contact with the controller for {fence_ms / 1000:g} s (its fence): killed before "
            "another attempt may start"
        )

    def _arm_fence(self) -> None:
        if not self._fence_is_armed:
            self._fence_is_armed = True
            self._reactor.call_later(self._fence_tick(), self._fence)

    def _fence_tick(self) -> float:
        # Not only at the next deadline: the reactor's clock stands still while the machine sleeps, contact's does not.
        left = [
            attempt.spec.fence_ms + self._contact_ms - self._contact_clock()
            for attempt in self._live.values()
            if attempt.spec.fence_ms
        ]
        return min(max(min(left, default=0), 0) / 1000 + 0.001, _FENCE_TICK_S)

    def _fence(self) -> None:
        self._fence_is_armed = False
        if self._kill_fenced():
            self._arm_fence()

    def _kill_fenced(self) -> bool:
        """Kill attempts whose fence has expired; return whether any attempt has a fence."""
        remain = False
        for attempt in list(self._live.values()):
            if not attempt.spec.fence_ms or attempt.process is None:
                continue
            remain = True
            if not attempt.fenced and (why := self._beyond_fence(attempt)):
                logger.warning("%s is killed: %s", attempt.spec.owner, why)
                attempt.fenced = why
                attempt.process.kill()
        return remain

    def _arm_sweep(self) -> None:
        if not self._sweep_is_armed:
            self._sweep_is_armed = True
            self._reactor.call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweep_is_armed = False
        self._runtime.sweep()
        if self._live:
            self._arm_sweep()


T = TypeVar("T")


class TurnQueue(Generic[T]):
    """A queue with round robin among users, so that one user with many items does not delay the others."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}  # in the order of their next turns
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, user: str, item: T) -> None:
        """Add an item behind the other items of its user."""
        self._waiting.setdefault(user, deque()).append(item)
        self._count += 1

    def take(self) -> T:
        """Return the next item. Raises StopIteration if the queue is empty."""
        user = next(iter(self._waiting))
        own = self._waiting.pop(user)
        item = own.popleft()
        if own:
            self._waiting[user] = own
        self._count -= 1
        return item
