"""Carries out the plan: lists, creates and deletes slices, each stored before its provider is called.

One list after another, each after a pause, says what the provider has. Looks decide between them, soon after each
change of the cluster. Calls run in tasks with a deadline, so that no provider holds up the controller.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from iris.autoscale.book import KEPT_MS, SliceBook, SliceRows
from iris.autoscale.calls import SliceCalls
from iris.autoscale.closures import Closure
from iris.autoscale.fleet import Cluster, Fleet
from iris.autoscale.missing import Missing, missing_capacity, to_tell
from iris.autoscale.model import Answer, Outcome, SliceRecord, SliceState
from iris.autoscale.plan import Plan, SliceUse
from iris.autoscale.planning.supply import clock
from iris.autoscale.port import Listing, Phase, SliceFound, SliceProvider
from iris.autoscale.transitions import (
    adopted,
    after_list,
    after_use,
    deleted_by,
    is_loss,
    leaving,
    next_name,
    seen_ms,
    still_away,
    stopped_by,
    use_of,
    wanted,
)
from iris.domain.effects import Effect
from iris.domain.ids import JobId, WorkerId
from iris.domain.scale_groups import ScaleGroup
from rigging.errors import Conflict, NotFound, Unavailable

logger = logging.getLogger(__name__)

_SOON_S: Final = 0.02
"""Delay after a change, to handle bursts of changes together."""
_PAUSE_S: Final = 0.25
"""Shortest time between two looks, however much happens."""
_SHARE: Final = 4
"""A look takes at most one part in so many and one of the time."""
_FAILED_LATELY_MS: Final = 900_000
_TOGETHER_MS: Final = 120_000
"""Time between the first and the last host of a slice to return to a new controller."""
_END_S: Final = 60.0
"""How long the end of a cluster waits for the deletion of its slices."""
_DONE: Final = Answer(Outcome.DONE)
_NOT_LISTED: Final = "the provider's slices are not listed yet; try again in a minute"


class Autoscaler:
    """Creates and deletes the slices of one controller, which must be the cluster's leader. Runs in its loop.

    Args:
        provider: Makes slices.
        rows: The store.
        fleet: What may be created.
        clock_ms: Returns Unix ms.
    """

    def __init__(self, provider: SliceProvider, rows: SliceRows, fleet: Fleet, clock_ms: Callable[[], int]) -> None:
        self.plan = Plan()
        self._provider = provider
        self._fleet = fleet
        self._clock_ms = clock_ms
        self._book = SliceBook(rows)
        self._found: Mapping[str, SliceFound] = {}
        self._unlisted: Mapping[str, Closure] = {}
        self._troubles: Mapping[str, str] = {}
        self._missing: dict[str, Missing] = {}
        self._due: asyncio.TimerHandle | None = None
        self._next_look_s = 0.0
        self._returning: dict[str, tuple[int, Mapping[WorkerId, int]]] = {}  # deadline, and `seen_ms` at the start
        self._ending = ""
        self._is_open = self._is_begun = False

    def begin(self, cluster: Cluster) -> None:
        """Load the slices and start. Called when the controller serves."""
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._calls = SliceCalls(self._provider, self._fleet, self._book, cluster, self._clock_ms, self._soon)
        now_ms = self._clock_ms()
        self._book.load(self._fleet.groups, now_ms)
        # Their hosts may be started together with this controller.
        until_ms = now_ms + int(self._fleet.rules.boot_deadline_s * 1000)
        self._returning = {
            item.name: (until_ms, seen_ms(self._fleet.workers_of(item, cluster.view), cluster.view))
            for item in self._book.live()
            if item.state is SliceState.JOINED
        }
        for record in self._book.slices.values():
            if record.state is SliceState.REQUESTED:
                self._calls.again.add(record.name)
            elif record.state.is_over:
                self._calls.forget(record)
        self._calls.spawn(self._watch())
        self._is_begun = True

    async def close(self) -> None:
        """Stop. Slices stay, and calls under way are finished or undone by the next controller."""
        was_begun, self._is_open, self._is_begun = self._is_begun, False, False
        if self._due is not None:
            self._due.cancel()
        if was_begun:
            await self._calls.close()

    def on_effects(self, effects: Sequence[Effect]) -> None:
        """Look soon, because something may wait now, or wait no more."""
        del effects
        self._soon()

    @property
    def slices(self) -> Mapping[str, SliceRecord]:
        """All slices, those that were over within the last hour among them."""
        return self._book.slices

    def reason(self, job_id: JobId) -> str:
        """Return what is done about a job that waits for capacity; empty for nothing."""
        missing = self._missing.get(self.plan.lacking.get(job_id, ""))
        since = f"; capacity is missing since {clock(missing.since_ms)}" if missing is not None else ""
        return self.plan.reasons.get(job_id, "") + since

    async def create_slice(self, group: str, by: str) -> str:
        """Create a slice that the autoscaler does not release; return its name once it is stored.

        Raises:
            NotFound: The cluster file has no such group. Conflict: The group has its maximum of slices.
            Unavailable: It cannot be stored, or the provider was not listed yet.
        """
        if not self._is_open:
            raise Unavailable(_NOT_LISTED)
        found = self._fleet.group(group)
        if found is None:
            known = ", ".join(self._fleet.by_name) or "none"
            raise NotFound(f"scale group {group!r} does not exist; the cluster file has {known}")
        if sum(record.group == group for record in self._book.live()) >= found.max_slices:
            raise Conflict(
                f"scale group {group!r} has {found.max_slices} slices, its max_slices: delete one first with "
                "`iris cluster delete-slice NAME`"
            )
        name = self._want(group, by)
        await self._stored(name)
        return name

    async def delete_slice(self, name: str, by: str) -> None:
        """Delete a slice; return once that is stored. Its attempts are moved and retried elsewhere.

        Raises:
            NotFound: There is no such slice. Unavailable: It cannot be stored, or the provider was not listed yet.
        """
        if not self._is_open:
            raise Unavailable(_NOT_LISTED)
        record = self._book.slices.get(name)
        if record is None or record.state.is_over:
            known = ", ".join(item.name for item in islice(self._book.live(), 5)) or "none"
            raise NotFound(f"slice {name!r} does not exist; there are {known}")
        self._book.put(leaving(record, deleted_by(by), self._clock_ms()))
        await self._stored(name)

    async def end(self, by: str) -> Sequence[str]:
        """Delete all slices, and create no more. Return those whose deletion the provider has not accepted by then."""
        self._ending = stopped_by(by)
        deadline = self._loop.time() + _END_S

        def left() -> list[str]:
            return [record.name for record in self._book.live() if record.name not in self._calls.deleted]

        while left() and self._loop.time() < deadline:
            self._look()
            await asyncio.sleep(_PAUSE_S)
        return left()

    async def _stored(self, name: str) -> None:
        if not self._save():
            raise Unavailable(f"slice {name} cannot be stored now; the controller's log says why, and it tries again")
        await self._cluster.confirm()

    # ---- looks ----

    def _soon(self, seconds: float = _SOON_S) -> None:
        if not self._is_open:
            return
        due = max(self._loop.time() + seconds, self._next_look_s)
        if self._due is not None:
            if self._due.when() <= due:
                return
            self._due.cancel()
        self._due = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        """Decide, store what was decided, and call the provider for what is stored."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if not self._is_open:
            return
        began = self._loop.time()
        try:
            self._decide(self._clock_ms())
            self._save()
        except Exception:  # the next look may do better
            logger.exception("the autoscaler cannot decide")
        self._next_look_s = self._loop.time() + max(_PAUSE_S, _SHARE * (self._loop.time() - began))

    def _save(self) -> bool:
        is_saved = self._book.save(self._clock_ms(), self._cluster.record)
        if is_saved:
            self._calls.act()
        return is_saved

    def _decide(self, now_ms: int) -> None:
        fleet, book = self._fleet, self._book
        if self._ending:
            for record in list(book.live()):
                book.put(leaving(record, self._ending, now_ms))
            return
        kept = self._cluster.kept
        uses = {record.name: self._use(record, kept, now_ms) for record in list(book.live())}
        slices = {
            record.name: record
            for record in book.slices.values()
            if not record.state.is_over or _has_failed_lately(record, now_ms)
        }
        recent = sorted(item.created_ms for item in book.slices.values() if now_ms - item.created_ms <= KEPT_MS)
        # Where nothing can be listed nothing is created: it could not be found again.
        closures = {**book.closures, **self._unlisted}
        needs = fleet.find_demands(self._cluster.view, now_ms)
        self.plan = fleet.decide(now_ms, needs, fleet.groups, slices, uses, closures, book.lives, fleet.rules, recent)
        if self._troubles:
            groups = {name: replace(it, trouble=self._troubles.get(name, "")) for name, it in self.plan.groups.items()}
            self.plan = replace(self.plan, groups=groups)
        self._tell_missing(now_ms)
        for name, reason in self.plan.release.items():
            record, use = book.slices[name], uses.get(name, SliceUse())
            if record.state is not SliceState.WANTED and is_loss(record, use):
                self._lose(record, use, now_ms)
            book.put(leaving(record, reason, now_ms))
        for group in self.plan.create:
            self._want(group)

    def _tell_missing(self, now_ms: int) -> None:
        joined_ms: dict[str, int] = {}
        for record in self._book.live():
            joined_ms[record.group] = max(joined_ms.get(record.group, 0), record.joined_ms)
        self._missing = dict(missing_capacity(self._missing, self.plan.groups, joined_ms, now_ms))
        late = to_tell(self._missing, self._fleet.rules.notice_after_s, now_ms)
        if late:
            self._cluster.tell_missing(late)
            self._missing |= {item.group: replace(item, is_told=True) for item in late}

    def _use(self, record: SliceRecord, kept: Mapping[WorkerId, JobId], now_ms: int) -> SliceUse:
        """Return what is known of a slice, and note what its hosts say."""
        cluster = self._cluster
        workers = self._fleet.workers_of(record, cluster.view)
        use = use_of(record, workers, self._found.get(record.name), cluster.view, kept, cluster.is_present)
        group = self._fleet.group(record.group)
        if group is None:
            return use  # it serves while it has work
        if record.name in self._returning:
            use = self._returns(record.name, use, workers, now_ms)
        changed = after_use(record, group.hosts_per_slice, use, now_ms)
        if changed is not record:
            self._book.put(changed)
            if changed.joined_ms and not record.joined_ms:
                self._answer(group, _DONE, now_ms)
        return use

    def _returns(self, name: str, use: SliceUse, workers: Sequence[WorkerId], now_ms: int) -> SliceUse:
        """Return what is known of a slice that had joined an earlier controller: its hosts are given time to return.

        The loss of a host that has returned counts at once.
        """
        until_ms, before = self._returning[name]
        away = still_away(workers, self._cluster.view, before)
        if len(away) < len(workers):
            until_ms = min(until_ms, now_ms + _TOGETHER_MS)
        if not away or now_ms >= until_ms:
            del self._returning[name]
            return use
        self._returning[name] = until_ms, before
        found = self._found.get(name)
        told = found.hosts_lost if found is not None else ()
        return replace(use, lost=tuple(number for number in use.lost if number in told or number not in away))

    def _lose(self, record: SliceRecord, use: SliceUse, now_ms: int) -> None:
        found = self._found.get(record.name)
        addresses = found.addresses if found is not None else ()
        view, lost = self._cluster.view, use.lost
        if not (lost or record.joined_ms):
            workers = self._fleet.workers_of(record, view)
            lost = tuple(number for number, worker_id in enumerate(workers) if worker_id not in view.workers)
        hosts = tuple(addresses[number] for number in lost if number < len(addresses))
        self._book.lose(record, hosts, now_ms)

    def _want(self, group: str, by: str = "") -> str:
        # Times that differ keep the order of the plan.
        newest = max((record.created_ms for record in self._book.slices.values()), default=0)
        name = next_name(group, self._book.slices, self._fleet.prefix)
        self._book.put(wanted(name, group, max(self._clock_ms(), newest + 1), by))
        return name

    def _answer(self, group: ScaleGroup, answer: Answer, now_ms: int) -> None:
        self._book.answer(group, answer, now_ms, self._fleet.seed)

    # ---- lists ----

    async def _watch(self) -> None:
        while True:
            began_ms = self._clock_ms()
            listing = await self._calls.list()
            try:
                self._apply(listing, began_ms)
            except Exception:  # a mistake of ours must not end the lists
                logger.exception("the autoscaler cannot use a list")
            self._is_open = True
            self._look()
            await asyncio.sleep(self._fleet.rules.look_s)

    def _apply(self, listing: Listing, began_ms: int) -> None:
        now_ms = self._clock_ms()
        unlisted = listing.unlisted_groups
        until_ms = now_ms + int((self._fleet.rules.look_s + self._fleet.rules.call_deadline_s) * 1000)
        self._unlisted = {
            f"group {name}": Closure(f"group {name}", answer.outcome, answer.words, now_ms, until_ms)
            for name, answer in unlisted.items()
        }
        self._troubles, known = listing.troubles, self._found
        self._found = {**{name: item for name, item in known.items() if item.group in unlisted}, **listing.found}
        for record in list(self._book.slices.values()):
            found = listing.found.get(record.name)
            # A slice of a group that the file has no more may be anywhere.
            is_listed = record.group not in unlisted if self._fleet.group(record.group) else not unlisted
            if found is not None or (is_listed and self._calls.was_idle_since(record, began_ms)):
                self._settle(record, after_list(record, found, now_ms), now_ms)
            if found is not None and found.phase is Phase.BROKEN and known.get(record.name) != found:
                self._note_failure(record, found, now_ms)
        for name, found in listing.found.items():
            if name not in self._book.slices:
                self._book.put(adopted(found, self._fleet.by_name, now_ms))

    def _note_failure(self, record: SliceRecord, found: SliceFound, now_ms: int) -> None:
        """Close what failed after `create` was accepted."""
        group = self._fleet.group(record.group)
        if group is not None and record.state.is_booting and not record.ready_ms:
            self._answer(group, Answer(found.outcome, found.words), now_ms)

    def _settle(self, before: SliceRecord, after: SliceRecord, now_ms: int) -> None:
        """Note what a list changed: that the group works, or that a slice is lost or gone."""
        self._book.put(after)
        group = self._fleet.group(after.group)
        if after.ready_ms and not before.ready_ms and group is not None:
            self._answer(group, _DONE, now_ms)
        if after.state.is_over and not before.state.is_over:
            self._calls.forget(after)
            if group is not None and before.state is not SliceState.REQUESTED:
                self._book.free(group, now_ms)
            if before.state in (SliceState.BOOTING, SliceState.JOINED):
                self._lose(before, SliceUse(), now_ms)


def _has_failed_lately(record: SliceRecord, now_ms: int) -> bool:
    return record.state is SliceState.FAILED and now_ms - record.changed_ms <= _FAILED_LATELY_MS
