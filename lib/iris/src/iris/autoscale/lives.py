"""Judges groups by how long their slices lived, and hosts by how often they failed. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from iris.autoscale.model import SliceRecord, SliceState

_WINDOW_MS: Final = 2 * 3600 * 1000
_MOST: Final = 1000
_FEWEST_SHORT: Final = 3
"""Fewer short lives prove nothing about a group."""
_FIRST_PAUSE_MS: Final = 60_000
_LONGEST_PAUSE_MS: Final = 15 * 60_000
_FAILURES_OF_HOST: Final = 3
_HOST_PAUSES_MS: Final = (30_000, 300_000)
"""How long a host is not used after its first and second failure to join."""


@dataclass(frozen=True, slots=True)
class Life:
    """A slice that was lost, or that never joined. Released slices are no lives.

    Args:
        group: Its scale group.
        ended_ms: When it was lost (Unix ms).
        lived_ms: How long it was joined; 0 if it never was.
        hosts: The hosts that failed, where they have names that come back (manual hosts).
    """

    group: str
    ended_ms: int
    lived_ms: int
    hosts: tuple[str, ...] = ()


Lives = tuple[Life, ...]
"""Lives in the order of their ends. Stored as a whole, or forgotten at a restart: they only rank and slow groups."""


def after_loss(lives: Lives, record: SliceRecord, now_ms: int, hosts: tuple[str, ...] = ()) -> Lives:
    """Return the lives after a slice was lost or has not joined by its deadline. Old ones are dropped."""
    lived = now_ms - record.joined_ms if record.joined_ms else 0
    return (*recent(lives, now_ms), Life(record.group, now_ms, lived, hosts))[-_MOST:]


def recent(lives: Lives, now_ms: int) -> Lives:
    """Return the lives that ended in the last two hours."""
    return tuple(life for life in lives if now_ms - life.ended_ms <= _WINDOW_MS)


def create_pauses(lives: Lives, slices: Iterable[SliceRecord], short_life_s: float, now_ms: int) -> Mapping[str, int]:
    """Return the groups most of whose slices live shortly, with the pause between two creations in ms.

    A group has at least three short lives in the last two hours, and no more slices that lived or live longer.
    """
    short, long = dict[str, int](), dict[str, int]()
    for life in recent(lives, now_ms):
        counts = short if life.lived_ms < short_life_s * 1000 else long
        counts[life.group] = counts.get(life.group, 0) + 1
    suspects = {group: count for group, count in short.items() if count >= _FEWEST_SHORT}
    if not suspects:
        return {}
    for record in slices:
        is_old = record.state is SliceState.JOINED and now_ms - record.joined_ms >= short_life_s * 1000
        if is_old and record.group in suspects:
            long[record.group] = long.get(record.group, 0) + 1
    return {
        group: min(_FIRST_PAUSE_MS * 2 ** min(count - _FEWEST_SHORT, 16), _LONGEST_PAUSE_MS)
        for group, count in suspects.items()
        if count >= long.get(group, 0)
    }


def host_failures(lives: Lives, now_ms: int) -> Mapping[str, int]:
    """Return how many slices each host made fail in the last two hours."""
    return Counter(host for life in recent(lives, now_ms) for host in life.hosts)


def avoided_hosts(lives: Lives, now_ms: int) -> Mapping[str, int]:
    """Return the hosts that are not used now, and when each may be used again (Unix ms).

    A host whose slice did not join backs off. A host that made three slices fail in two hours is quarantined.
    """
    of_host: dict[str, list[Life]] = {}
    for life in recent(lives, now_ms):
        for host in life.hosts:
            of_host.setdefault(host, []).append(life)
    until = {host: _avoided_until(own) for host, own in of_host.items()}
    return {host: ms for host, ms in until.items() if ms > now_ms}


def _avoided_until(lives: list[Life]) -> int:
    if len(lives) >= _FAILURES_OF_HOST:
        return lives[-_FAILURES_OF_HOST].ended_ms + _WINDOW_MS
    last = lives[-1]
    return 0 if last.lived_ms else last.ended_ms + _HOST_PAUSES_MS[len(lives) - 1]
