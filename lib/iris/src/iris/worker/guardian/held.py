"""One attempt as its guardian holds it: from the request to start it until it is to be forgotten."""

import base64
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any, Protocol

from iris.domain.usage import NO_USAGE, Usage
from iris.worker.guardian.reactor import Timer
from iris.worker.guardian.running_process import CommandProcess
from iris.worker.isolation.plan import mounts_from
from iris.worker.limits.plan import Breach, limits_from
from iris.worker.output.log_writer import LogWriter
from iris.worker.processes import CommonSpec, Exit, ProcessSpec, StartFailed
from iris.worker.users.identity import identity_from

Json = dict[str, Any]


class HeldPhase(Enum):
    """Stages of an attempt in the guardian."""

    QUEUED = "queued"
    RUNNING = "running"
    REFUSED = "refused"
    ENDED = "ended"


class Keeper(Protocol):
    """Receives the events of one attempt."""

    def grew(self, attempt: "HeldAttempt") -> None: ...

    def ended(self, attempt: "HeldAttempt") -> None: ...


class HeldAttempt:
    """Listens to its process, writes its log, and knows what the worker has not been told of it.

    Args:
        spec: Its process as it was asked for.
        keeper: Told of what is new.
        now_ms: Unix time in milliseconds.
    """

    __slots__ = (
        "_keeper", "_met", "_now_ms", "_tail", "_told_size", "_told_started", "_told_usage", "at_ms", "breach", "exit",
        "fenced", "flush_timer", "grace_due", "grace_timer", "is_live", "note", "phase", "pid", "process", "refusal",
        "spec", "usage", "writer",
    )  # fmt: skip

    def __init__(self, spec: ProcessSpec, keeper: Keeper, now_ms: Callable[[], int]) -> None:
        self.spec = spec
        self.note = spec.note
        self.phase = HeldPhase.QUEUED
        self.is_live = True
        self.at_ms = now_ms()
        self.pid = 0
        self.process: CommandProcess | None = None
        self.writer: LogWriter | None = None  # until there is something to write
        self.exit: Exit | None = None
        self.refusal: StartFailed | None = None
        self.fenced = ""
        self.breach: Breach | None = None  # for which it was ended
        self.usage = NO_USAGE
        self._told_usage = NO_USAGE
        self._met: tuple[str, ...] = ()
        self.grace_timer: Timer | None = None
        self.grace_due = 0.0
        self.flush_timer: Timer | None = None
        self._keeper = keeper
        self._now_ms = now_ms
        self._tail = b""
        self._told_started = False
        self._told_size = 0

    @property
    def log_size(self) -> int:
        return self.writer.size if self.writer is not None else 0

    @property
    def places(self) -> tuple[str, ...]:
        """The directories whose size is its use of the disk."""
        found = self.note.get("places", ())
        return tuple(map(str, found)) if isinstance(found, list | tuple) else ()

    # --- what happens to it ---

    def started(self, process: CommandProcess) -> None:
        self.process = process
        self.pid = process.pid
        self.phase = HeldPhase.RUNNING
        self.at_ms = self._now_ms()

    def refused(self, error: StartFailed) -> None:
        """It will never start; the reason is also the log's only line."""
        self.refusal = error
        self.phase = HeldPhase.REFUSED
        self.is_live = False
        self.at_ms = self._now_ms()
        if self.spec.log:
            writer = self._open_writer()
            writer.feed(True, f"{error}\n".encode(errors="replace"), self.at_ms)
            writer.finish(self.at_ms)

    def on_output(self, is_stderr: bool, data: bytes) -> None:
        spec = self.spec
        if spec.tail_bytes and (is_stderr or not spec.log):
            self._tail = (self._tail + data)[-spec.tail_bytes :]
        if spec.log:
            (self.writer or self._open_writer()).feed(is_stderr, data, self._now_ms())
            self._keeper.grew(self)

    def _open_writer(self) -> LogWriter:
        self.writer = LogWriter(self.spec.log, self.spec.log_limit)
        return self.writer

    def flush(self) -> None:
        """Store unfinished lines, too: a reader may be waiting for a prompt."""
        self.flush_timer = None
        if self.writer is not None and self.is_live:
            self.writer.flush(self._now_ms())
            self._keeper.grew(self)

    def note_line(self, text: str) -> None:
        """Add a line of iris's own to its log."""
        if self.spec.log:
            (self.writer or self._open_writer()).note(text, self._now_ms())
            self._keeper.grew(self)

    def met(self, breach: Breach) -> None:
        """It ran into a limit and goes on; its log says so once."""
        if not self.has_met(breach.what):
            self._met = (*self._met, breach.what)
            self.note_line(breach.text)

    def has_met(self, what: str) -> bool:
        """Whether its log has said so."""
        return what in self._met

    def used(self, usage: Usage) -> None:
        """It was seen to use this."""
        self.usage = self.usage.later(usage)

    def on_exit(self, exit: Exit) -> None:
        self.at_ms = self._now_ms()
        if exit.usage is not None:
            self.usage = replace(self.usage.later(exit.usage), at_ms=self.at_ms)
        self.breach = self.breach or exit.breach
        if self.breach is not None and self.spec.log and (self.breach.what not in self._met or not exit.succeeded):
            (self.writer or self._open_writer()).note(self.breach.text, self.at_ms)
        if self.writer is not None:
            self.writer.finish(self.at_ms)
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
        """News that the worker was not told yet; it counts as told then."""
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
        """All of it, for a worker process that has just come."""
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
        if self._tail or self.fenced or self.breach is not None or (self.writer is not None and self.writer.lost):
            return False
        # What is known of a bad end is told, too: that it was not for lack of memory.
        return exit is None or exit.succeeded or not exit.has_evidence

    def _end(self) -> Json:
        exit, writer = self.exit, self.writer
        assert exit is not None
        end: Json = {
            "pid": self.pid,
            "code": exit.code,
            "signal": exit.signal,
            "log_size": self.log_size,
            "at_ms": self.at_ms,
        }
        if self._tail:
            end["tail"] = base64.b64encode(self._tail).decode()
        if writer is not None and writer.lost:
            end["lost"] = writer.lost
            if writer.unmarked:
                end["unmarked"] = writer.unmarked
        if self.fenced:
            end["fenced"] = self.fenced
        if self.breach is not None:
            end["breach"] = [self.breach.what, self.breach.text]
        if exit.has_evidence:
            end["evidence"] = True
        return end


def spec_from(fields: Json) -> ProcessSpec:
    """Parse a "start". Raises KeyError, TypeError or ValueError for what cannot be run."""
    argv = tuple(map(str, fields["argv"]))
    env = {str(name): str(value) for name, value in fields["env"].items()}
    if not argv:
        raise ValueError("argv is empty")
    return ProcessSpec(
        owner=str(fields["id"]),
        argv=argv,
        env=env,
        cwd=str(fields["cwd"]),
        sharer=str(fields.get("sharer", "")),
        log=str(fields.get("log", "")),
        log_limit=int(fields.get("log_limit", 0)),
        tail_bytes=int(fields.get("tail_bytes", 0)),
        fence_ms=int(fields.get("fence_ms", 0)),
        dies_with_worker=bool(fields.get("dies_with_worker", False)),
        note=dict(fields.get("note", {})),
        mounts=mounts_from(fields.get("mounts", ())),
        limits=limits_from(fields.get("limits")),
        run_as=identity_from(fields.get("run_as")),
    )


def common_from(fields: Json) -> CommonSpec:
    """Parse a "common". Raises KeyError, TypeError or ValueError for what cannot be run."""
    whole = spec_from({"id": "", "cwd": "", **fields})
    return CommonSpec(
        argv=whole.argv,
        env=whole.env,
        sharer=whole.sharer,
        log_limit=whole.log_limit,
        tail_bytes=whole.tail_bytes,
        fence_ms=whole.fence_ms,
        note=whole.note,
        limits=whole.limits,
        run_as=whole.run_as,
    )


def fields_of_common(common: CommonSpec) -> Json:
    """The inverse of `common_from`; what is empty is left out."""
    fields: Json = {"argv": common.argv, "env": common.env}
    for name in ("sharer", "log_limit", "tail_bytes", "fence_ms", "note"):
        if value := getattr(common, name):
            fields[name] = value
    _add_words(fields, common)
    return fields


def _add_words(fields: Json, spec: CommonSpec | ProcessSpec) -> None:
    if limits := spec.limits.words():
        fields["limits"] = limits
    if spec.run_as is not None:
        fields["run_as"] = spec.run_as.words()


def spec_of_run(
    common: CommonSpec, name: str, cwd: str, log: str, env: Json, note: Json, mounts: Any = ()
) -> ProcessSpec:
    """Parse a "run".

    Args:
        common: The common part, as the worker sent it before.
        name: The attempt.
        cwd: Its working directory.
        log: Its log file.
        env: Variables besides the common ones.
        note: State for the next worker process, besides the common one.
        mounts: As `Mount.words`.

    Raises:
        TypeError: Something is of the wrong type.
        ValueError: Something has a wrong value.
    """
    if not all(type(value) is str for value in env.values()):
        raise TypeError("a variable is no text")
    return ProcessSpec(
        owner=name, argv=(), env=env, cwd=cwd, log=log, note=note, mounts=mounts_from(mounts), common=common
    ).whole()


def fields_of(spec: ProcessSpec) -> Json:
    """The inverse of `spec_from`; what is empty is left out."""
    fields: Json = {"id": spec.owner, "argv": spec.argv, "env": spec.env, "cwd": spec.cwd}
    for name in ("sharer", "log", "log_limit", "tail_bytes", "fence_ms", "dies_with_worker", "note"):
        if value := getattr(spec, name):
            fields[name] = value
    _add_words(fields, spec)
    if spec.mounts:
        fields["mounts"] = [mount.words() for mount in spec.mounts]
    return fields
