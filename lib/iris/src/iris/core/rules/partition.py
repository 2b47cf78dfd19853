"""Decides whether the controller itself may be cut off, because too many hosts fell silent together."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from iris.domain.ids import WorkerId

FEWEST_HOSTS: Final = 3
TOGETHER_MS: Final = 30_000
"""Hosts whose last messages are at most this far apart fell silent together."""


@dataclass(frozen=True, slots=True)
class HostSilence:
    """The silence of one host.

    Args:
        group: The group of hosts that fail together, such as a slice; a group counts as one host.
        heard_ms: When its last message arrived.
        is_silent: Whether it is late.
    """

    worker_id: WorkerId
    group: str
    heard_ms: int
    is_silent: bool


@dataclass(frozen=True, slots=True)
class Suspicion:
    """The controller may be cut off from these hosts.

    Args:
        since_ms: When the suspicion started.
        hosts: The silent hosts.
        known: The total number of hosts.
    """

    since_ms: int
    hosts: frozenset[WorkerId]
    known: int


def silent_together(hosts: Iterable[HostSilence]) -> frozenset[WorkerId]:
    """Return the hosts that fell silent together, if they are too many for independent failures; else none.

    Args:
        hosts: All hosts that did not say goodbye and are not drained. At least half of three or more groups must be
            silent.
    """
    groups: dict[str, list[HostSilence]] = {}
    for host in hosts:
        groups.setdefault(host.group, []).append(host)
    if len(groups) < FEWEST_HOSTS:
        return frozenset()
    silent = [group for group in groups.values() if all(host.is_silent for host in group)]
    last_words = sorted(max(host.heard_ms for host in group) for group in silent)
    for first in last_words:
        together = [at_ms for at_ms in last_words if first <= at_ms <= first + TOGETHER_MS]
        if 2 * len(together) >= len(groups):
            return frozenset(
                host.worker_id
                for group in silent
                for host in group
                if first <= max(item.heard_ms for item in group) <= first + TOGETHER_MS
            )
    return frozenset()
