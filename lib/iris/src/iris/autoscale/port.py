"""The port behind which providers make slices: in processes on this machine, at Google, on hosts by ssh."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from iris.autoscale.model import Answer, Outcome
from iris.domain.scale_groups import ScaleGroup


class Phase(StrEnum):
    """The phase of a slice in a provider's list."""

    CREATING = "creating"
    READY = "ready"  # its hosts run; they may not have joined
    BROKEN = "broken"  # preempted, failed, suspended, stopped: it will not come back, and must be deleted
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class SliceOrder:
    """A slice to create.

    Args:
        name: The slice's name: at most 60 characters, a-z, 0-9 and hyphens.
        group: Its scale group.
        join_token: The token with which its hosts join, for their names only; empty where hosts need none.
        avoid: Addresses of hosts not to use, for providers of hosts that exist.
        failures: How often such hosts failed lately. Providers take those that failed least first.
    """

    name: str
    group: ScaleGroup
    join_token: str = field(default="", repr=False)
    avoid: frozenset[str] = frozenset()
    failures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SliceFound:
    """A slice that a provider has.

    Args:
        name: The slice's name.
        group: The name of its scale group, from its label.
        phase: What the provider says of it.
        words: The provider's own words.
        addresses: The addresses of its hosts, in order; empty if unknown.
        hosts_lost: Numbers of hosts that the provider says are lost.
        outcome: Why a BROKEN slice that never was READY failed, e.g. a stock-out that came after `create` was accepted.
    """

    name: str
    group: str
    phase: Phase
    words: str = ""
    addresses: tuple[str, ...] = ()
    hosts_lost: tuple[int, ...] = ()
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(frozen=True, slots=True)
class Listing:
    """All slices that a provider has of this cluster.

    Args:
        found: By name.
        unlisted_groups: Scale groups whose place could not be listed, with the answer: absence says nothing of them.
        troubles: Other problems, by group, e.g. hosts that are out of reach.
    """

    found: Mapping[str, SliceFound]
    unlisted_groups: Mapping[str, Answer] = field(default_factory=dict)
    troubles: Mapping[str, str] = field(default_factory=dict)


class SliceProvider(Protocol):
    """Makes slices. No call raises for an answer of the provider: it returns the outcome.

    The caller stores a slice before it creates it, and lists before anything else. A listed slice without a stored row
    is adopted. If the cluster file has lost its group, the slice is deleted: with a group that has this name and no
    template, from the place where `list` found it.

    Calls may run at the same time. A call that is cancelled at its deadline may have had its effect; the next `list`
    shows it.
    """

    async def create(self, order: SliceOrder) -> Answer:
        """Begin to create a slice that is stored; DONE if that is accepted, or it was there already."""
        ...

    async def delete(self, name: str, group: ScaleGroup) -> Answer:
        """Begin to delete a slice; DONE if that is accepted, or it is not there. Touch only what is ours."""
        ...

    async def list(self) -> Listing:
        """Return the cluster's slices: one request for each place, however many slices."""
        ...

    async def close(self) -> None:
        """Close connections; slices stay."""
        ...
