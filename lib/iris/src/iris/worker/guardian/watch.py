"""Measures the usage of the guardian's attempts, to display it and to enforce soft limits."""

import contextlib
import functools
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from iris.domain.job_spec import MEMORY_WARNING
from iris.domain.usage import Usage
from iris.worker.guardian.held import HeldAttempt
from iris.worker.guardian.process import ProcessRuntime
from iris.worker.guardian.reactor import Reactor
from iris.worker.limits.breach import beyond_share, would_have_ended
from iris.worker.limits.disk import DiskScan, disk_room
from iris.worker.limits.plan import NO_LIMITS, PROCESSES, Breach, LimitRequest, LimitsMode
from iris.worker.limits.probe import LimitsAbility
from iris.worker.limits.processes import ProcessStat, Tally, members, pids_of, proportional_bytes, read_table, tally
from iris.worker.limits.sampling import (
    DISK_TICK_S,
    ROOM_PAUSE_S,
    ROOM_S,
    SOFT_S,
    USAGE_S,
    DiskSchedule,
    disk_breach,
    hurt,
    is_full,
    one_to_end,
    soft_breach,
    soft_line,
    usage_of,
)
from iris.worker.processes import ProcessSpec

logger = logging.getLogger(__name__)

_ENTRIES_PER_TICK: Final = 1000
_STOP_ROUNDS: Final = 20
_ALL: Final = frozenset({"memory", "pids"})


class Watch:
    """Measures a guardian's attempts; idle while there are none.

    Args:
        reactor: Schedules its calls.
        runtime: Runs the attempts' processes.
        ability: How limits are enforced.
        live: The live attempts.
        tell: Called with an attempt whose usage must be reported to the worker.
        table: Returns the process table, like `read_table`.
        usage_s: Interval between complete measurements, in seconds.
    """

    def __init__(
        self,
        reactor: Reactor,
        runtime: ProcessRuntime,
        ability: LimitsAbility,
        live: Mapping[str, HeldAttempt],
        tell: Callable[[HeldAttempt], None],
        table: Callable[[], dict[int, ProcessStat]] = read_table,
        usage_s: float = USAGE_S,
    ) -> None:
        self._usage_s = usage_s
        self._reactor = reactor
        self._runtime = runtime
        self._ability = ability
        self._live = live
        self._tell = tell
        self._table = table
        self._counted = frozenset[str]() if ability.groups is None else ability.groups.controllers
        self._usage_due = self._soft_due = 0.0
        self._ticks_at = 0.0  # when the next tick is; 0: none is to come
        self._disks: dict[str, DiskSchedule] = {}
        self._scans: dict[str, tuple[DiskScan, float]] = {}
        self._full_since = self._room_due = 0.0
        self._limits: dict[LimitRequest, LimitRequest] = {}
        self._members_due = 0.0
        self._seen_members: Mapping[str, Sequence[int]] = {}

    def limited(self, spec: ProcessSpec) -> ProcessSpec:
        """Return the spec with the limits that apply on this host."""
        if spec.dies_with_worker or self._ability.mode is LimitsMode.OFF:
            return spec if spec.limits == NO_LIMITS else replace(spec, limits=NO_LIMITS)
        limits = self._limits.get(spec.limits)
        if limits is None:
            if len(self._limits) > 1000:
                self._limits.clear()
            limits = replace(spec.limits, processes=spec.limits.processes or self._ability.processes)
            self._limits[spec.limits] = limits
        return replace(spec, limits=limits)

    def began(self, attempt: HeldAttempt) -> None:
        """Record that an attempt has started."""
        limits = attempt.spec.limits
        if limits.memory_bytes and (line := soft_line(self._ability.why_soft("memory"))):
            attempt.note_line(line)
        now = time.monotonic()
        if not self._ticks_at:
            self._usage_due, self._soft_due = now + self._usage_s, now + SOFT_S
        self._arm(now, self._period(attempt))

    def _arm(self, now: float, period_s: float) -> None:
        if not self._ticks_at or self._ticks_at > now + period_s:
            due = self._ticks_at = now + period_s
            self._reactor.call_later(period_s, lambda: self._tick(due))

    def _period(self, attempt: HeldAttempt) -> float:
        limits = attempt.spec.limits
        if limits.disk_bytes:
            return DISK_TICK_S
        return min(SOFT_S if self._is_soft(limits) else self._usage_s, ROOM_S if attempt.places else self._usage_s)

    def _is_soft(self, limits: LimitRequest) -> bool:
        is_memory = bool(limits.memory_bytes) and "memory" not in self._counted
        return is_memory or (bool(limits.processes) and "pids" not in self._counted)

    def _tick(self, due: float) -> None:
        if due != self._ticks_at:
            return  # an earlier one has taken its place
        self._ticks_at = 0.0
        attempts = [item for item in self._live.values() if item.process is not None and not item.spec.dies_with_worker]
        if not attempts:
            self._disks.clear()
            self._scans.clear()
            return
        now = time.monotonic()
        if now >= self._usage_due:
            self._usage_due = now + self._usage_s
            self._soft_due = now + SOFT_S
            self._look_at(attempts, is_told=True)
        elif now >= self._soft_due:
            self._soft_due = now + SOFT_S
            self._look_at([item for item in attempts if self._is_soft(item.spec.limits)], is_told=False)
        self._look_at_disks(attempts, now)
        self._arm(now, min(map(self._period, attempts)))

    # --- memory, cpu, processes ---

    def _look_at(self, attempts: list[HeldAttempt], is_told: bool) -> None:
        if not attempts:
            return
        table: dict[int, ProcessStat] = {}
        seen: dict[str, Tally] = {}
        owners: dict[int, str] = {}
        if not self._counted >= _ALL or any(item.spec.is_contained for item in attempts):
            table, owners = self._table(), self._runtime.owners()
            for item in attempts:
                if item.spec.is_contained and item.process is not None:
                    table.pop(item.process.pid, None)  # the engine's program, which is none of the attempt's
            seen = tally(table, owners)
        at_ms = time.time_ns() // 1_000_000
        for attempt in attempts:
            process = attempt.process
            if process is None:
                continue
            name = attempt.spec.owner
            reading = self._runtime.measure(process)
            counted = frozenset[str]() if attempt.spec.is_contained else self._counted
            usage = usage_of(attempt.usage, reading, seen.get(name), counted, at_ms)
            limits = attempt.spec.limits
            breach = soft_breach(limits, usage, self._counted)
            told_at = 0 if attempt.output.has_met(MEMORY_WARNING) else limits.memory_told
            is_beyond = 0 < told_at < usage.memory_bytes
            if "memory" not in self._counted and (is_beyond or (breach is not None and breach.what == "memory")):
                # What forks share counts for each of them; this is dearer and exact.
                exact = proportional_bytes(pids_of(name, table, owners))
                usage = replace(usage, memory_bytes=min(exact or usage.memory_bytes, usage.memory_bytes))
                breach = soft_breach(limits, usage, self._counted)
            if 0 < told_at < usage.memory_bytes:
                attempt.met(would_have_ended(told_at, usage.memory_bytes))
            if reading is not None:
                for met in hurt(limits, reading, attempt.usage.memory_peak_bytes):
                    attempt.met(met)
            if is_told or breach is not None:
                self._use(attempt, usage)
            if breach is not None:
                self._end(attempt, breach)

    def _use(self, attempt: HeldAttempt, usage: Usage) -> None:
        attempt.used(usage)
        self._tell(attempt)

    def _pids(self, attempt: HeldAttempt, now: float) -> Sequence[int]:
        if attempt.process is None:
            return ()
        if self._counted:
            return self._runtime.group_pids(attempt.process)
        return self._members(now).get(attempt.spec.owner, ())

    def _members(self, now: float) -> Mapping[str, Sequence[int]]:
        """Return the processes of each attempt from /proc, cached for a second, because reading it takes some ms."""
        if now >= self._members_due:
            self._members_due = now + SOFT_S
            self._seen_members = members(self._table(), self._runtime.owners())
        return self._seen_members

    # --- disk ---

    def _look_at_disks(self, attempts: list[HeldAttempt], now: float) -> None:
        entries, free, size = _ENTRIES_PER_TICK, -1, 0
        for attempt in attempts:
            name, places = attempt.spec.owner, attempt.places
            if not places or attempt.breach is not None:
                continue
            if free < 0:
                try:
                    free, size = disk_room(places[0])
                except OSError:
                    return
                self._look_for_room(attempts, now, free, size)
            schedule = self._disks.get(name)
            if schedule is None:
                limit = attempt.spec.limits.disk_bytes
                schedule = self._disks[name] = DiskSchedule(limit, now if limit else now + USAGE_S, free)
            if name not in self._scans:
                if not schedule.is_due(now, free):
                    continue
                seen_as = [mount.target for mount in attempt.spec.mounts]
                for_deleted = schedule.is_due_for_deleted(now, free)
                pids = functools.partial(self._pids, attempt, now) if for_deleted else None
                self._scans[name] = (DiskScan(places, seen_as, pids), 0.0)
            if entries <= 0:
                continue  # it is its turn at the next tick
            entries -= self._scan(attempt, schedule, now, free, entries)
        if len(self._disks) > 2 * len(self._live) + 10:
            for gone in self._disks.keys() - self._live.keys():
                del self._disks[gone]
                self._scans.pop(gone, None)

    def _look_for_room(self, attempts: list[HeldAttempt], now: float, free: int, size: int) -> None:
        """On a full disk, scan all attempts' directories, and end the attempt that exceeds its share the most."""
        if now < self._room_due or not is_full(free, size) or self._ability.mode is LimitsMode.OFF:
            self._full_since = 0.0
            return
        self._full_since = self._full_since or now
        writers = {item.spec.owner: item for item in attempts if item.places and item.breach is None}
        seen = {name: schedule for name in writers if (schedule := self._disks.get(name)) is not None}
        late = [schedule for schedule in seen.values() if schedule.looked_at < self._full_since]
        for schedule in late:
            schedule.hurry()
        if late or len(seen) < len(writers):
            return
        limits = {name: item.limit_bytes for name, item in seen.items() if item.limit_bytes}
        found = one_to_end({name: item.total_bytes for name, item in seen.items()}, limits, free)
        self._full_since, self._room_due = 0.0, now + ROOM_PAUSE_S
        if found is not None:
            name, share = found
            self._end(writers[name], beyond_share(share, seen[name].total_bytes))

    def _scan(self, attempt: HeldAttempt, schedule: DiskSchedule, now: float, free: int, entries: int) -> int:
        name = attempt.spec.owner
        scan, took = self._scans[name]
        before, began = scan.entries, time.thread_time()
        is_over = scan.go_on(entries)
        took += time.thread_time() - began
        # What was found so far is in use, whatever is still to be found.
        total = scan.total_bytes + (0 if scan.looks_for_deleted else schedule.deleted_bytes)
        breach = disk_breach(attempt.spec.limits, total)
        if is_over or breach is not None:
            del self._scans[name]
            schedule.looked(now, took, total, free)
            if scan.looks_for_deleted:
                schedule.looked_for_deleted(now, scan.deleted_bytes)
            self._use(attempt, replace(attempt.usage, disk_bytes=total))
        else:
            self._scans[name] = (scan, took)
        if breach is not None:
            self._end(attempt, breach)
        return max(scan.entries - before, 1)

    # --- ends ---

    def _end(self, attempt: HeldAttempt, breach: Breach) -> None:
        if attempt.breach is not None or attempt.process is None:
            return
        logger.info("%s is ended: %s", attempt.spec.owner, breach.text)
        attempt.breach = breach
        if breach.what == PROCESSES:
            self._stop_all(attempt.spec.owner)
        attempt.process.kill()

    def _stop_all(self, owner: str) -> None:
        """Suspend all processes of the attempt, so that none forks in the meantime; then kill them."""
        stopped: set[int] = set()
        for _ in range(_STOP_ROUNDS):
            found = pids_of(owner, self._table(), self._runtime.owners()) - stopped
            if not found:
                break
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= found
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
