"""One attempt in its guardian, from the start request until the worker forgets it."""

import base64
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any, Protocol

from iris.domain.usage import NO_USAGE, Usage
from iris.worker.guardian.reactor import Timer
from iris.worker.guardian.requests import Json
from iris.worker.guardian.running_process import CommandProcess
from iris.worker.limits.plan import Breach
from iris.worker.output.attempt_output import AttemptOutput
from iris.worker.processes import Exit, ProcessSpec, StartFailed


class HeldPhase(Enum):
    """Phases of an attempt in the guardian."""

    QUEUED = "queued"
    RUNNING = "running"
    REFUSED = "refused"
    ENDED = "ended"


class Keeper(Protocol):
    """Receives the events of one attempt."""

    def grew(self, attempt: "HeldAttempt") -> None: ...

    def ended(self, attempt: "HeldAttempt") -> None: ...


class HeldAttempt:
    """Listens to the attempt's process, stores its output, and tracks changes that are not reported to the worker yet.

    Args:
        spec: The requested process.
        keeper: Notified of new events.
        now_ms: Unix time in milliseconds.
    """

    __slots__ = (
        "_keeper", "_now_ms", "_told_size", "_told_started", "_told_usage", "at_ms", "breach", "exit", "fenced",
        "flush_timer", "grace_due", "grace_timer", "is_live", "note", "output", "phase", "pid", "process", "refusal",
        "spec", "usage",
    )  # fmt: skip

    def __init__(self, spec: ProcessSpec, keeper: Keeper, now_ms: Callable[[], int]) -> None:
        self.spec = spec
        self.note = spec.note
        self.phase = HeldPhase.QUEUED
        self.is_live = True
        self.at_ms = now_ms()
        self.pid = 0
        self.process: CommandProcess | None = None
        self.output = AttemptOutput(spec)
        self.exit: Exit | None = None
        self.refusal: StartFailed | None = None
        self.fenced = ""
        self.breach: Breach | None = None  # for which it was ended
        self.usage = NO_USAGE
        self._told_usage = NO_USAGE
        self.grace_timer: Timer | None = None
        self.grace_due = 0.0
        self.flush_timer: Timer | None = None
        self._keeper = keeper
        self._now_ms = now_ms
        self._told_started = False
        self._told_size = 0

    @property
    def log_size(self) -> int:
        return self.output.size

    @property
    def places(self) -> tuple[str, ...]:
        """Return the directories whose size counts as its disk usage."""
        found = self.note.get("places", ())
        return tuple(map(str, found)) if isinstance(found, list | tuple) else ()

    # --- what happens to it ---

    def started(self, process: CommandProcess) -> None:
        self.process = process
        self.pid = process.pid
        self.phase = HeldPhase.RUNNING
        self.at_ms = self._now_ms()

    def refused(self, error: StartFailed) -> None:
        """Record that the attempt will never start; the reason is also the only line of its log."""
        self.refusal = error
        self.phase = HeldPhase.REFUSED
        self.is_live = False
        self.at_ms = self._now_ms()
        if self.output.feed(True, f"{error}\n".encode(errors="replace"), self.at_ms):
            self.output.finish(self.at_ms)

    def on_output(self, is_stderr: bool, data: bytes) -> None:
        if self.output.feed(is_stderr, data, self._now_ms()):
            self._keeper.grew(self)

    def flush(self) -> None:
        """Store the output, including unfinished lines."""
        self.flush_timer = None
        if self.is_live and self.output.flush(self._now_ms()):
            self._keeper.grew(self)

    def note_line(self, text: str) -> None:
        """Add a line from iris to the log."""
        if self.output.note(text, self._now_ms()):
            self._keeper.grew(self)

    def met(self, breach: Breach) -> None:
        """Record that the attempt reached a limit and continues; note it once in the log."""
        if not self.output.has_met(breach.what):
            self.output.mark_met(breach.what)
            self.note_line(breach.text)

    def used(self, usage: Usage) -> None:
        """Record the attempt's usage."""
        self.usage = self.usage.later(usage)

    def on_exit(self, exit: Exit) -> None:
        self.at_ms = self._now_ms()
        if exit.usage is not None:
            self.usage = replace(self.usage.later(exit.usage), at_ms=self.at_ms)
        self.breach = self.breach or exit.breach
        if self.breach is not None and not (exit.succeeded and self.output.has_met(self.breach.what)):
            self.output.note(self.breach.text, self.at_ms)
        self.output.finish(self.at_ms)
        self.phase = HeldPhase.ENDED
        self.is_live = False
        self.process = None
        self.exit = exit
        self.cancel_timers()
        self._keeper.ended(self)

    def cancel_timers(self) -> None:
        for timer in (self.grace_timer, self.flush_timer):
            if timer is not None:
                timer.cancel()
        self.grace_timer = self.flush_timer = None

    # --- what is told of it ---

    def news(self) -> list[list[Any]]:
        """Return the unreported changes and mark them as reported."""
        told: list[list[Any]] = []
        name = self.spec.owner
        if self.refusal is not None:
            refusal = self.refusal
            return [["grew", name, self.log_size], ["refused", name, refusal.why, str(refusal), refusal.exit_code]]
        if self.exit is not None:
            if self.usage != NO_USAGE:
                told.append(["usage", name, self.usage.numbers()])
            if self._is_plain():
                exit = self.exit
                return [*told, ["over", name, self.pid, exit.code, exit.signal, self.log_size, self.at_ms]]
            return [*told, ["ended", name, self._end()]]
        if self.process is not None and not self._told_started:
            told.append(["started", name, self.pid, self.at_ms])
            self._told_started = True
        if self.log_size != self._told_size:
            self._told_size = self.log_size
            told.append(["grew", name, self._told_size])
        if self.usage is not self._told_usage:
            self._told_usage = self.usage
            told.append(["usage", name, self.usage.numbers()])
        return told

    def whole(self) -> Json:
        """Return the whole state, for a worker process that has connected."""
        self._told_started = self.process is not None
        self._told_size = self.log_size
        self._told_usage = self.usage
        used: Json = {} if self.usage == NO_USAGE else {"usage": self.usage.numbers()}
        return {
            **used,
            "id": self.spec.owner,
            "pid": self.pid,
            "log": self.spec.log,
            "log_size": self.log_size,
            "at_ms": self.at_ms,
            "note": self.note,
            "refused": None if self.refusal is None else [self.refusal.why, str(self.refusal), self.refusal.exit_code],
            "end": None if self.exit is None else self._end(),
        }

    def _is_plain(self) -> bool:
        exit = self.exit
        if self.output.tail or self.fenced or self.breach is not None or self.output.lost:
            return False
        # What is known of a bad end is told, too: that it was not for lack of memory.
        return exit is None or exit.succeeded or not exit.has_evidence

    def _end(self) -> Json:
        exit, output = self.exit, self.output
        assert exit is not None
        end: Json = {
            "pid": self.pid,
            "code": exit.code,
            "signal": exit.signal,
            "log_size": self.log_size,
            "at_ms": self.at_ms,
        }
        if output.tail:
            end["tail"] = base64.b64encode(output.tail).decode()
        if output.lost:
            end["lost"] = output.lost
            if output.unmarked:
                end["unmarked"] = output.unmarked
        if self.fenced:
            end["fenced"] = self.fenced
        if self.breach is not None:
            end["breach"] = [self.breach.what, self.breach.text]
        if exit.has_evidence:
            end["evidence"] = True
        return end
