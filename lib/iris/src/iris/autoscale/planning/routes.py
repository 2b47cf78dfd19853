"""Finds the groups that can serve a demand, the best first, or says why none can. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from iris.autoscale.planning.demand import Demand
from iris.autoscale.planning.supply import GroupState
from iris.domain.constraints import evaluate, soft_score
from iris.domain.resources import Resources, shortfalls, weight
from iris.domain.scale_groups import tasks_on
from iris.sched.explain import explain_constraints, explain_device

_EXPECTED: Final = 4
"""A group counts as if it had that many more slices, so that the loss of one says little."""


@dataclass(frozen=True, slots=True)
class Route:
    """A group that can serve a demand.

    Args:
        on_host: The number of tasks that fit on an empty host.
    """

    state: GroupState
    on_host: int

    @property
    def on_slice(self) -> int:
        """Return the number of tasks that fit on an empty slice."""
        return self.on_host * self.state.group.hosts_per_slice


def routes(demand: Demand, shapes: Mapping[Resources, Iterable[GroupState]]) -> list[Route]:
    """Return the groups whose slices can serve a demand, in the order in which to create slices.

    Groups that meet more preferences come first, then those in the jobs' region, then those whose slices live long;
    then the order is by priority, price and size, and by how many slices were lost lately. Groups with accelerators
    serve demands without one only if no other group can.

    Args:
        demand: The demand.
        shapes: The groups by the capacity of their hosts.
    """
    fitting = [host for host in shapes if demand.need.fits(host)]
    found: list[Route] = []
    if demand.need.accelerator is None:
        found = _routes_on(demand, shapes, [host for host in fitting if host.accelerator is None])
    found = found or _routes_on(demand, shapes, fitting)
    return sorted(found, key=lambda route: _rank(demand, route)) if len(found) > 1 else found


def _routes_on(
    demand: Demand, shapes: Mapping[Resources, Iterable[GroupState]], hosts: Iterable[Resources]
) -> list[Route]:
    found = []
    for host in hosts:
        count = tasks_on(host, demand.need)
        for state in shapes[host]:
            if demand.constraints and not evaluate(demand.constraints, state.attributes):
                continue
            route = Route(state, count)
            if not demand.gang_size or (demand.group_by in state.attributes and route.on_slice >= demand.gang_size):
                found.append(route)
    return found


def _rank(demand: Demand, route: Route) -> tuple[object, ...]:
    state, group = route.state, route.state.group
    share = 1 if demand.gang_size else min(route.on_slice, max(demand.tasks, 1))
    return (
        -soft_score(demand.constraints, state.attributes) if demand.constraints else 0,
        bool(demand.region) and group.region != demand.region,
        state.pause_ms > 0,
        group.priority,
        not group.hourly_price,  # an unknown price comes last
        group.hourly_price / share,
        group.hosts_per_slice,
        weight(group.host),
        state.is_doubtful,
        state.losses / (state.kept + state.losses + _EXPECTED),
        group.name,
    )


def why_none(demand: Demand, states: Iterable[GroupState]) -> str:
    """Return why no group can serve a demand."""
    known = [state for state in states if state.most]
    unmet = explain_constraints(demand.constraints, [state.attributes for state in known])
    if unmet is not None:
        return f"no scale group serves it: {unmet}"
    willing = [state for state in known if evaluate(demand.constraints, state.attributes)]
    absent = explain_device(demand.need, [state.group.host for state in willing])
    if absent is not None:
        return f"no scale group serves it: {absent}"
    short = [(lacks[0], state) for state in willing if (lacks := shortfalls(demand.need, state.group.host))]
    if len(short) == len(willing):
        lack, state = min(short, key=lambda item: item[0].severity)
        return f"no scale group serves it: it needs {lack.need}; a host of {state.group.name} has {lack.have}"
    return f"no scale group serves it: none has room for {demand.gang_size} tasks in one {demand.group_by}"
