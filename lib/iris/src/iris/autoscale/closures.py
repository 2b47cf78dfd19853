"""Decides from the answers of providers which groups are not tried for a while. Pure."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from iris.autoscale.model import Answer, Outcome
from iris.domain.scale_groups import GcpTemplate, ScaleGroup

_PAUSES_S: Final = {
    Outcome.STOCK_OUT: (60, 900),
    Outcome.QUOTA: (60, 900),
    Outcome.RATE: (10, 300),
    Outcome.UNKNOWN: (10, 120),
}
"""The first and the longest pause; each failure in turn doubles it. Other outcomes last until the file changes."""
_JITTER: Final = 0.2
_FORGET_AFTER: Final = 2
"""A failure this many longest pauses after the last pause counts as the first one."""


@dataclass(frozen=True, slots=True)
class Closure:
    """Why a group, a quota pool or a project is not tried. Stored by `key`.

    Args:
        key: What is closed: "group NAME", "pool NAME" or "project ID" (empty ID: the platform's).
        outcome, words: The answer that closed it.
        since_ms: When the first failure in turn came (Unix ms).
        until_ms: The next try (Unix ms); 0 for not before the group's digest changes.
        failures: The number of failures in turn, each after a pause.
        tier: Of a pool: groups of this allocation tier and higher ones are closed.
        digest: Of a group that is closed until it changes.
    """

    key: str
    outcome: Outcome
    words: str
    since_ms: int
    until_ms: int
    failures: int = 1
    tier: int = 0
    digest: str = ""

    def is_closed(self, now_ms: int) -> bool:
        """Return whether the next try is still to come. After it, one slice at a time is tried until one is made."""
        return not self.until_ms or now_ms < self.until_ms


def after_answer(
    closures: Mapping[str, Closure], group: ScaleGroup, answer: Answer, now_ms: int, seed: int
) -> Mapping[str, Closure]:
    """Return the closures after an answer.

    Report DONE when a slice of the group was made (listed as READY, or joined): it reopens what is closed. That a
    request was accepted proves nothing.

    Args:
        closures: The closures before, by key; never modified.
        group: The group that was tried.
        answer: What the provider said, at once or later.
        now_ms: Unix ms.
        seed: Chooses the jitter.
    """
    if answer.outcome is Outcome.DONE:
        return {key: closure for key, closure in closures.items() if not _concerns(closure, group)}
    key, tier = _key_of(group, answer.outcome), 0
    if key.startswith("pool "):
        tier = group.allocation_tier
    known = closures.get(key)
    if known is not None and known.outcome is answer.outcome and known.is_closed(now_ms):
        # It was sent before the closure, together with the one that failed first.
        same = replace(known, words=answer.words, tier=min(known.tier, tier), digest=digest_of(group, answer.outcome))
        return {**closures, key: same}
    pause = _PAUSES_S.get(answer.outcome)
    if pause is not None and known is not None and not known.until_ms:
        return closures
    first = Closure(key, answer.outcome, answer.words, now_ms, 0, 1, tier, digest_of(group, answer.outcome))
    if pause is None:
        return {**closures, key: first}
    shortest, longest = pause
    is_same = known is not None and known.outcome is answer.outcome
    if known is not None and is_same and now_ms - known.until_ms <= _FORGET_AFTER * longest * 1000:
        first = replace(first, since_ms=known.since_ms, failures=known.failures + 1, tier=min(known.tier, tier))
    digest = hashlib.sha256(f"{seed} {key} {first.failures}".encode()).digest()
    spread = 1 + _JITTER * (2 * digest[0] / 255 - 1)
    seconds = min(shortest * 2 ** min(first.failures - 1, 16) * spread, longest)
    return {**closures, key: replace(first, until_ms=now_ms + int(seconds * 1000))}


def after_gone(closures: Mapping[str, Closure], group: ScaleGroup, now_ms: int) -> Mapping[str, Closure]:
    """Return the closures after a slice of a group is gone: its quota is free again, so its pool is tried at once."""
    key = _key_of(group, Outcome.QUOTA)
    known = closures.get(key)
    if known is None or known.outcome is not Outcome.QUOTA or not known.is_closed(now_ms):
        return closures
    return {**closures, key: replace(known, until_ms=now_ms)}


def closure_of(closures: Mapping[str, Closure], group: ScaleGroup, now_ms: int) -> Closure | None:
    """Return what keeps a group closed for longest, else a closure whose pause is over; None for an open group."""
    found = [closures[key] for key in _keys_of(group) if key in closures and _concerns(closures[key], group)]
    return max(found, key=lambda item: (item.is_closed(now_ms), not item.until_ms, item.until_ms), default=None)


def still_true(closures: Mapping[str, Closure], groups: Iterable[ScaleGroup]) -> Mapping[str, Closure]:
    """Return the stored closures that hold for the groups of a cluster file: those of changed groups are over."""
    digests = {
        _key_of(group, outcome): digest_of(group, outcome)
        for group in groups
        for outcome in (Outcome.PERMISSION, Outcome.CONFIG)
    }
    return {key: item for key, item in closures.items() if item.until_ms or digests.get(key) == item.digest}


def digest_of(group: ScaleGroup, outcome: Outcome) -> str:
    """Return the digest of a group's definition for closures that last until it changes; empty for the others."""
    return "" if outcome in _PAUSES_S else hashlib.sha256(repr(group).encode()).hexdigest()[:16]


def _key_of(group: ScaleGroup, outcome: Outcome) -> str:
    if outcome is Outcome.QUOTA and group.quota_pool:
        return f"pool {group.quota_pool}"
    return f"project {project_of(group)}" if outcome is Outcome.RATE else f"group {group.name}"


def project_of(group: ScaleGroup) -> str:
    """Return the project whose rate limit the group shares; empty for the platform's."""
    return group.template.project_id if isinstance(group.template, GcpTemplate) else ""


def _keys_of(group: ScaleGroup) -> tuple[str, ...]:
    pool = (f"pool {group.quota_pool}",) if group.quota_pool else ()
    return (f"group {group.name}", *pool, f"project {project_of(group)}")


def _concerns(closure: Closure, group: ScaleGroup) -> bool:
    if closure.key.startswith("pool ") and group.allocation_tier < closure.tier:
        return False
    return closure.key in _keys_of(group)
