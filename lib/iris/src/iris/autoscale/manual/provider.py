"""The provider of slices on hosts that exist."""

import asyncio
import logging
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from iris.autoscale.boot.release import Release
from iris.autoscale.manual.claims import (
    FREE,
    Claim,
    Look,
    Works,
    choose,
    hosts_of,
    outcome_of_failure,
    read_claim,
    read_look,
    slices_in,
    troubles,
    unlisted,
)
from iris.autoscale.manual.former import FormerHosts, targets_of
from iris.autoscale.manual.scripts import (
    Boot,
    HostSettings,
    again_script,
    claim_script,
    look_script,
    start_script,
    stop_script,
)
from iris.autoscale.manual.ssh import HostFailure, Ssh
from iris.autoscale.model import Answer, Outcome
from iris.autoscale.port import Listing, SliceOrder
from iris.domain.scale_groups import ManualTemplate, ScaleGroup

logger = logging.getLogger(__name__)

_DONE: Final = Answer(Outcome.DONE)
_STOP_S: Final = 45.0
_FORMER_LOOKS: Final = 3
_NEEDS_WORKER: Final = frozenset({"installing", "started", "ended"})


class ManualProvider:
    """Slices on hosts that exist, by ssh (`SliceProvider`): `hosts_per_slice` hosts of a group in turn are a slice.

    A file on each host says which slice of which cluster it serves, so the next controller finds all. While a host is
    out of reach, what it said last counts; a group with a host that was not reached since the start is not listed.

    Args:
        ssh: The connections.
        owner: The label of the cluster, with its name and id.
        groups: The scale groups.
        release: What hosts install.
        settings: What workers are started with. Called once for each slice.
        former: The hosts that the cluster has had. Slices on those that have left the file are listed as broken.
    """

    def __init__(
        self,
        ssh: Ssh,
        owner: str,
        groups: Iterable[ScaleGroup],
        release: Release,
        settings: Callable[[], HostSettings],
        former: FormerHosts | None = None,
    ) -> None:
        self._ssh, self._owner, self._release, self._settings = ssh, owner, release, settings
        self._groups = {group.name: group for group in groups if isinstance(group.template, ManualTemplate)}
        self._targets = targets_of(self._groups.values())
        self._former = former
        self._left: dict[str, int] | None = None  # looks left for each former host; None before the first list
        self._looks: dict[str, Look] = {}
        self._away: dict[str, Answer] = {}
        self._turns: Counter[str] = Counter()  # what a look saw before a later change says nothing
        self._taken: dict[str, str] = {}
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._deleting: Counter[str] = Counter()
        self._failed: dict[str, dict[int, Answer]] = {}

    async def create(self, order: SliceOrder) -> Answer:
        name, group = order.name, order.group
        if group.name not in self._groups:
            return Answer(Outcome.CONFIG, f"{group} has no slice_template.manual")
        await self._look_at(host for host in self._hosts(group) if host not in self._looks)
        is_new = not hosts_of(name, self._owner, self._looks)
        chosen = self._chosen(order)
        if isinstance(chosen, Answer):
            return chosen
        self._taken |= dict.fromkeys(chosen, name)
        try:
            claims = [Claim(self._owner, name, group.name, number, len(chosen)) for number in range(len(chosen))]
            works = (self._claim(host, claim) for host, claim in zip(chosen, claims, strict=True))
            answers = await asyncio.gather(*works)
            refused = next((each for each in answers if isinstance(each, Answer)), None)
            if refused is not None:
                if is_new:
                    await asyncio.gather(*(self._stop(host, claims[0]) for host in chosen))
                bad = tuple(host for each in answers if isinstance(each, Answer) for host in each.hosts)
                return replace(
                    refused, outcome=outcome_of_failure(refused.outcome, self._groups[group.name]), hosts=bad
                )
            if name not in self._starts:
                found = [each for each in answers if not isinstance(each, Answer)]
                starts = [self._boot(order, claim, each) for claim, each in zip(claims, found, strict=True)]
                self._failed.pop(name, None)
                self._starts[name] = asyncio.create_task(self._start_all(name, chosen, starts))
            return _DONE
        finally:
            for host in chosen:
                self._taken.pop(host, None)

    async def delete(self, name: str, group: ScaleGroup) -> Answer:
        self._deleting[name] += 1
        try:
            start = self._starts.get(name)
            if start is not None:
                start.cancel()
                await asyncio.wait([start])
            hosts = hosts_of(name, self._owner, self._looks).values()
            unseen = [host for host in self._hosts(group) or self._targets if host not in self._looks]
            claim = Claim(self._owner, name, group.name, 0, 1)
            answers = await asyncio.gather(*(self._stop(host, claim) for host in (*hosts, *unseen)))
            failed = [answer for answer in answers if answer.outcome is not Outcome.DONE]
            if failed:
                return Answer(failed[0].outcome, "; ".join(answer.words for answer in failed[:4]))
            self._failed.pop(name, None)
            return _DONE
        finally:
            self._deleting[name] -= 1
            if not self._deleting[name]:
                del self._deleting[name]

    async def list(self) -> Listing:
        if self._left is None:
            known = await asyncio.to_thread(self._former.load) if self._former is not None else {}
            self._left = {host: _FORMER_LOOKS for host in known if host not in self._targets}
            self._targets |= {host: known[host] for host in self._left}
        await self._look_at(self._targets)
        await self._settle_former(self._left)
        await asyncio.gather(*(self._start_again(host, look) for host, look in list(self._looks.items())))
        works = Works(self._starting, self._deleting, self._failed)
        found = slices_in(self._owner, self._looks, self._away, self._groups, works)
        groups = self._groups.values()
        lacking = unlisted(groups, self._looks, self._away)
        listed = [group for group in groups if group.name not in lacking]
        return Listing(found, lacking, troubles(listed, self._away))

    async def close(self) -> None:
        for start in self._starts.values():
            start.cancel()
        await asyncio.gather(*self._starts.values(), return_exceptions=True)
        await self._ssh.close()

    @property
    def _starting(self) -> set[str]:
        return {*self._starts, *self._taken.values()}

    def _hosts(self, group: ScaleGroup) -> Sequence[str]:
        known = self._groups.get(group.name, group)
        return known.template.hosts if isinstance(known.template, ManualTemplate) else ()

    def _chosen(self, order: SliceOrder) -> tuple[str, ...] | Answer:
        """Return the hosts of a slice that exists, or those of a new one; else why there are none."""
        hosts = list(self._hosts(order.group))
        known = hosts_of(order.name, self._owner, self._looks)
        if known:
            number, host = next(iter(known.items()))
            first = hosts.index(host) - number if host in hosts else -1
            same = tuple(hosts[first : first + order.group.hosts_per_slice]) if first >= 0 else ()
            if all(same[number : number + 1] == (host,) for number, host in known.items()):
                return same
            return Answer(Outcome.CONFIG, f"{order.name} is on {', '.join(known.values())}, no longer hosts in turn")
        unseen = [host for host in hosts if host not in self._looks]
        if unseen:  # the slice may be there
            answer = self._away.get(unseen[0])
            return Answer(Outcome.UNKNOWN, answer.words if answer else f"{unseen[0]} was not reached yet")
        return choose(order.group, self._owner, self._looks, self._away, self._taken, order.avoid, order.failures)

    # ---- hosts ----

    async def _settle_former(self, left: dict[str, int]) -> None:
        """Keep the hosts outside the cluster file that serve a slice of ours; forget those that serve none."""
        for host in list(left):
            look = self._looks.get(host)
            if look is not None and look.claim is not None and look.claim.owner == self._owner:
                del left[host]  # it is listed until its slice is deleted
            elif look is not None or left[host] <= 1:
                del left[host], self._targets[host]
                self._looks.pop(host, None)
                if self._away.pop(host, None) is None and self._former is not None:
                    await asyncio.to_thread(self._former.forget, [host])
            else:
                if left[host] == _FORMER_LOOKS:
                    words = self._away[host].words
                    logger.warning("%s has left the cluster file and may run a worker nevertheless: %s", host, words)
                left[host] -= 1

    async def _run(self, host: str, script: str, deadline_s: float = 0) -> Mapping[str, str]:
        """Run a script, and note whether the host is out of reach."""
        try:
            fields = await self._ssh.run(self._targets[host], script, deadline_s)
        except HostFailure as failure:
            if self._away.get(host) != failure.answer and failure.is_away:
                logger.warning("%s", failure.answer.words)
            if failure.is_away:
                self._away[host] = failure.answer
            raise
        if self._away.pop(host, None) is not None:
            logger.info("%s is back", host)
        return fields

    async def _look_at(self, hosts: Iterable[str]) -> None:
        await asyncio.gather(*map(self._look, hosts))

    async def _look(self, host: str) -> None:
        turn = self._turns[host]
        try:
            look = read_look(await self._run(host, look_script()))
        except HostFailure as failure:
            self._away[host] = failure.answer
            return
        if self._turns[host] != turn:
            return
        before = self._looks.get(host)
        self._looks[host] = look
        foreign = look.claim is not None and look.claim.owner != self._owner
        if look.claim is not None and foreign and (before is None or before.claim != look.claim):
            logger.warning("%s is left alone: it serves another cluster, %s", host, look.claim.owner)

    async def _claim(self, host: str, claim: Claim) -> Mapping[str, str] | Answer:
        """Make a host serve a slice; return what it has, or why it does not."""
        self._looks.pop(host, None)
        self._turns[host] += 1
        try:
            fields = await self._run(host, claim_script(claim, self._release.name))
        except HostFailure as failure:
            return failure.answer if failure.is_away else replace(failure.answer, hosts=(host,))
        self._turns[host] += 1
        found = read_claim(fields.get("claim", ""))
        self._looks[host] = Look(found, "claimed")
        if found == claim:
            return fields
        return Answer(Outcome.STOCK_OUT, f"{host} serves another slice: {fields.get('claim', 'unreadable')}")

    async def _stop(self, host: str, claim: Claim) -> Answer:
        """Stop the worker of a slice on a host, and remove its files; on a host of another slice, nothing."""
        self._turns[host] += 1
        try:
            await self._run(host, stop_script(claim), _STOP_S)
        except HostFailure as failure:
            return failure.answer
        self._turns[host] += 1
        look = self._looks.get(host)
        if look is not None and look.claim is not None and look.claim.slice == claim.slice:
            self._looks[host] = FREE
        return _DONE

    async def _start_again(self, host: str, look: Look) -> None:
        """Start a worker again whose host was restarted."""
        claim = look.claim
        if claim is None or claim.owner != self._owner or look.runs or look.phase not in _NEEDS_WORKER:
            return
        if host in self._away or claim.slice in self._starting or claim.slice in self._deleting:
            return
        try:
            await self._run(host, again_script(claim))
            logger.warning("%s: the worker of %s had ended, and is started again", host, claim.slice)
        except HostFailure as failure:
            logger.warning("%s", failure.answer.words)

    # ---- starts ----

    def _boot(self, order: SliceOrder, claim: Claim, fields: Mapping[str, str]) -> "_Start":
        root = fields["root"]
        boot = Boot(
            claim,
            order,
            root,
            fields.get("uv") or f"{root}/bin/uv",
            self._release.name,
            self._release.python,
            self._settings(),
        )
        has = set(fields.get("files", "").split())
        return _Start(boot, "uv" in fields, fields.get("machine", ""), frozenset(has))

    async def _start_all(self, name: str, hosts: Sequence[str], starts: Sequence["_Start"]) -> None:
        try:
            answers = await asyncio.gather(*(self._start(*each) for each in zip(hosts, starts, strict=True)))
        finally:
            del self._starts[name]
        failed = {number: answer for number, answer in enumerate(answers) if answer.outcome is not Outcome.DONE}
        if failed:
            self._failed[name] = failed
            logger.warning("slice %s: %s", name, "; ".join(answer.words for answer in failed.values()))

    async def _start(self, host: str, start: "_Start") -> Answer:
        boot, claim = start.boot, start.boot.claim
        files: dict[str, bytes | Path] = {
            f"{boot.release}/{name}": content
            for name, content in self._release.files.items()
            if name not in start.files
        }
        if not start.has_uv:
            own = f"{platform.system()} {platform.machine()}"
            if start.machine != own or self._release.uv is None:
                words = f"{host} ({start.machine}) has no uv, and the controller has none for it: install uv there"
                return Answer(Outcome.CONFIG, words)
            files[boot.uv] = self._release.uv
        try:
            await self._ssh.upload(self._targets[host], files)
            await self._run(host, start_script(boot))
        except HostFailure as failure:
            return failure.answer
        if self._looks.get(host) == Look(claim, "claimed"):
            self._looks[host] = Look(claim, "installing", runs=True)
        return _DONE


@dataclass(frozen=True, slots=True)
class _Start:
    """A host with the files that it needs to start, and those that it has."""

    boot: Boot
    has_uv: bool
    machine: str
    files: frozenset[str]
