"""Calls the provider for slices that are stored, in tasks with deadlines."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from iris.autoscale.book import SliceBook
from iris.autoscale.fleet import Cluster, Fleet
from iris.autoscale.lives import avoided_hosts, host_failures
from iris.autoscale.model import Answer, Outcome, SliceRecord, SliceState
from iris.autoscale.port import Listing, SliceOrder, SliceProvider
from iris.autoscale.transitions import after_create, after_delete, leaving, requested
from iris.domain.ids import WorkerId
from iris.domain.resources import Resources
from iris.domain.scale_groups import ScaleGroup
from rigging.errors import MarinError

logger = logging.getLogger(__name__)

_LONGEST_DELETE_PAUSE_MS: Final = 300_000


class SliceCalls:
    """The calls under way.

    Args:
        provider: Makes slices.
        fleet: What may be created.
        book: The slices.
        cluster: The controller.
        clock_ms: Returns Unix ms.
        on_end: Called after each task.
    """

    def __init__(
        self,
        provider: SliceProvider,
        fleet: Fleet,
        book: SliceBook,
        cluster: Cluster,
        clock_ms: Callable[[], int],
        on_end: Callable[[], None],
    ) -> None:
        self.again: set[str] = set()
        """Slices to request although they may have been: by an earlier controller, or nothing was stored."""
        self.strays: set[WorkerId] = set()
        """Workers of slices that are over, to remove when they are disconnected."""
        self.deleted: set[str] = set()
        """Slices whose deletion the provider has accepted. Lists say later that they are gone."""
        self._provider = provider
        self._fleet = fleet
        self._book = book
        self._cluster = cluster
        self._clock_ms = clock_ms
        self._on_end = on_end
        self._in_flight: set[str] = set()
        self._answered_ms: dict[str, int] = {}
        self._deletes: dict[str, tuple[int, int]] = {}  # how often tried, and when next (Unix ms)
        self._chores: set[asyncio.Task[None]] = set()

    def act(self) -> None:
        """Call the provider for what is stored. What is under way is left to its call."""
        now_ms = self._clock_ms()
        creates, deletes = [], []
        for record in self._book.live():
            name = record.name
            if name in self._in_flight or not self._book.is_stored(name):
                continue
            if record.state is SliceState.WANTED or (record.state is SliceState.REQUESTED and name in self.again):
                creates.append(name)
            elif record.state is SliceState.LEAVING and self._deletes.get(name, (0, 0))[1] <= now_ms:
                deletes.append(name)
            elif record.state is SliceState.LEAVING:
                self._drain_late(record)
        if creates:
            self.spawn(self._create_all(creates), creates)
        if deletes:
            self.spawn(self._delete_all(deletes), deletes)
        for worker_id in [name for name in self.strays if name not in self._in_flight]:
            worker = self._cluster.view.workers.get(worker_id)
            if worker is None:
                self.strays.discard(worker_id)
            elif not worker.connected:
                self.spawn(self._cluster.remove(worker_id, "its slice is gone"), [worker_id])

    def _drain_late(self, record: SliceRecord) -> None:
        """Drain hosts that joined after their slice's delete was asked for."""
        for worker_id in self._workers_of(record):
            worker = self._cluster.view.workers.get(worker_id)
            if worker is not None and worker.is_open and worker_id not in self._in_flight:
                self.spawn(self._cluster.drain(worker_id, record.reason), [worker_id])

    def was_idle_since(self, record: SliceRecord, began_ms: int) -> bool:
        """Return whether no call for a slice was under way after a time (Unix ms): then a list judges it."""
        last_ms = max(record.changed_ms, self._answered_ms.get(record.name, 0))
        return record.name not in self._in_flight and last_ms < began_ms

    def forget(self, record: SliceRecord) -> None:
        """Drop what is known of a slice that is over, and remove its workers when they are disconnected."""
        self.again.discard(record.name)
        self._deletes.pop(record.name, None)
        self._answered_ms.pop(record.name, None)
        self.deleted.discard(record.name)
        self.strays.update(self._workers_of(record))

    def spawn(self, work: Coroutine[Any, Any, None], names: Iterable[str] = ()) -> None:
        """Run a task, during which these slices and workers are in flight."""
        names = tuple(names)
        self._in_flight.update(names)
        chore = asyncio.get_running_loop().create_task(work)
        self._chores.add(chore)

        def finished(_: "asyncio.Task[None]") -> None:
            self._chores.discard(chore)
            self._in_flight.difference_update(names)
            if not chore.cancelled() and (error := chore.exception()) is not None:
                _complain(error)
            self._on_end()

        chore.add_done_callback(finished)

    async def close(self) -> None:
        """Cancel all tasks. The next controller finds what they did."""
        chores = list(self._chores)
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        await self._provider.close()

    async def list(self) -> Listing:
        """Return what the provider has; without an answer, nothing of any group."""
        found: list[Listing] = []

        async def listed() -> Answer:
            found.append(await self._provider.list())
            return Answer(Outcome.DONE)

        answer = await self._ask(listed())
        return found[0] if found else Listing({}, {group.name: answer for group in self._fleet.groups})

    async def _create_all(self, names: Sequence[str]) -> None:
        await self._cluster.confirm()
        now_ms = self._clock_ms()
        for name in names:
            self._book.put(requested(self._book.slices[name], now_ms))
        self.again.update(names)
        if self._book.save(now_ms, self._cluster.record):
            await _all(self._create(name) for name in names)

    async def _create(self, name: str) -> None:
        self.again.discard(name)
        record = self._book.slices[name]
        if record.state is not SliceState.REQUESTED:
            return
        group = self._fleet.group(record.group)
        if group is None:
            self._book.put(leaving(record, f"the cluster file has no scale group {record.group!r}", self._clock_ms()))
            return
        lives, now_ms = self._book.lives, self._clock_ms()
        avoid, failures = frozenset(avoided_hosts(lives, now_ms)), host_failures(lives, now_ms)
        order = SliceOrder(name, group, self._fleet.join_token(name, group), avoid, failures)
        answer = await self._ask(self._provider.create(order))
        now_ms = self._answered_ms[name] = self._clock_ms()
        self._book.put(after_create(self._book.slices[name], answer, now_ms))
        if answer.outcome is not Outcome.DONE:
            self._book.answer(group, answer, now_ms, self._fleet.seed)
        if answer.hosts:
            self._book.lose(record, answer.hosts, now_ms)

    async def _delete_all(self, names: Sequence[str]) -> None:
        await self._cluster.confirm()
        await _all(self._delete(name) for name in names)

    async def _delete(self, name: str) -> None:
        record = self._book.slices[name]
        tries = self._deletes.get(name, (0, 0))[0]
        pause_ms = min(int(self._fleet.rules.look_s * 2000) << min(tries, 16), _LONGEST_DELETE_PAUSE_MS)
        self._deletes[name] = tries + 1, self._clock_ms() + pause_ms
        for worker_id in self._workers_of(record):
            worker = self._cluster.view.workers.get(worker_id)
            if worker is not None and worker.cordon_reason != record.reason:
                await self._cluster.drain(worker_id, record.reason)
        group = self._fleet.group(record.group) or ScaleGroup(record.group, Resources())
        answer = await self._ask(self._provider.delete(name, group))
        self._answered_ms[name] = self._clock_ms()
        self._book.put(after_delete(self._book.slices[name], answer))
        if answer.outcome is Outcome.DONE:
            self.deleted.add(name)
        else:
            logger.warning("slice %s is not deleted yet: %s: %s", name, answer.outcome, answer.words)

    def _workers_of(self, record: SliceRecord) -> Sequence[WorkerId]:
        return self._fleet.workers_of(record, self._cluster.view)

    async def _ask(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        deadline_s = self._fleet.rules.call_deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                return await call
        except TimeoutError:
            return Answer(Outcome.UNKNOWN, f"no answer within {deadline_s:g} s")
        except Exception as error:  # a mistake of a provider stops one slice, not all
            logger.exception("the provider failed")
            return Answer(Outcome.UNKNOWN, f"{type(error).__name__}: {error}")


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    for found in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(found, Exception):
            _complain(found)


def _complain(error: BaseException) -> None:
    # Another mistake than a refusal is ours.
    logger.warning("the autoscaler: %s", error, exc_info=None if isinstance(error, MarinError) else error)
