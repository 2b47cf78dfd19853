"""The findings of `marin doctor` about a storage prefix and the job client. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from marin.stored_files import ACCESS
from rigging.cli.doctor import Finding, State

_SLOW_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class PrefixFacts:
    """Observations about a prefix.

    Args:
        prefix: The storage root.
        is_default: Whether the prefix is the fallback: neither MARIN_PREFIX nor a region's bucket names one.
        region: The prefix's region; None if unknown.
        here: The region of this machine; None if unknown.
        round_trip_s: Seconds that writing, reading and removing a small file took.
        error: Why the round trip failed; empty if it succeeded.
        remedy: The remedy, if the error determines it; empty if it depends on the storage.
    """

    prefix: str
    is_default: bool
    region: str | None
    here: str | None
    round_trip_s: float = 0.0
    error: str = ""
    remedy: str = ""


def judge_prefix(facts: PrefixFacts) -> list[Finding]:
    """Return the findings about a prefix."""
    scheme = facts.prefix.partition("://")[0] if "://" in facts.prefix else "file"
    if facts.error:
        remedy = facts.remedy or ACCESS.get(scheme, "give MARIN_PREFIX a place that this user may write to")
        return [Finding("prefix", State.FAILURE, f"{facts.prefix}: {facts.error}", remedy)]
    text = f"{facts.prefix}: written, read and removed in {facts.round_trip_s:.2f} s"
    if facts.round_trip_s > _SLOW_S:
        found = [Finding("prefix", State.WARNING, text, "choose storage that is nearer")]
    elif facts.is_default:
        found = [Finding("prefix", State.WARNING, text, "set MARIN_PREFIX: /tmp may be emptied at the next boot")]
    else:
        found = [Finding("prefix", State.OK, text)]
    if facts.region and facts.here and facts.region != facts.here:
        found.append(
            Finding(
                "region",
                State.WARNING,
                f"the prefix is in {facts.region}, this machine in {facts.here}: reads cost egress fees",
                f"set MARIN_PREFIX to a bucket in {facts.here}",
            )
        )
    elif facts.region or facts.here:
        text = f"prefix: {facts.region or 'not known'}, here: {facts.here or 'none'}"
        found.append(Finding("region", State.OK, text))
    return found


def judge_client(spec: str, known: Sequence[str], missing: str | None) -> Finding:
    """Return the findings about the job client.

    Args:
        spec: The value of FRAY_CLIENT; empty if unset.
        known: The valid forms of that value.
        missing: Why the backend cannot be used here, or None.
    """
    name = spec.partition("://")[0]
    if not spec:
        return Finding("client", State.OK, "FRAY_CLIENT is not set: steps run in this process, or on the job's cluster")
    if name not in {form.partition("://")[0] for form in known}:
        return Finding("client", State.FAILURE, f"FRAY_CLIENT={spec}: not known", f"one of {', '.join(known)}")
    if missing is not None:
        why, _, remedy = missing.partition(": ")
        return Finding("client", State.FAILURE, f"FRAY_CLIENT={spec}: {why}", remedy)
    return Finding("client", State.OK, f"FRAY_CLIENT={spec}")
