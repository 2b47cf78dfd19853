"""One scheduling round: a pure function of the view."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from iris.core.state.booking import Demand
from iris.core.state.view import ClusterView
from iris.domain.entities import Job
from iris.domain.events import Assigned, Begun, Event, Preempted
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId, task_id, user_of
from iris.domain.job_spec import is_gang
from iris.domain.states import PriorityBand
from iris.sched.explain import explain_gang, explain_task
from iris.sched.fit import Host
from iris.sched.fleet import Fleet
from iris.sched.gang import Groups, gang_shape
from iris.sched.held import HeldRoom
from iris.sched.order import JobTurn, Rest, over_budget, turns
from iris.sched.preempt import Room, Victims
from iris.sched.prefill import PrefillShares, with_room
from iris.sched.reasons import MOVED_TEXT, Reason, Reasons, full_text, held_text
from iris.sched.reserve import Reservations
from iris.sched.running_limit import RunningLimit

_MAX_GANG_SEARCHES: Final = 16
_PAUSE_US_PER_KIND: Final = 10
"""Pause per kind of pending jobs: about twice the time that a round spends on a kind."""

# The request of one job: its demand, and for a gang the attribute, the sizes and the group that it needs.
_Request = Demand | tuple[Demand, str, int, int, str | None]


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


class Planner:
    """Plans the rounds of a view. A round examines only what has changed since the last one."""

    def __init__(self) -> None:
        self._fleet: Fleet | None = None

    def plan_round(self, view: ClusterView, now_ms: int) -> RoundPlan:
        """Return the same as `plan_round`, whose arguments these are."""
        if self._fleet is None or self._fleet.view is not view:
            self._fleet = Fleet(view)
        self._fleet.renew()
        return _run(self._fleet, now_ms, every_job=False)


def plan_round(view: ClusterView, now_ms: int, every_job: bool = False) -> RoundPlan:
    """Choose workers for as many pending tasks as fit, in the order of `iris.sched.order`.

    A job that does not fit does not delay later jobs, unless it has waited long: then capacity is reserved for the job.
    Work of a more urgent band preempts less urgent work. CPUs that waiting attempts lend count as free.

    Args:
        view: Never modified.
        now_ms: Unix ms.
        every_job: Examine every job, even if equal ones did not fit. The decisions are the same.
    """
    return _run(Fleet(view), now_ms, every_job)


def _run(fleet: Fleet, now_ms: int, every_job: bool) -> RoundPlan:
    round_ = _Round(fleet, now_ms, every_job)
    for turn in turns(fleet.view, now_ms):
        round_.place(turn)
    round_.end()
    return round_.plan


def pause_ms(view: ClusterView) -> int:
    """Return the pause between rounds in ms, so that rounds do not delay events: 0 unless a hundred kinds of jobs are
    pending.
    """
    return len(view.waiting_kinds) * _PAUSE_US_PER_KIND // 1000


class _Round:
    """Free capacity, and requests that did not fit, during one round."""

    def __init__(self, fleet: Fleet, now_ms: int, every_job: bool) -> None:
        view = fleet.view
        self.plan = RoundPlan()
        self._view = view
        self._now_ms = now_ms
        self._fleet = fleet
        self._pools = fleet.pools
        self._every_job = every_job
        self._reservations = Reservations(now_ms)
        self._prefill = PrefillShares(view)
        self._held = HeldRoom(view, fleet.hosts)
        self._running = RunningLimit(view)
        self._over = over_budget(view)
        self._victims: Victims | None = None
        self._placed: dict[JobId, int] = {}
        self._settled: dict[tuple[_Request, PriorityBand], Reason] = {}
        self._unreservable: set[_Request] = set()
        self._limited: dict[str, str] = {}  # why further jobs of a user are held back
        self._moved: set[JobId] = set()  # jobs preempted in this round; none of their tasks may start in it
        self._gang_searches = 0
        # Hosts of which something is on its way out; each demand looks at them in this order, and back never.
        self._coming = sorted(fleet.leaving, key=lambda host: host.order)
        self._coming_seen: dict[Demand, int] = {}

    def place(self, turn: JobTurn) -> None:
        """Place as many of the job's pending tasks as fit, and record why the others wait."""
        job = self._view.jobs[turn.job_id]
        held = self._view.held_counts.get(turn.job_id)
        if held:
            self.plan.reasons.put(turn.job_id, held_text(held))
        elif why := self._running.why_held(job):
            self.plan.reasons.put(turn.job_id, why)
            self._limited[user_of(turn.job_id)] = why
            turn.rest = Rest.ALL if self._every_job else Rest.NONE
        elif turn.job_id in self._moved:
            self.plan.reasons.put(turn.job_id, MOVED_TEXT)
        elif is_gang(job.spec):
            self._place_gang(job, turn)
        else:
            self._place_each(job, turn)

    def end(self) -> None:
        """Start prefilled attempts on workers with remaining capacity, and give all other jobs their reasons."""
        view = self._view
        self.plan.begun.extend(with_room(self._fleet.in_order(view.prefilled_on)))
        self.plan.kept.update(self._fleet.kept())
        placed = {job_id for job_id, count in self._placed.items() if count == len(view.pending[job_id])}
        self.plan.reasons.put_others(view.pending, lambda name: None if name in placed else self._why_waits(name))

    def _why_waits(self, job_id: JobId) -> Reason | str | None:
        """Return the reason of a job that had no turn."""
        job, user = self._view.jobs[job_id], user_of(job_id)
        band = PriorityBand.BATCH if user in self._over else job.spec.band
        reason: Reason | str | None = self._settled.get((self._request(job), band))
        if reason is not None and job_id in self._moved:
            reason = MOVED_TEXT
        elif reason is not None and not is_gang(job.spec) and not job.may_start(len(self._view.pending[job_id])):
            reason = full_text(job.spec.max_running)
        elif reason is None and self._running.counts(job):
            reason = self._limited.get(user)
        held = self._view.held_counts.get(job_id)
        return held_text(held) if held and reason is not None else reason

    def _request(self, job: Job) -> _Request:
        demand = self._view.demands[job.job_id]
        return (demand, job.spec.coscheduling_group_by, *gang_shape(job, self._view)) if is_gang(job.spec) else demand

    # ---- tasks by themselves ----

    def _place_each(self, job: Job, turn: JobTurn) -> None:
        job_id = turn.job_id
        demand = self._view.demands[job_id]
        total = len(self._view.pending[job_id])
        begin = done = self._placed.get(job_id, 0)
        most = job.may_start(total)
        if begin >= most:
            self.plan.reasons.put(job_id, full_text(job.spec.max_running))
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

    def _is_settled(self, job: Job, request: _Request, turn: JobTurn) -> bool:
        """Return whether this round has already found no room for an equal task. The job then gets the same reason."""
        reason = self._settled.get((request, turn.band))
        if reason is None or (request not in self._unreservable and self._reservations.is_due(job, turn.band)):
            return False
        self.plan.reasons.put(turn.job_id, reason)
        self._skip_equal(turn, request)
        return True

    def _settle(self, request: _Request, turn: JobTurn, make: Callable[[], str]) -> None:
        """Record that there is no room for a request in this round."""
        reason = self._settled[request, turn.band] = Reason(make)
        self.plan.reasons.put(turn.job_id, reason)
        self._skip_equal(turn, request)

    def _skip_equal(self, turn: JobTurn, request: _Request) -> None:
        if self._every_job or self._held.is_any:
            return
        ends = request in self._unreservable or self._reservations.is_full(turn.band)
        turn.rest = Rest.NONE if ends else Rest.RESERVING

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
        if self._reservations.is_due(job, turn.band) and (host := self._fleet.nearest_to(demand)) is not None:
            self._reservations.keep_host(job.job_id, turn.band, host)
            self.plan.reasons.put(job.job_id, Reason(lambda: self._explain_kept(job.job_id, demand, host)))
            return
        if self._reservations.is_due(job, turn.band):
            self._unreservable.add(demand)
        self._settle(demand, turn, lambda: explain_task(demand, self._fleet.hosts, self._view))

    def _explain_kept(self, job_id: JobId, demand: Demand, host: Host) -> str:
        text = explain_task(demand, self._fleet.hosts, self._view, job_id)
        return f"{text}; worker {host.worker.worker_id} is kept free for it"

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
        if victims is None:
            self._fleet.exhausted.add((demand, band))
        if victims is None or (room := victims.for_task(demand, band, self._pools.of(demand))) is None:
            return None
        self._preempt(victims, room, job)
        return room.hosts[0]

    def _victims_for(self, band: PriorityBand) -> Victims | None:
        if band is PriorityBand.BATCH:
            return None
        if self._victims is None:
            self._victims = Victims(self._view, self._fleet, self._now_ms)
        return self._victims if self._victims.may_help(band) else None

    def _preempt(self, victims: Victims, room: Room, job: Job) -> None:
        victims.take(room)
        why = f"preempted for {job.spec.job_id} ({job.spec.band.word})"
        for unit in room.victims:
            # A gang goes whole by the preemption of any of its members.
            single = unit.bookings[:1]
            self.plan.preemptions.extend(Preempted(booking.attempt_id, why) for booking in single)
        self._moved.update(booking.job_id for unit in room.victims for booking in unit.bookings)
        self._coming += self._fleet.in_order({item.worker_id for unit in room.victims for item in unit.bookings})

    # ---- gangs ----

    def _place_gang(self, job: Job, turn: JobTurn) -> None:
        job_id, spec = turn.job_id, job.spec
        demand = self._view.demands[job_id]
        request = self._request(job)
        size, count, within = gang_shape(job, self._view)
        held = self._held.place_gang(job, size, count, within)
        if held is not None:
            self._assign_gang(job, turn, demand, held)
            return
        if self._is_settled(job, request, turn):
            return
        groups = self._fleet.groups_of(demand, spec.coscheduling_group_by)
        chosen = groups.choose(size, count, within)
        if chosen is not None:
            self._assign_gang(job, turn, demand, groups.take(job_id, chosen, size))
            return
        self._prefill.close(demand, self._pools.of(demand).hosts_set)
        hosts = None if within is not None else self._make_room_for_gang(job, turn.band, groups, size, count)
        if hosts:
            self._running.note_start(job)
            self.plan.reasons.put(job_id, f"waits for attempts on {hosts[0].worker.worker_id} and other hosts to end")
            return
        if self._reservations.is_due(job, turn.band):
            text = explain_gang(spec, groups, size, count, self._view)  # before: what is kept has room for nothing
            kept = self._reservations.keep_groups(job_id, turn.band, groups, size, count) if within is None else ""
            if kept:
                self.plan.reasons.put(job_id, f"{text}; {kept} is kept free for it")
                return
            self._unreservable.add(request)
        self._settle(request, turn, lambda: explain_gang(spec, groups, size, count, self._view))

    def _assign_gang(self, job: Job, turn: JobTurn, demand: Demand, placed: list[WorkerId]) -> None:
        for negated, worker_id in zip(reversed(self._view.pending[turn.job_id]), placed, strict=True):
            self.plan.assignments.append((task_id(turn.job_id, -negated), worker_id))
        turn.placed_weight = demand.weight * len(placed)
        self._placed[turn.job_id] = len(placed)
        self._running.note_start(job)

    def _make_room_for_gang(self, job: Job, band: PriorityBand, groups: Groups, size: int, count: int) -> list[Host]:
        """Reserve hosts for the gang that will be free, after preemptions if needed; empty if impossible."""
        victims = self._victims_for(band)
        key = (groups, size, count, band)
        if victims is None and not self._coming:
            return []
        fleet, job_id = self._fleet, job.job_id
        if key in fleet.hopeless or self._gang_searches >= _MAX_GANG_SEARCHES:
            return []
        self._gang_searches += 1
        victims = victims or Victims(self._view, fleet, self._now_ms)
        rooms = None
        # The job's own attempts that are stopping may be in the way of another job only.
        if key not in fleet.was_hopeless or groups.has_changed or job_id in self._view.stopping_counts:
            rooms = victims.for_gang(job_id, groups.need, band, groups.members.values(), size, count)
        if rooms is None:
            fleet.hopeless.add(key)
            return []
        for room in rooms:
            if room.victims:
                self._preempt(victims, room, job)
            for host in room.hosts:
                host.take(groups.need)
                host.gangs = host.gangs | {job_id}
                host.keep_for(job_id)
        return [host for room in rooms for host in room.hosts]
