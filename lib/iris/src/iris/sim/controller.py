"""One run of the real controller in a simulated process: engine, sessions, services and store, without sockets."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from iris.controller.access.authority import check_live
from iris.controller.access.credentials import Credentials
from iris.controller.access.interceptor import ServerInterceptor
from iris.controller.assembly import assemble
from iris.controller.config.controller_config import ControllerConfig
from iris.controller.engine.engine import Engine
from iris.controller.engine.load import load_view
from iris.controller.services.jobs import JobService
from iris.controller.services.worker import WorkerService
from iris.controller.upkeep.ledger_keeper import EVERY_S, LedgerKeeper
from iris.core.state import invariants
from iris.core.state.changes import Changes
from iris.core.state.view import ClusterView
from iris.domain.events import ControllerStarted, Event, WorkerLate, WorkerLost
from iris.rpc.generated import iris_pb2_grpc
from iris.sim.capacity import Capacity, read_all
from iris.sim.ledger import CommitFault, Ledger, WatchedStore
from iris.sim.network import Network
from iris.sim.physics import Physics
from iris.sim.server import Server
from iris.sim.world import Crash, Node, World
from iris.store.db import DATABASE_NAME
from iris.store.event_rows import EVENT_COLUMNS
from iris.store.rows import Row
from iris.store.store import Store

EPOCH_MS: Final = 1_700_000_000_000
_FAREWELL_S: Final = 2.0


class CheckedView(ClusterView):
    """A view whose invariants are checked after every event."""

    shelf_jobs = shelf_tasks = 0  # everything that may leave the memory does
    is_checked = False
    note: Callable[[Changes], None] | None = None

    def apply(self, changes: Changes) -> None:
        super().apply(changes)
        if self.is_checked:
            if self.note is not None:
                self.note(changes)
            invariants.check(self)


class _Engine(Engine):
    """The real engine, with a hook for posted events."""

    overhear: Callable[[Event], None]

    def post(self, event: Event) -> None:
        self.overhear(event)
        super().post(event)


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults of one run of the controller.

    Args:
        commits: By the commit's number in this run, from 1.
        dies_at_step: The controller is killed before this callback of its loop; 0 for never.
        slow_s: Duration of a slow commit.
    """

    commits: dict[int, CommitFault]
    dies_at_step: int = 0
    slow_s: float = 2.0


NO_FAULTS: Final = Faults({})


class ControllerLife:
    """One controller process from its start to its end.

    Args:
        on_violation: Called with a violated invariant.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        config: ControllerConfig,
        secret: bytes,
        ledger: Ledger,
        physics: Physics,
        faults: Faults,
        number: int,
    ) -> None:
        self.node = Node(world, f"controller#{number}")
        self.faults = faults
        self._world = world
        self._network = network
        self._config = config
        self._secret = secret
        self._ledger = ledger
        self._physics = physics
        self._commits = 0
        self.capacity = Capacity()
        self._store = Store.open(config.state_dir)
        self.node.on_death.append(self._bury)
        self.node.run(self._build)

    @property
    def is_up(self) -> bool:
        return not self.node.is_dying

    @property
    def view(self) -> ClusterView:
        return self.engine.view

    def event_rows(self) -> list[Row]:
        """Return all stored events, in order."""
        with closing(sqlite3.connect(self._config.state_dir / DATABASE_NAME)) as database:
            return database.execute(f"SELECT {', '.join(EVENT_COLUMNS)} FROM events ORDER BY sequence").fetchall()

    def judge_ledger(self) -> Iterator[str]:
        """Save the ledger, and yield what this life did not count, or counted twice."""
        self.capacity.look(self.view, self._clock_ms())
        self.ledger.save_or_tell()
        yield from self.capacity.violations(self._before, read_all(self._config.state_dir))

    def stop_in_order(self) -> None:
        """Say goodbye to the workers, then end, like the process at SIGTERM."""
        if self.is_up:
            self.node.run(self.node.create_task, self._leave())

    def kill(self, why: str) -> None:
        self.node.kill(why)

    def _build(self) -> None:
        self._ledger.compare(self._store)
        view = load_view(self._store, CheckedView)
        view.is_checked = True
        store = WatchedStore(self._store, self._ledger, self._next_fault, self._hold_up, lambda: self.node.is_dying)
        self.engine = _Engine(view, store, self._clock_ms, self._die)
        self.engine.overhear = self._overhear
        controller = self.controller = assemble(
            self._config,
            self.engine,
            secret=self._secret,
            clock_ms=self._clock_ms,
            request_exit=_ignore,
            credentials=Credentials(self._store, self._clock_ms),
            history=self._store.history,
        )
        # Its own group for each worker: so the law holds for each of them.
        self.ledger = LedgerKeeper(self.engine, self._store, self._clock_ms, lambda worker: worker.worker_id)
        self._before = read_all(self._config.state_dir)
        self.capacity.look(view, self._store.load_ledger()[1] or self._clock_ms())
        self.engine.listen_to_changes(lambda _: self.capacity.look(view, self._clock_ms()))
        self._world.call_in(EVERY_S, self._save_ledger)
        interceptor = ServerInterceptor(self._secret, _ignore, lambda principal: check_live(principal, view))
        server = Server(self.node, interceptor, self._ledger.inspect)
        registry: Any = server
        iris_pb2_grpc.add_JobServiceServicer_to_server(JobService(controller), registry)
        iris_pb2_grpc.add_WorkerServiceServicer_to_server(WorkerService(controller), registry)
        self.controller.sessions.start()
        self.engine.record(ControllerStarted("simulated"))
        self.engine.wake()
        self._network.server = server

    def _save_ledger(self) -> None:
        # Beside the loop, whose callbacks the scenario counts.
        if self.is_up:
            if self.node.busy_until <= self._world.now:
                self.ledger.save_or_tell()
            self._world.call_in(EVERY_S, self._save_ledger)

    async def _leave(self) -> None:
        self.controller.waiters.close()
        await self.controller.sessions.say_goodbye("the controller was told to stop", False, _FAREWELL_S)
        self.controller.sessions.stop_timers()
        self.node.call_soon(self._end)

    def _end(self) -> None:
        # No part of the task above: a crash in a task would end only the task.
        self.engine.close()
        self.ledger.save_or_tell()
        self.node.call_soon(self.node.kill, "stopped in order")

    def _bury(self) -> None:
        if self._network.server is not None and self._network.server.node is self.node:
            self._network.server = None
        if isinstance(self.view, CheckedView):
            self.view.is_checked = False  # what is left of it would ask a store that is closed
        self._store.close()

    def _clock_ms(self) -> int:
        return EPOCH_MS + int(self._world.now * 1000)

    def _next_fault(self) -> CommitFault | None:
        self._commits += 1
        return self.faults.commits.get(self._commits)

    def _hold_up(self) -> None:
        self.node.busy_until = self._world.now + self.faults.slow_s

    def _overhear(self, event: Event) -> None:
        if isinstance(event, WorkerLost | WorkerLate):
            # From now on what runs there cannot be stopped before the worker is back.
            self._physics.excused.update(
                name for name, worker_id in self._ledger.granted.items() if worker_id == event.worker_id
            )

    def _die(self, error: Exception) -> None:
        raise Crash(f"cannot commit: {error}")


def _ignore(what: object) -> None:
    del what
