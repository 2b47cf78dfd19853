"""Keeps the slices of a local cluster running: starts them for pending jobs, releases unused ones."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from iris.controller.context import Controller
from iris.domain.effects import Effect
from iris.domain.scale_groups import GROUP_ATTRIBUTE
from iris.local.fleet.demand import is_unused, slices_wanted
from iris.local.fleet.host import StartHost, read_host, start_host_process
from iris.local.fleet.slices import SLICE_ATTRIBUTE, FakeHost, FleetPlan, Slice
from iris.local.state import HostPaths, LocalPaths, lock_holder
from iris.local.stop import stop_host
from iris.local.worker_keeper import WorkerKeeper
from iris.worker.host.removal import remove_tree

logger = logging.getLogger(__name__)

IDLE_SECONDS: Final = 60.0
"""A slice beyond `min_slices` is released after being unused for this long."""
CROWDED_SECONDS: Final = 2.0
"""Like `IDLE_SECONDS`, if a job waits for a slice and `max_hosts` is reached."""
LOOK_SECONDS: Final = 1.0
_SOON_SECONDS: Final = 0.02
"""Delay after an event, to handle bursts of events together."""
_GOES: Final = "its slice is idle and is released"


@dataclass(slots=True)
class _Running:
    """A started slice."""

    item: Slice
    used_at: float
    keepers: dict[str, WorkerKeeper] = field(default_factory=dict)


class FleetKeeper:
    """The slices of one controller. Runs in the controller's loop.

    Args:
        paths: The files of the local cluster.
        plan: The possible slices.
        on_ready: Called once when the initial slices have joined.
        on_trouble: Called with the reason if a slice does not start, and with "" when all slices have started.
            idle_seconds, crowded_seconds: See `IDLE_SECONDS` and `CROWDED_SECONDS`.
        look_seconds: Interval between checks while there are slices to release.
        start_host, end_host: Start and end the process of a host; called in a thread.
    """

    def __init__(
        self,
        paths: LocalPaths,
        plan: FleetPlan,
        on_ready: Callable[[], None],
        on_trouble: Callable[[str], None],
        *,
        idle_seconds: float = IDLE_SECONDS,
        crowded_seconds: float = CROWDED_SECONDS,
        look_seconds: float = LOOK_SECONDS,
        start_host: StartHost = start_host_process,
        end_host: Callable[[HostPaths], None] = stop_host,
    ) -> None:
        self._paths = paths
        self._plan = plan
        self._on_ready = on_ready
        self._on_trouble = on_trouble
        self._idle_seconds, self._crowded_seconds, self._look_seconds = idle_seconds, crowded_seconds, look_seconds
        self._start_host, self._end_host = start_host, end_host
        self._loop = asyncio.get_running_loop()
        self._controller: Controller | None = None
        self._running: dict[str, _Running] = {}
        self._leaving: dict[str, Slice] = {}
        self._troubles: dict[str, str] = {}
        self._told = self._crowded = ""
        self._chores: set[asyncio.Task[Any]] = set()
        self._look_due: asyncio.TimerHandle | None = None
        self._is_open = self._is_ready = False

    def attach(self, controller: Controller) -> None:
        """Set the controller whose jobs to serve."""
        self._controller = controller
        controller.engine.listen(self._on_effects)

    def begin(self) -> None:
        """Start the initial slices; called when the controller listens."""
        self._is_open = True
        for item in (*self._former(), *self._plan.first):
            if item.name not in self._running:
                self._start(item)
        self._look()

    def _former(self) -> list[Slice]:
        """Return the slices of an earlier controller. End the hosts of slices that it was releasing."""
        groups = {group.name: group for group in self._plan.groups}
        found: dict[str, Slice] = {}
        for files in self._paths.known_hosts():
            host = read_host(files)
            attributes = dict(host.attributes) if host is not None else {}
            group = groups.get(attributes.get(GROUP_ATTRIBUTE, ""))
            name = attributes.get(SLICE_ATTRIBUTE, "")
            number = name.rpartition("-")[2]
            if group is not None and number.isdigit() and name == Slice(group, int(number)).name:
                found[name] = Slice(group, int(number))
            elif lock_holder(files.worker_lock) is not None:
                self._in_background(asyncio.to_thread(self._end_host, files))
        return list(found.values())

    def on_worker(self, worker_id: str) -> None:
        """Handle a host that has joined, or joined again."""
        for running in self._running.values():
            for host in running.item.hosts:
                if host.worker_id == worker_id:
                    running.used_at = time.monotonic()
                    running.keepers[host.name].on_worker()
                    self._use_again(host)
        self._look_soon()

    def _use_again(self, host: FakeHost) -> None:
        """Reuse a host that an earlier controller was releasing."""
        worker = self._controller.view.workers.get(host.worker_id) if self._controller is not None else None
        if self._controller is not None and worker is not None and worker.cordon_reason == _GOES:
            self._in_background(self._controller.uncordon(host.worker_id))

    @property
    def trouble(self) -> str:
        """Return why a slice does not start; "" if all slices have started."""
        return "; ".join(filter(None, (*self._troubles.values(), self._crowded)))

    def close(self) -> None:
        """Stop replacing ended hosts, because the controller exits."""
        self._is_open = False
        if self._look_due is not None:
            self._look_due.cancel()
        for running in self._running.values():
            for keeper in running.keepers.values():
                keeper.close()

    def _start(self, item: Slice) -> None:
        logger.info("starting slice %s, %d hosts", item.name, item.group.hosts_per_slice)
        running = self._running[item.name] = _Running(item, time.monotonic())
        for host in item.hosts:
            running.keepers[host.name] = keeper = self._keeper(host)
            keeper.start()

    def _keeper(self, host: FakeHost) -> WorkerKeeper:
        def told(trouble: str) -> None:
            self._troubles.pop(host.name, None)
            if trouble:
                self._troubles[host.name] = f"{host.name}: {trouble}"
            self._tell()

        return WorkerKeeper(self._paths.host(host.name), lambda: self._start_host(self._paths, host), told)

    def _on_effects(self, effects: Sequence[Effect]) -> None:
        del effects  # whatever it was, something may wait now, or wait no more
        self._look_soon()

    def _look_soon(self, seconds: float = _SOON_SECONDS) -> None:
        if not self._is_open:
            return
        due = self._loop.time() + seconds
        if self._look_due is not None:
            if self._look_due.when() <= due:
                return
            self._look_due.cancel()
        self._look_due = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        self._look_due = None
        controller = self._controller
        if controller is None or not self._is_open:
            return
        view = controller.view
        present = [running.item for running in self._running.values()]
        wanted = slices_wanted(view, self._plan.groups, present, tuple(self._leaving.values()), self._plan.max_hosts)
        for item in wanted.start:
            self._start(item)
        self._crowded = next(iter(wanted.refused.values()), "")
        self._forget_strays(controller)
        self._let_go(controller, crowded=bool(wanted.refused))
        if not self._is_ready and self._have_joined(controller):
            self._is_ready = True
            self._on_ready()
        if self._running or self._leaving:
            self._look_soon(self._look_seconds)

    def _have_joined(self, controller: Controller) -> bool:
        workers = controller.view.workers
        hosts = [host.worker_id for item in self._plan.first for host in item.hosts]
        return all(name in workers and workers[name].connected for name in hosts)

    def _let_go(self, controller: Controller, *, crowded: bool) -> None:
        """Release unused slices beyond the minimum."""
        now = time.monotonic()
        patience = min(self._idle_seconds, self._crowded_seconds) if crowded else self._idle_seconds
        counts: dict[str, int] = {}
        for running in self._running.values():
            counts[running.item.group.name] = counts.get(running.item.group.name, 0) + 1
        for running in reversed(list(self._running.values())):
            group = running.item.group
            if not is_unused(controller.view, running.item):
                running.used_at = now
            elif counts[group.name] > group.min_slices and now - running.used_at >= patience:
                counts[group.name] -= 1
                self._release(controller, running)

    def _release(self, controller: Controller, running: _Running) -> None:
        item = running.item
        logger.info("slice %s is idle and is released", item.name)
        del self._running[item.name]
        self._leaving[item.name] = item
        for name, keeper in running.keepers.items():
            keeper.close()
            self._troubles.pop(name, None)
        self._in_background(self._end(controller, item))

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        chore = self._loop.create_task(work)
        self._chores.add(chore)
        chore.add_done_callback(self._finished)

    def _finished(self, chore: "asyncio.Task[Any]") -> None:
        self._chores.discard(chore)
        if not chore.cancelled() and (error := chore.exception()) is not None:
            logger.warning("%s", error)

    def _forget_strays(self, controller: Controller) -> None:
        """Remove the workers of ended slices, so that their names can be reused."""
        if self._chores:
            return
        wanted = {host.worker_id for running in self._running.values() for host in running.item.hosts}
        for worker_id, worker in controller.view.workers.items():
            is_stray = SLICE_ATTRIBUTE in worker.attributes and worker_id not in wanted and not worker.connected
            if is_stray:
                self._in_background(controller.remove_worker(worker_id, "its slice was released"))

    async def _end(self, controller: Controller, item: Slice) -> None:
        """End the hosts of a slice. Retries of tasks that were assigned meanwhile do not count."""
        try:
            for host in item.hosts:
                await controller.cordon(host.worker_id, _GOES, drain=True)
            for host in item.hosts:
                files = self._paths.host(host.name)
                files.description.unlink(missing_ok=True)
                await asyncio.to_thread(self._end_host, files)
                await asyncio.to_thread(remove_tree, str(files.worker_dir))
        finally:
            self._leaving.pop(item.name, None)
            self._look_soon()

    def _tell(self) -> None:
        trouble = "; ".join(self._troubles.values())  # crowding is no trouble of the cluster's
        if trouble != self._told:
            self._told = trouble
            self._on_trouble(trouble)
