"""Invariants that hold after every event, recomputed only from the records. For tests and simulations."""

from collections import Counter
from collections.abc import Iterator

from iris.core.state.kinds import JobKind, kind_of
from iris.core.state.load import WorkerLoad
from iris.core.state.view import ClusterView
from iris.domain.entities import Job, Task
from iris.domain.errors import InvariantViolation
from iris.domain.ids import JobId, WorkerId, parent_of, parse_attempt_id, tree_of, user_of
from iris.domain.job_spec import awaited, is_gang, waits_for_host
from iris.domain.resources import Resources
from iris.domain.states import JobState, TaskState


def check(view: ClusterView) -> None:
    """Check the invariants between events.

    Raises:
        InvariantViolation: Some invariants are violated. The error lists all of them.
    """
    violations = [
        *_jobs(view),
        *_queue(view),
        *_family(view),
        *_waits(view),
        *_bookings(view),
        *_lost(view),
        *_endpoints(view),
        *(line for worker_id in view.workers for line in _worker(view, worker_id)),
    ]
    if violations:
        raise InvariantViolation(tuple(violations))


def _jobs(view: ClusterView) -> Iterator[str]:
    for job_id, job in view.jobs.items():
        tasks = view.tasks[job_id]
        if len(tasks) != job.spec.replicas:
            yield f"{job_id}: {len(tasks)} tasks, {job.spec.replicas} replicas"
        counted = Counter(int(task.state) for task in tasks)
        kept = {number: count for number, count in enumerate(job.task_counts) if count}
        if dict(counted) != kept:
            yield f"{job_id}: counts {kept}, tasks {dict(counted)}"
        yield from _states(job, tasks)
        for index, task in enumerate(tasks):
            if task.index != index or task.job_id != job_id:
                yield f"{task.task_id}: at place {index} of {job_id}"
            if task.state.is_live and task.worker_id not in view.workers:
                yield f"{task.task_id}: {task.state.word} on unknown worker {task.worker_id}"
            if task.finished_at_ms and task.finished_at_ms < task.started_at_ms:
                yield f"{task.task_id}: finished before it started"


def _states(job: Job, tasks: list[Task]) -> Iterator[str]:
    if job.state.is_terminal:
        living = [task.task_id for task in tasks if not task.state.is_terminal]
        if living:
            yield f"{job.job_id}: {job.state.word} with tasks that have not ended: {living}"
        failed = sum(task.state is TaskState.FAILED for task in tasks)
        succeeded = sum(task.state is TaskState.SUCCEEDED for task in tasks)
        good = succeeded + failed == len(tasks) and failed <= job.spec.max_task_failures
        if (job.state is JobState.SUCCEEDED) != good:
            yield f"{job.job_id}: {job.state.word}, tasks {job.counts}"
        if job.state is not JobState.SUCCEEDED and not job.error:
            yield f"{job.job_id}: {job.state.word} without a reason"
        if not job.finished_at_ms or job.finished_at_ms < job.started_at_ms:
            yield f"{job.job_id}: ended at {job.finished_at_ms}, started at {job.started_at_ms}"
    elif _lost_for_good(job, tasks):
        yield f"{job.job_id}: {job.state.word} with a task that failed for good"
    elif job.state is JobState.RUNNING and not job.started_at_ms:
        yield f"{job.job_id}: running without a start"
    elif job.state is JobState.PENDING and job.count(TaskState.PENDING) != job.spec.replicas:
        yield f"{job.job_id}: pending with tasks {job.counts}"


def _lost_for_good(job: Job, tasks: list[Task]) -> bool:
    ended = [task.state for task in tasks if task.state.is_terminal and task.state is not TaskState.SUCCEEDED]
    tolerated = 0 if is_gang(job.spec) else job.spec.max_task_failures
    return len(ended) > tolerated or any(state is not TaskState.FAILED for state in ended)


def _queue(view: ClusterView) -> Iterator[str]:
    waiting = {}
    for job_id, tasks in view.tasks.items():
        pending = [task for task in reversed(tasks) if task.state is TaskState.PENDING]
        indexes = [-task.index for task in pending if task.task_id not in view.delays]
        if any(view.delays.get(task.task_id, task.retry_at_ms) != task.retry_at_ms for task in pending):
            yield f"{job_id}: retries wait until {view.delays}, tasks say {pending}"
        if indexes and not view.jobs[job_id].is_barred:
            waiting[job_id] = indexes
    if waiting != view.pending:
        yield f"pending index {view.pending}, tasks {waiting}"
    expected = sorted((int(view.jobs[name].spec.band), view.jobs[name].sequence, name) for name in waiting)
    gangs = {name for name in waiting if is_gang(view.jobs[name].spec)}
    if gangs != view.waiting_gangs.keys():
        yield f"waiting gangs {list(view.waiting_gangs)}, should be {gangs}"
    demands = Counter(view.demands[job_id] for _, _, job_id in expected)
    if demands != view.waiting_demands:
        yield f"waiting demands {view.waiting_demands}, queue {expected}"
    kinds: dict[str, dict[JobKind, list[tuple[int, JobId]]]] = {}
    for _, sequence, job_id in expected:
        kind = kind_of(view.jobs[job_id], view.demands[job_id], len(waiting[job_id]))
        kinds.setdefault(user_of(job_id), {}).setdefault(kind, []).append((sequence, job_id))
    if kinds != view.waiting_kinds.by_user:
        yield f"waiting kinds {view.waiting_kinds.by_user}, should be {kinds}"
    if expected != view.queue:
        yield f"queue {view.queue}, tasks {expected}"


def _family(view: ClusterView) -> Iterator[str]:
    live = {job_id for job_id, job in view.jobs.items() if not job.state.is_terminal}
    if live != set(view.live_jobs):
        yield f"live jobs {sorted(view.live_jobs)}, should be {sorted(live)}"
    children: dict[JobId, set[JobId]] = {}
    for job_id in live:
        parent_id = parent_of(job_id)
        if parent_id is None:
            continue
        children.setdefault(parent_id, set()).add(job_id)
        parent = view.jobs.get(parent_id)
        # A stop may leave the jobs below a job alone.
        if parent_id not in live and (parent is None or parent.state is not JobState.KILLED):
            yield f"{job_id}: lives although its parent {parent_id} has ended"
    if children != {name: set(below) for name, below in view.children.items()}:
        yield f"children index {view.children}, should be {children}"
    for user in {user_of(job_id) for job_id in view.jobs}:
        roots = Counter(view.jobs[name].state for name in live if parent_of(name) is None and user_of(name) == user)
        if view.families.roots_of(user) != roots:
            yield f"{user}: counted root jobs are {view.families.roots_of(user)}, should be {roots}"


def _waits(view: ClusterView) -> Iterator[str]:
    waiters: dict[JobId, set[JobId]] = {}
    for job_id, job in view.jobs.items():
        for name in awaited(job.waits):
            waiters.setdefault(name, set()).add(job_id)
            if name not in view.live_jobs:
                yield f"{job_id}: waits for {name}, which does not live"
        if job.waits and any(task.attempt >= job.first_attempt for task in view.tasks[job_id]):
            yield f"{job_id}: has begun, and waits for {job.waits}"
    if waiters != {name: set(found) for name, found in view.families.waiters.items()}:
        yield f"waiters index {view.families.waiters}, should be {waiters}"


def _bookings(view: ClusterView) -> Iterator[str]:
    live = {task.attempt_id: task for tasks in view.tasks.values() for task in tasks if task.state.is_live}
    booked = {name: booking for name, booking in view.bookings.items() if not booking.stopping}
    for name in live.keys() ^ booked.keys():
        yield f"{name}: " + ("lives and holds nothing" if name in live else "holds resources and does not live")
    for name in live.keys() & booked.keys():
        if booked[name].worker_id != live[name].worker_id:
            yield f"{name}: booked on {booked[name].worker_id}, runs on {live[name].worker_id}"
    tasks_alive = Counter(name.rpartition(":")[0] for name, booking in view.bookings.items() if not booking.found)
    for task, count in tasks_alive.items():
        if count > 1:
            yield f"{task}: {count} attempts may run at once"
    stopping = Counter(booking.job_id for booking in view.bookings.values() if booking.stopping)
    if dict(stopping) != view.stopping_counts:
        yield f"stopping counts {view.stopping_counts}, should be {dict(stopping)}"
    held = Counter(booking.job_id for booking in view.bookings.values() if booking.stopping and not booking.found)
    if dict(held) != view.held_counts:
        yield f"held counts {view.held_counts}, should be {dict(held)}"


def _lost(view: ClusterView) -> Iterator[str]:
    for name, lost in view.lost.items():
        job = view.jobs[lost.job_id]
        # An earlier job of the name may have asked for less.
        if waits_for_host(job.spec) and parse_attempt_id(name)[1] >= job.first_attempt:
            yield f"{name}: given up, but it waits for its host {lost.worker_id}"
        if name in view.bookings and not view.bookings[name].found:
            yield f"{name}: given up, and holds resources on {lost.worker_id}"
        if lost.worker_id not in view.workers:
            yield f"{name}: given up on the unknown worker {lost.worker_id}"


def _endpoints(view: ClusterView) -> Iterator[str]:
    live = {task.attempt_id for tasks in view.tasks.values() for task in tasks if task.state.is_live}
    for endpoint in view.endpoints.all():
        if endpoint.attempt_id not in live:
            yield f"endpoint {endpoint.name}: its attempt {endpoint.attempt_id} does not live"
        if endpoint.endpoint_id not in view.endpoints.of_attempt(endpoint.attempt_id):
            yield f"endpoint {endpoint.name}: not indexed by its attempt {endpoint.attempt_id}"
        if endpoint not in view.endpoints.named(endpoint.name):
            yield f"endpoint {endpoint.name}: not indexed by its name"


def _worker(view: ClusterView, worker_id: WorkerId) -> Iterator[str]:
    load, capacity = view.loads[worker_id], view.workers[worker_id].capacity
    fresh, granted = WorkerLoad(), WorkerLoad()
    for booking in view.bookings.values():
        if booking.worker_id != worker_id:
            continue
        fresh.add(booking)
        # A worker may report a prefilled one before it reports the end in whose place that began.
        if not booking.found and (booking.prefilled or not booking.was_prefilled):
            granted.add(booking)
    if load.committed(capacity) != fresh.committed(capacity) or load.bookings != fresh.bookings:
        yield f"{worker_id}: committed {load.committed(capacity)}, bookings add up to {fresh.committed(capacity)}"
    gangs = {booking.job_id for booking in granted.bookings.values() if booking.is_gang and not booking.reserves}
    if len(gangs) > 1:
        yield f"{worker_id}: shared by the gangs {sorted(gangs)}"
    if load.prefilled != fresh.prefilled or load.running != fresh.running or load.lenders != fresh.lenders:
        yield f"{worker_id}: prefilled {list(load.prefilled)}, running {load.running}; bookings say {fresh.running}"
    if bool(load.prefilled) != (worker_id in view.prefilled_on):
        yield f"{worker_id}: {len(load.prefilled)} prefilled; indexed are {list(view.prefilled_on)}"
    if load.gang_attempts != fresh.gang_attempts or load.stopping != fresh.stopping:
        yield f"{worker_id}: gangs {load.gang_attempts}, {load.stopping} stopping; bookings say {fresh.gang_attempts}"
    indexed = {tree for tree, workers in view.bookings.reserving.items() if worker_id in workers}
    reserving = {tree_of(booking.job_id) for booking in fresh.bookings.values() if booking.reserves}
    if reserving != indexed:
        yield f"{worker_id}: trees {sorted(indexed)} are indexed as reserving, bookings say {sorted(reserving)}"
    lent = sum(booking.cpu_millis for booking in granted.bookings.values() if booking.has_lent)
    held = granted.committed(capacity)
    # Lent cpu that is taken back may be in other hands by then, and others may fill a disk; nothing else may go over.
    if not Resources(held.cpu_millis - lent, held.memory_bytes, 0, held.device).fits(capacity):
        yield f"{worker_id}: {held} committed of {capacity}"
