"""The scale groups and rules of the autoscaler, and its view of the controller."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, takewhile
from typing import Protocol

from iris.autoscale.closures import Closure
from iris.autoscale.lives import Lives
from iris.autoscale.missing import Missing
from iris.autoscale.model import SliceRecord, worker_id_of
from iris.autoscale.plan import Plan, SliceUse, plan
from iris.autoscale.planning.demand import Demand, demands
from iris.autoscale.rules import AutoscaleRules
from iris.core.state.view import ClusterView
from iris.domain.events import Recorded
from iris.domain.ids import JobId, WorkerId
from iris.domain.scale_groups import ScaleGroup


class Cluster(Protocol):
    """The controller, as the autoscaler uses it."""

    @property
    def view(self) -> ClusterView: ...

    @property
    def kept(self) -> Mapping[WorkerId, JobId]:
        """The workers that the scheduler keeps for a waiting job."""
        ...

    def is_present(self, worker_id: WorkerId) -> bool:
        """Return whether a worker is connected, or may still reconnect."""
        ...

    def record(self, what: Recorded) -> None:
        """Add a line to the history."""
        ...

    async def confirm(self) -> None:
        """Wait until what is stored is as durable as the cluster promises."""
        ...

    async def drain(self, worker_id: WorkerId, reason: str) -> None:
        """Cordon a worker and move its attempts to others."""
        ...

    def tell_missing(self, missing: Sequence[Missing]) -> None:
        """Tell people that capacity is missing for long."""
        ...

    async def remove(self, worker_id: WorkerId, reason: str) -> None:
        """Remove a disconnected worker. Raise MarinError if it is connected again."""
        ...


Planner = Callable[
    [
        int,
        Sequence[Demand],
        Sequence[ScaleGroup],
        Mapping[str, SliceRecord],
        Mapping[str, SliceUse],
        Mapping[str, Closure],
        Lives,
        AutoscaleRules,
        Sequence[int],
    ],
    Plan,
]


def _no_token(name: str, group: ScaleGroup) -> str:
    del name, group
    return ""


@dataclass(frozen=True)
class Fleet:
    """The scale groups, and the rules by which their slices are created.

    Args:
        groups: The scale groups of the cluster file.
        rules: Settings.
        prefix: The beginning of the names of slices.
        seed: Chooses the jitter of pauses.
        worker_id: Returns the worker id of a slice's host, from the slice's name and the host's number.
        join_token: Returns the token with which the hosts of a slice join; empty where they need none.
        find_demands: Returns what waits for capacity.
        decide: Returns the slices to create and to release.
    """

    groups: tuple[ScaleGroup, ...]
    rules: AutoscaleRules
    prefix: str = ""
    seed: int = 0
    worker_id: Callable[[str, int], WorkerId] = worker_id_of
    join_token: Callable[[str, ScaleGroup], str] = _no_token
    find_demands: Callable[[ClusterView, int], Sequence[Demand]] = demands
    decide: Planner = plan

    @cached_property
    def by_name(self) -> Mapping[str, ScaleGroup]:
        """The groups, by name."""
        return {group.name: group for group in self.groups}

    def group(self, name: str) -> ScaleGroup | None:
        """Return a group; None if the cluster file has it no more."""
        return self.by_name.get(name)

    def workers_of(self, record: SliceRecord, view: ClusterView) -> Sequence[WorkerId]:
        """Return the worker ids of a slice's hosts, in order; of a group that is gone, of those that the view has."""
        group = self.group(record.group)
        if group is not None:
            return [self.worker_id(record.name, number) for number in range(group.hosts_per_slice)]
        numbered = (self.worker_id(record.name, number) for number in count())
        return list(takewhile(lambda worker_id: worker_id in view.workers, numbered))
