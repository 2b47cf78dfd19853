"""One scheduling round: a pure function of the view."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from iris.core.state.booking import Demand
from iris.core.state.view import ClusterView
from iris.domain.entities import Job
from iris.domain.events import Assigned, Begun, Event, Preempted
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId, task_id
from iris.domain.job_spec import is_gang
from iris.domain.states import PriorityBand
from iris.sched.explain import explain_gang, explain_task
from iris.sched.fit import Host, Pools, hosts_of
from iris.sched.gang import Groups, group_size
from iris.sched.held import HeldRoom
from iris.sched.order import JobTurn, turns
from iris.sched.preempt import Room, Victims
from iris.sched.prefill import PrefillShares, with_room
from iris.sched.reasons import Reason, Reasons
from iris.sched.reserve import RESERVE_AFTER_MS, Reservations
from iris.sched.running_limit import RunningLimit

_MAX_GANG_SEARCHES: Final = 16
_PAUSE_US_PER_JOB: Final = 4
"""Pause per pending job: about twice the duration of a round per job."""


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """The decisions of one round.

    Args:
        assignments: Tasks to start, each with its worker, in scheduling order.
        reasons: For every job with pending tasks, why its first task is not placed.
        preemptions: Attempts to preempt; reduce these before the assignments.
        prefilled: Tasks to assign to full workers, in scheduling order (see `iris.sched.prefill`).
        begun: Prefilled attempts that now have room to start.
        kept: Workers whose free capacity is kept for a job.
    """

    assignments: list[tuple[TaskId, WorkerId]] = field(default_factory=list)
    reasons: Reasons = field(default_factory=Reasons)
    preemptions: list[Preempted] = field(default_factory=list)
    prefilled: list[tuple[TaskId, WorkerId]] = field(default_factory=list)
    begun: list[AttemptId] = field(default_factory=list)
    kept: dict[WorkerId, JobId] = field(default_factory=dict)

    def events(self) -> Iterator[Event]:
        """Return all decisions as events, in the order to reduce them."""
        yield from self.preemptions
        for task, worker_id in self.assignments:
            yield Assigned(task, worker_id)
        yield from map(Begun, self.begun)
        for task, worker_id in self.prefilled:
            yield Assigned(task, worker_id, prefilled=True)


def plan_round(view: ClusterView, now_ms: int, every_job: bool = False) -> RoundPlan:
    """Choose workers for as many pending tasks as fit, in the order of `iris.sched.order`.

    A job that does not fit does not delay later jobs, unless it has waited long: then capacity is reserved for the job.
    Work of a more urgent band preempts less urgent work. CPUs that waiting attempts lend count as free.

    Args:
        view: Never modified.
        now_ms: Unix ms.
        every_job: Examine every job, even if all have equal requests. The decisions are the same.
    """
    round_ = _Round(view, now_ms, every_job)
    if view.queue:
        for turn in turns(view, now_ms):
            round_.place(turn)
            if round_.is_over():
                break
    round_.begin_prefilled()
    round_.plan.kept.update((host.worker.worker_id, host.held_by) for host in round_.hosts if host.held_by is not None)
    return round_.plan


def pause_ms(view: ClusterView) -> int:
    """Return the pause between rounds in ms, so that rounds do not delay events: 0 unless hundreds of jobs are
    pending.
    """
    return len(view.queue) * _PAUSE_US_PER_JOB // 1000


def _is_uniform(view: ClusterView, now_ms: int) -> bool:
    """Return whether all pending tasks are alike, without gangs and reserved capacity."""
    if len(view.waiting_demands) != 1 or view.waiting_gangs or view.held_counts or view.bookings.reserving:
        return False
    oldest = min(
        view.jobs[view.queue[place][2]].submitted_at_ms
        for place in {bisect_left(view.queue, (band,)) for band in PriorityBand}
        if place < len(view.queue)
    )
    return now_ms - oldest < RESERVE_AFTER_MS


class _Round:
    """Free capacity, and requests that did not fit, during one round."""

    def __init__(self, view: ClusterView, now_ms: int, every_job: bool) -> None:
        self.plan = RoundPlan()
        self._view = view
        # When no task waits, only what was prefilled is looked at.
        self.hosts = hosts_of(view, None if view.queue else view.prefilled_on)
        self._pools = Pools(self.hosts)
        self._groups: dict[tuple[Demand, str], Groups] = {}
        self._reservations = Reservations(now_ms)
        self._prefill = PrefillShares(view)
        self._held = HeldRoom(view, self.hosts)
        self._running = RunningLimit(view)
        self._victims: Victims | None = None
        self._placed: dict[JobId, int] = {}
        self._reasons: dict[tuple[object, ...], Reason] = {}
        self._settled: dict[tuple[Demand, PriorityBand], Reason] = {}
        self._hopeless: set[tuple[object, ...]] = set()
        self._moved: set[JobId] = set()  # jobs preempted in this round; none of their tasks may start in it
        self._gang_searches = 0
        self._is_uniform = not every_job and _is_uniform(view, now_ms)
        # Hosts of which something is on its way out; each demand looks at them in this order, and back never.
        self._coming = [host for host in self.hosts if host.coming is not None]
        self._coming_seen: dict[Demand, int] = {}

    def place(self, turn: JobTurn) -> None:
        """Place as many of the job's pending tasks as fit, and record why the others wait."""
        job = self._view.jobs[turn.job_id]
        held = self._view.held_counts.get(turn.job_id)
        if held:
            many = "attempt" if held == 1 else "attempts"
            self.plan.reasons.put(turn.job_id, f"waits for {held} earlier {many} to end")
        elif why := self._running.why_held(job):
            self.plan.reasons.put(turn.job_id, why)
        elif turn.job_id in self._moved:
            self.plan.reasons.put(turn.job_id, "waits for its own stopping attempts, which make room for other work")
        elif is_gang(job.spec):
            self._place_gang(job, turn)
        else:
            self._place_each(job, turn)

    def is_over(self) -> bool:
        """Return whether nothing more can be placed: all remaining tasks are alike, and no host has room for one."""
        if not (self._is_uniform and self._settled) or self._moved:
            return False
        pending = self._view.pending
        done = {job_id for job_id, count in self._placed.items() if count == len(pending[job_id])}
        self.plan.reasons.put_rest(pending, next(iter(self._settled.values())), done)
        return True

    def begin_prefilled(self) -> None:
        """Start prefilled attempts on workers with remaining capacity."""
        prefilled_on = self._view.prefilled_on
        if prefilled_on:
            self.plan.begun.extend(with_room(host for host in self.hosts if host.worker.worker_id in prefilled_on))

    # ---- tasks by themselves ----

    def _place_each(self, job: Job, turn: JobTurn) -> None:
        job_id = turn.job_id
        demand = self._view.demands[job_id]
        total = len(self._view.pending[job_id])
        begin = done = self._placed.get(job_id, 0)
        most = job.may_start(total)
        if begin >= most:
            most = job.spec.max_running
            self.plan.reasons.put(job_id, f"runs {most} task{'s' if most > 1 else ''}, the job's max_running")
            return
        end = min(most, begin + turn.limit)
        if self._held.is_any:
            done = self._place(job, begin, self._held.share_out(job, end - begin), self.plan.assignments)
        if done == end or not self._is_settled(job, demand, turn):
            done = self._place_free(job, demand, turn, done, end)
        if done > begin:
            self._running.note_start(job)
            turn.placed_weight = demand.weight * (done - begin)
            self._placed[job_id] = done

    def _place_free(self, job: Job, demand: Demand, turn: JobTurn, done: int, end: int) -> int:
        """Place tasks on free capacity, and return how many of the job's tasks are placed."""
        job_id, need = turn.job_id, demand.resources
        pool = self._pools.of(demand)
        waiting = self._view.pending[job_id]
        total = len(waiting)
        assignments = self.plan.assignments
        while done < end:
            host = pool.find(need)
            if host is None:
                done = self._place_prefilled(job, demand, done, end)
                if done < end:
                    self._wait_each(job, demand, turn, end - done)
                    break
                continue
            count = 1 if end - done == 1 else host.room_for(need, end - done)
            host.take(need, count)
            worker_id = host.worker.worker_id
            for place in range(total - done - 1, total - done - 1 - count, -1):
                assignments.append((task_id(job_id, -waiting[place]), worker_id))
            done += count
        else:
            turn.is_done = done == total
        return done

    def _place(
        self, job: Job, done: int, shares: Iterable[tuple[WorkerId, int]], into: list[tuple[TaskId, WorkerId]]
    ) -> int:
        """Assign the job's next tasks, a number to each worker, and return how many of the job's tasks are placed."""
        job_id = job.spec.job_id
        waiting = self._view.pending[job_id]
        total = len(waiting)
        for worker_id, count in shares:
            for place in range(total - done - 1, total - done - 1 - count, -1):
                into.append((task_id(job_id, -waiting[place]), worker_id))
            done += count
        return done

    def _place_prefilled(self, job: Job, demand: Demand, done: int, end: int) -> int:
        """Prefill tasks, because no capacity is free, and return how many of the job's tasks are placed."""
        left = len(self._view.pending[job.spec.job_id]) - done
        shares = self._prefill.share_out(job, demand, self._pools.of(demand), end - done, left)
        return self._place(job, done, ((host.worker.worker_id, count) for host, count in shares), self.plan.prefilled)

    def _is_settled(self, job: Job, demand: Demand, turn: JobTurn) -> bool:
        """Return whether this round has already found no room for an equal task. The job then gets the same reason."""
        reason = self._settled.get((demand, turn.band))
        if reason is None or self._reservations.is_due(job, turn.band):
            return False
        self.plan.reasons.put(turn.job_id, reason)
        return True

    def _wait_each(self, job: Job, demand: Demand, turn: JobTurn, left: int) -> None:
        """Handle a task without free capacity: wait for stopping attempts, preempt, or reserve."""
        self._prefill.close(demand, self._pools.of(demand).hosts_set)
        expecting: Host | None = None
        while left:
            host = self._find_coming(demand) or self._preempt_for_task(job, demand, turn.band)
            if host is None:
                break
            host.take(demand.resources)
            expecting = expecting or host
            left -= 1
        if expecting is not None:
            self._running.note_start(job)
            self.plan.reasons.put(turn.job_id, f"waits for attempts on {expecting.worker.worker_id} to end")
            return
        if self._reservations.is_due(job, turn.band):
            host = self._reservations.keep_host(job.spec.job_id, turn.band, demand, self._pools.of(demand).hosts)
            if host is not None:
                text = explain_task(demand, self.hosts, self._view, job.spec.job_id)
                self.plan.reasons.put(turn.job_id, f"{text}; worker {host.worker.worker_id} is kept free for it")
                return
        self._put_reason((demand,), turn.job_id, lambda: explain_task(demand, self.hosts, self._view))
        if left:
            self._settled[(demand, turn.band)] = self._reasons[(demand,)]

    def _find_coming(self, demand: Demand) -> Host | None:
        seen = self._coming_seen.get(demand, 0)
        if seen >= len(self._coming):
            return None
        eligible = self._pools.of(demand).hosts_set
        while seen < len(self._coming):
            host = self._coming[seen]
            if host in eligible and host.held_by is None and host.will_fit(demand.resources):
                break
            seen += 1
        self._coming_seen[demand] = seen
        return self._coming[seen] if seen < len(self._coming) else None

    def _preempt_for_task(self, job: Job, demand: Demand, band: PriorityBand) -> Host | None:
        victims = self._victims_for(band)
        if victims is None or (room := victims.for_task(demand, band, self._pools.of(demand))) is None:
            return None
        self._preempt(victims, room, job)
        return room.hosts[0]

    def _victims_for(self, band: PriorityBand) -> Victims | None:
        if band is PriorityBand.BATCH:
            return None
        if self._victims is None:
            self._victims = Victims(self._view, self.hosts)
        return self._victims if self._victims.may_help(band) else None

    def _preempt(self, victims: Victims, room: Room, job: Job) -> None:
        victims.take(room)
        why = f"preempted for {job.spec.job_id} ({job.spec.band.word})"
        for unit in room.victims:
            # A gang goes whole by the preemption of any of its members.
            single = unit.bookings[:1]
            self.plan.preemptions.extend(Preempted(booking.attempt_id, why) for booking in single)
        self._moved.update(booking.job_id for unit in room.victims for booking in unit.bookings)
        names = {booking.worker_id for unit in room.victims for booking in unit.bookings}
        self._coming.extend(host for host in self.hosts if host.worker.worker_id in names)

    # ---- gangs ----

    def _place_gang(self, job: Job, turn: JobTurn) -> None:
        job_id, spec = turn.job_id, job.spec
        demand = self._view.demands[job_id]
        waiting = self._view.pending[job_id]
        within = self._group_of_running(job) if len(waiting) < spec.replicas else None
        size = len(waiting) if within is not None else min(group_size(spec), len(waiting))
        count = max(len(waiting) // size, 1)
        held = self._held.place_gang(job, size, count, within)
        if held is not None:
            self._assign_gang(job, turn, demand, held)
            return
        groups = self._groups.get((demand, spec.coscheduling_group_by))
        if groups is None:
            groups = Groups(demand, spec.coscheduling_group_by, self._pools.of(demand))
            self._groups[(demand, spec.coscheduling_group_by)] = groups
        chosen = groups.choose(size, count, within)
        if chosen is not None:
            self._assign_gang(job, turn, demand, groups.take(job_id, chosen, size))
            return
        self._prefill.close(demand, self._pools.of(demand).hosts_set)
        key = (demand, spec.coscheduling_group_by, size, count, within)
        hosts = None if within is not None else self._make_room_for_gang(job, turn.band, groups, size, count)
        if hosts:
            self._running.note_start(job)
            self.plan.reasons.put(job_id, f"waits for attempts on {hosts[0].worker.worker_id} and other hosts to end")
            return
        if within is None and self._reservations.is_due(job, turn.band):
            text = explain_gang(spec, groups, size, count, self._view)  # before: what is kept has room for nothing
            kept = self._reservations.keep_groups(job_id, turn.band, groups, size, count)
            if kept:
                self.plan.reasons.put(job_id, f"{text}; {kept} is kept free for it")
                return
        self._put_reason(key, job_id, lambda: explain_gang(spec, groups, size, count, self._view))

    def _assign_gang(self, job: Job, turn: JobTurn, demand: Demand, placed: list[WorkerId]) -> None:
        for negated, worker_id in zip(reversed(self._view.pending[turn.job_id]), placed, strict=True):
            self.plan.assignments.append((task_id(turn.job_id, -negated), worker_id))
        turn.placed_weight = demand.weight * len(placed)
        self._running.note_start(job)

    def _make_room_for_gang(self, job: Job, band: PriorityBand, groups: Groups, size: int, count: int) -> list[Host]:
        """Reserve hosts for the gang that will be free, after preemptions if needed; empty if impossible."""
        victims = self._victims_for(band)
        key = (groups, size, count, band)
        if victims is None and not self._coming:
            return []
        if key in self._hopeless or self._gang_searches >= _MAX_GANG_SEARCHES:
            return []
        self._gang_searches += 1
        job_id = job.spec.job_id
        victims = victims or Victims(self._view, self.hosts)
        rooms = victims.for_gang(job_id, groups.need, band, groups.members.values(), size, count)
        if rooms is None:
            self._hopeless.add(key)
            return []
        for room in rooms:
            if room.victims:
                self._preempt(victims, room, job)
            for host in room.hosts:
                host.take(groups.need)
                host.gangs = host.gangs | {job_id}
                host.held_by = job_id
        return [host for room in rooms for host in room.hosts]

    def _group_of_running(self, job: Job) -> str | None:
        for task in self._view.tasks[job.spec.job_id]:
            if task.state.is_live and task.worker_id is not None:
                return self._view.workers[task.worker_id].attributes.get(job.spec.coscheduling_group_by)
        return None

    def _put_reason(self, key: tuple[object, ...], job_id: JobId, make: Callable[[], str]) -> None:
        reason = self._reasons.get(key)
        if reason is None:
            reason = self._reasons[key] = Reason(make)
        self.plan.reasons.put(job_id, reason)
