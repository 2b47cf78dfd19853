"""Decides from the controller's view which slices to start for pending jobs, and which to release. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from iris.core.state.view import ClusterView
from iris.domain.constraints import evaluate, soft_score
from iris.domain.ids import JobId
from iris.domain.job_spec import JobSpec, is_gang
from iris.domain.resources import Resources
from iris.domain.scale_groups import ScaleGroup
from iris.local.fleet.slices import SLICE_ATTRIBUTE, FakeHost, Slice
from iris.sched.gang import group_size
from iris.sched.running_limit import RunningLimit

_MOST_JOBS: Final = 200
"""Maximum number of pending jobs to consider at a time."""
_MOST_TASKS: Final = 1000


@dataclass(frozen=True, slots=True)
class SliceChoice:
    """The result of `slices_wanted`.

    Args:
        start: Slices to start, in the order of the jobs that need them.
        refused: The reason for each job that needs more slices than may be started.
    """

    start: tuple[Slice, ...] = ()
    refused: Mapping[JobId, str] = field(default_factory=dict)


def slices_wanted(
    view: ClusterView, groups: Sequence[ScaleGroup], present: Sequence[Slice], leaving: Sequence[Slice], max_hosts: int
) -> SliceChoice:
    """Choose slices for jobs that do not fit on connected workers, in the scheduler's order.

    The first jobs get the starting slices. A gang gets all its slices or none.

    Args:
        view: The view after a scheduling round; never modified.
        groups: The groups that may be started.
        present: Running or starting slices.
        leaving: Slices that are ending, whose names are still in use.
        max_hosts: Maximum number of hosts in all slices.
    """
    search = _Search(view, groups, present, leaving, max_hosts)
    limit = RunningLimit(view)
    for _, _, job_id in view.queue[:_MOST_JOBS]:
        if job_id not in view.held_counts and not limit.why_held(view.jobs[job_id]):
            search.serve(job_id)
    return SliceChoice(tuple(search.start), search.refused)


def is_unused(view: ClusterView, item: Slice) -> bool:
    """Return whether all hosts of a slice are connected and have no attempts."""
    return all(
        host.worker_id in view.workers
        and view.workers[host.worker_id].connected
        and not any(view.attempts_on(host.worker_id))
        for host in item.hosts
    )


class _Search:
    """One pass over the pending jobs; `_free` is the remaining capacity of starting hosts."""

    def __init__(
        self,
        view: ClusterView,
        groups: Sequence[ScaleGroup],
        present: Sequence[Slice],
        leaving: Sequence[Slice],
        max_hosts: int,
    ) -> None:
        self.start: list[Slice] = []
        self.refused: dict[JobId, str] = {}
        self._view = view
        self._groups = groups
        self._max_hosts = max_hosts
        known = {worker.attributes.get(SLICE_ATTRIBUTE, "") for worker in view.workers.values()}
        self._taken = known | {item.name for item in (*present, *leaving)}
        self._there = [*present, *leaving]
        self._free: dict[str, Resources] = {}
        self._starting: list[Slice] = []
        self._idle: list[Slice] = []
        for item in present:
            if any(host.worker_id not in view.workers for host in item.hosts) or not all(
                view.workers[host.worker_id].connected for host in item.hosts
            ):
                self._expect(item)
            elif is_unused(view, item):
                self._idle.append(item)

    def serve(self, job_id: JobId) -> None:
        spec = self._view.jobs[job_id].spec
        if is_gang(spec):
            self._serve_gang(job_id, spec)
            return
        waiting = self._view.pending[job_id]
        for _ in waiting[: min(_MOST_TASKS, self._view.jobs[job_id].may_start(len(waiting)))]:
            if not self._serve_task(job_id, spec):
                return

    def _serve_task(self, job_id: JobId, spec: JobSpec) -> bool:
        """Find a place for one more task; return False if there is no place for this and further tasks."""
        if any(spec.resources.fits(item.group.host) and _meets(item, spec) for item in self._idle):
            return False  # it waits for something else than room
        for item in self._starting:
            for host in item.hosts:
                if self._holds(host, spec):
                    self._take(host, spec)
                    return True
        for group in self._matching(spec):
            found = self._add(group)
            if found is not None:
                self._take(found.hosts[0], spec)
                return True
        self._refuse(job_id, spec)
        return False

    def _serve_gang(self, job_id: JobId, spec: JobSpec) -> None:
        size = group_size(spec)
        key = spec.coscheduling_group_by
        missing = spec.replicas // size
        chosen = []
        for item in (*self._idle, *self._starting):
            if missing and self._room(item, key, spec) >= size:
                chosen.append(item)
                missing -= 1
        mark = len(self.start)
        for group in self._matching(spec):
            attributes = dict(Slice(group, 0).hosts[0].attributes)
            while missing and key in attributes and group.tasks_per_slice(spec.resources) >= size:
                found = self._add(group)
                if found is None:
                    break
                chosen.append(found)
                missing -= 1
        if missing:
            self._forget(mark)
            self._refuse(job_id, spec)
            return
        for item in chosen:
            if item in self._idle:
                self._idle.remove(item)
            for host in item.hosts:
                self._free[host.name] = Resources()  # a gang shares its hosts with no other

    def _room(self, item: Slice, key: str, spec: JobSpec) -> int:
        """Return how many tasks of a gang fit on an unused slice."""
        if not all(key in dict(host.attributes) for host in item.hosts):
            return 0
        fitting = [host for host in item.hosts if evaluate(spec.constraints, dict(host.attributes))]
        whole = [host for host in fitting if self._free.get(host.name, host.capacity) == host.capacity]
        return item.group.tasks_per_slice(spec.resources) if len(whole) == len(item.hosts) else 0

    def _matching(self, spec: JobSpec) -> list[ScaleGroup]:
        """Return the groups whose hosts can run a task: preferred groups first, then the simplest."""

        def rank(group: ScaleGroup) -> tuple[int, bool, int]:
            plain = spec.resources.accelerator is None and group.host.accelerator is not None
            return -soft_score(spec.constraints, group.host_attributes), plain, group.hosts_per_slice

        fitting = [
            group
            for group in self._groups
            if spec.resources.fits(group.host) and evaluate(spec.constraints, dict(Slice(group, 0).hosts[0].attributes))
        ]
        return sorted(fitting, key=rank)

    def _add(self, group: ScaleGroup) -> Slice | None:
        """Add a slice of a group; return None if that is not allowed."""
        of_group = sum(item.group.name == group.name for item in self._there)
        hosts = sum(item.group.hosts_per_slice for item in self._there)
        if of_group >= group.max_slices or hosts + group.hosts_per_slice > self._max_hosts:
            return None
        item = next(
            item for index in range(len(self._taken) + 1) if (item := Slice(group, index)).name not in self._taken
        )
        self.start.append(item)
        self._taken.add(item.name)
        self._there.append(item)
        self._expect(item)
        return item

    def _forget(self, mark: int) -> None:
        """Undo the additions for a gang that does not get all its slices."""
        for item in self.start[mark:]:
            self._taken.discard(item.name)
            self._there.remove(item)
            self._starting.remove(item)
        del self.start[mark:]

    def _expect(self, item: Slice) -> None:
        self._starting.append(item)
        self._free |= {host.name: host.capacity for host in item.hosts}

    def _holds(self, host: FakeHost, spec: JobSpec) -> bool:
        return spec.resources.fits(self._free[host.name]) and evaluate(spec.constraints, dict(host.attributes))

    def _take(self, host: FakeHost, spec: JobSpec) -> None:
        self._free[host.name] = self._free[host.name].sub(spec.resources)

    def _refuse(self, job_id: JobId, spec: JobSpec) -> None:
        groups = self._matching(spec)
        of = {group.name: sum(item.group.name == group.name for item in self._there) for group in groups}
        if any(of[group.name] < group.max_slices for group in groups):
            hosts = sum(item.group.hosts_per_slice for item in self._there)
            self.refused[job_id] = f"{hosts} of at most {self._max_hosts} hosts run here (--max-hosts)"


def _meets(item: Slice, spec: JobSpec) -> bool:
    return any(evaluate(spec.constraints, dict(host.attributes)) for host in item.hosts)
