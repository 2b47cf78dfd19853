"""Reads what hosts say, and decides which hosts are which slice. Pure."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from iris.autoscale.model import Answer, Outcome
from iris.autoscale.port import Phase, SliceFound
from iris.domain.scale_groups import ManualTemplate, ScaleGroup
from iris.python_tools.uv import is_network_failure

_MOST_AWAY: Final = 4
_ADDRESS: Final = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:]+))(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Target:
    """A host to reach.

    Args:
        address: `host` or `host:port`, as in the cluster file.
        user, key_file: Empty for the cluster's.
    """

    address: str
    user: str = ""
    key_file: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """The cluster and slice that a host serves, as stored on it.

    Args:
        owner: The label of the cluster, which has its name and its id.
        slice: The slice's name.
        group: Its scale group.
        number, of: The host's number in the slice, and the number of its hosts.
    """

    owner: str
    slice: str
    group: str
    number: int
    of: int

    @property
    def text(self) -> str:
        """The line of the file."""
        return json.dumps(asdict(self))

    @property
    def mark(self) -> str:
        """The beginning of the line, which all hosts of a slice share."""
        return json.dumps({"owner": self.owner, "slice": self.slice})[:-1] + ","


@dataclass(frozen=True, slots=True)
class Look:
    """The last answer of a host.

    Args:
        claim: What it serves; None if it is free.
        phase: How far its start is: claimed, installing, started, ended, failed or stopping.
        words: Its words about that.
        runs: Whether the process runs that keeps the worker running.
    """

    claim: Claim | None = None
    phase: str = ""
    words: str = ""
    runs: bool = False


FREE: Final = Look()


@dataclass(frozen=True, slots=True)
class Works:
    """The slices on which calls work now.

    Args:
        starting, deleting: Names of slices.
        failed: Why the start of a host failed, by slice and number.
    """

    starting: Collection[str] = ()
    deleting: Collection[str] = ()
    failed: Mapping[str, Mapping[int, Answer]] = field(default_factory=dict)


def split_address(address: str, port: int) -> tuple[str, int]:
    """Return the host and the port of `host`, `host:port`, or `[IPv6]:port`."""
    match = _ADDRESS.fullmatch(address)
    if match is None:  # an IPv6 address without brackets
        return address, port
    return match["six"] or match["host"], int(match["port"] or port)


def read_claim(text: str) -> Claim | None:
    """Return the claim of a line; None if it is damaged."""
    try:
        return Claim(**json.loads(text))
    except (ValueError, TypeError):
        return None


def read_look(fields: Mapping[str, str]) -> Look:
    """Return what the script `look` found."""
    if "claim" not in fields:
        return FREE
    claim = read_claim(fields["claim"]) or Claim("an unreadable claim", fields["claim"][:60], "", 0, 1)
    phase, _, words = fields.get("phase", "claimed").partition(" ")
    return Look(claim, phase, words.strip(), "runs" in fields)


def ranges_of(group: ScaleGroup) -> Sequence[tuple[str, ...]]:
    """Return the addresses of the hosts of each slice that a group can have."""
    hosts = group.template.hosts if isinstance(group.template, ManualTemplate) else ()
    size = group.hosts_per_slice
    return [hosts[at : at + size] for at in range(0, len(hosts) - size + 1, size)]


def hosts_of(slice_name: str, owner: str, looks: Mapping[str, Look]) -> Mapping[int, str]:
    """Return the addresses of a slice's hosts, by number."""
    found: dict[int, str] = {}
    for address, look in looks.items():
        claim = look.claim
        if claim is not None and (claim.owner, claim.slice) == (owner, slice_name):
            found.setdefault(claim.number, address)
    return found


def choose(
    group: ScaleGroup,
    owner: str,
    looks: Mapping[str, Look],
    away: Mapping[str, Answer],
    taken: Collection[str],
    avoid: Collection[str],
    failures: Mapping[str, int],
) -> tuple[str, ...] | Answer:
    """Return the hosts that are free for a new slice and failed least, else why there are none.

    Args:
        group: The scale group.
        owner: The label of the cluster.
        looks: What its hosts said, by address.
        away: Why hosts are out of reach.
        taken: Hosts that another call claims now.
        avoid: Hosts not to use yet.
        failures: How often hosts failed lately.
    """
    reasons: dict[str, str] = {}
    for hosts in sorted(ranges_of(group), key=lambda hosts: max(failures.get(host, 0) for host in hosts)):
        whys = [why for host in hosts if (why := _why_not(host, owner, looks, away, taken, avoid))]
        if not whys:
            return hosts
        reasons[hosts[0]] = whys[0]
    if not reasons:
        return Answer(Outcome.CONFIG, f"{group} has fewer hosts than a slice needs: {group.hosts_per_slice}")
    told = sorted(set(reasons.values()), key=list(reasons.values()).index)
    return Answer(Outcome.STOCK_OUT, f"no hosts are free: {'; '.join(told[:4])}{'; ...' if told[4:] else ''}")


def _why_not(
    host: str,
    owner: str,
    looks: Mapping[str, Look],
    away: Mapping[str, Answer],
    taken: Collection[str],
    avoid: Collection[str],
) -> str:
    if host in away:
        return away[host].words
    claim = looks[host].claim if host in looks else None
    if claim is not None and claim.owner != owner:
        return f"{host} serves another cluster, {claim.owner} (slice {claim.slice})"
    if claim is not None or host in taken:
        return "others serve slices of this cluster"
    return f"{host} is not tried yet, because slices on it failed" if host in avoid else ""


def unlisted(
    groups: Iterable[ScaleGroup], looks: Mapping[str, Look], away: Mapping[str, Answer]
) -> Mapping[str, Answer]:
    """Return the groups with a host that nobody has seen since the start and that is out of reach, and why."""
    found: dict[str, Answer] = {}
    for group in groups:
        unseen = [host for host in _hosts(group) if host in away and host not in looks]
        if unseen:
            answer = away[unseen[0]]
            more = f" (and {len(unseen) - 1} more hosts)" if unseen[1:] else ""
            found[group.name] = Answer(answer.outcome, f"waiting for hosts: {answer.words}{more}")
    return found


def troubles(groups: Iterable[ScaleGroup], away: Mapping[str, Answer]) -> Mapping[str, str]:
    """Return why hosts of groups are out of reach, by group."""
    found: dict[str, str] = {}
    for group in groups:
        words = [away[host].words for host in _hosts(group) if host in away]
        if words:
            more = f" (and {len(words) - _MOST_AWAY} more hosts)" if words[_MOST_AWAY:] else ""
            found[group.name] = "; ".join(words[:_MOST_AWAY]) + more
    return found


def slices_in(
    owner: str,
    looks: Mapping[str, Look],
    away: Mapping[str, Answer],
    groups: Mapping[str, ScaleGroup],
    works: Works,
) -> Mapping[str, SliceFound]:
    """Return the cluster's slices, from what the hosts said.

    Args:
        owner: The label of the cluster.
        looks: What each host said when it was last reached.
        away: Why hosts are out of reach. What they said last counts until they are back.
        groups: The scale groups, by name.
        works: The calls under way.
    """
    names = {look.claim.slice: look.claim for look in looks.values() if look.claim and look.claim.owner == owner}
    return {
        name: _slice(claim, hosts_of(name, owner, looks), looks, away, groups, works) for name, claim in names.items()
    }


def _slice(
    claim: Claim,
    hosts: Mapping[int, str],
    looks: Mapping[str, Look],
    away: Mapping[str, Answer],
    groups: Mapping[str, ScaleGroup],
    works: Works,
) -> SliceFound:
    addresses = tuple(hosts.get(number, "") for number in range(claim.of))
    is_starting, seen = claim.slice in works.starting, {number: looks[host] for number, host in hosts.items()}
    failed = dict(works.failed.get(claim.slice, {}))
    for number, look in seen.items():
        if look.phase == "failed":
            failed.setdefault(number, _failure(hosts[number], look.words))
        elif look.phase == "claimed" and not is_starting:
            failed.setdefault(number, Answer(Outcome.UNKNOWN, f"{hosts[number]}: its start was interrupted"))
    group = groups.get(claim.group)
    for number, host in hosts.items():
        if group is not None and host not in _hosts(group):
            failed.setdefault(number, Answer(Outcome.UNKNOWN, f"{host} is no longer in the cluster file"))
    all_seen = group is None or all(host in looks for host in _hosts(group))
    if all_seen and not is_starting:
        for number in range(claim.of):
            if number not in hosts:
                failed.setdefault(number, Answer(Outcome.UNKNOWN, f"host {number} of {claim.of} does not serve it"))
    words = [answer.words for answer in failed.values()]
    words += [f"{hosts[number]}: {look.phase} {look.words}" for number, look in seen.items() if look.phase == "ended"]
    words += [away[host].words for host in hosts.values() if host in away]
    if claim.slice in works.deleting or any(look.phase == "stopping" for look in seen.values()):
        phase = Phase.DELETING
    elif failed:
        phase = Phase.BROKEN
    elif len(seen) == claim.of and all(look.phase == "started" for look in seen.values()):
        phase = Phase.READY
    else:
        phase = Phase.CREATING
    outcome = outcome_of_failure(next((answer.outcome for answer in failed.values()), Outcome.UNKNOWN), group)
    return SliceFound(
        claim.slice, claim.group, phase, "; ".join(words)[:600], addresses, tuple(sorted(failed)), outcome=outcome
    )


def outcome_of_failure(outcome: Outcome, group: ScaleGroup | None) -> Outcome:
    """Return the outcome for the group of hosts that failed: CONFIG only if it has no other hosts."""
    is_only = group is None or len(ranges_of(group)) < 2
    return Outcome.UNKNOWN if outcome is Outcome.CONFIG and not is_only else outcome


def _failure(host: str, words: str) -> Answer:
    """Return what an installation that failed means: its code and its last words."""
    code, _, said = words.partition(" ")
    outcome = Outcome.UNKNOWN if is_network_failure(said) else Outcome.CONFIG
    return Answer(outcome, f"{host}: installing iris failed with code {code}: {said}")


def _hosts(group: ScaleGroup) -> Sequence[str]:
    return group.template.hosts if isinstance(group.template, ManualTemplate) else ()
