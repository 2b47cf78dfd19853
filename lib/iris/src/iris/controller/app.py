"""The composition root of the controller: builds every part, serves, and shuts down in order."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from typing import Final, NoReturn

import grpc
import grpc.aio

from iris.autoscale.book import SliceRows
from iris.autoscale.runtime import Autoscaler
from iris.controller.access.authority import check_live
from iris.controller.access.credentials import Credentials
from iris.controller.access.interceptor import ServerInterceptor
from iris.controller.access.stream_server import StreamServer
from iris.controller.assembly import assemble
from iris.controller.config.controller_config import Address, ControllerConfig
from iris.controller.context import Controller, Shutdown
from iris.controller.engine.engine import Engine
from iris.controller.engine.load import load_view
from iris.controller.logs.files import shed
from iris.controller.logs.keeper import LogKeeper
from iris.controller.logs.remote import RemotePieces, recover_notes
from iris.controller.notices.debts import FileDebts, StoredDebts
from iris.controller.notices.notifier import Notifier
from iris.controller.services.servers import make_servers
from iris.controller.storage.disk_space import DiskSpace
from iris.controller.upkeep.idle import IdleWatch
from iris.controller.upkeep.ledger_keeper import LedgerKeeper
from iris.controller.upkeep.retention import Retention
from iris.controller.upkeep.slices import AutoscaledCluster
from iris.controller.upkeep.usage_keeper import UsageKeeper
from iris.core.state.names import NameFilter
from iris.core.state.view import ClusterView
from iris.domain.errors import StorageUnavailable
from iris.domain.events import BudgetSet, ControllerStarted
from iris.domain.ids import WorkerId
from iris.rpc.auth import load_or_create_secret
from iris.store.damage import DatabaseDamaged
from iris.store.replicate.leadership import Leadership, acquire
from iris.store.replicate.remote import SECRETS
from iris.store.replicate.replicator import Replicator
from iris.store.store import Store
from iris.tls.certificates import read_authority
from rigging.clock import unix_ms
from rigging.errors import Conflict, MarinError

__all__ = ["Address", "ControllerConfig", "serve"]

logger = logging.getLogger(__name__)

COMMIT_FAILED_EXIT_CODE: Final = 70
LOST_LEADERSHIP_EXIT_CODE: Final = 71

_FAREWELL_S: Final = 12.0
_LAST_ANSWERS_S: Final = 1.0


async def serve(
    config: ControllerConfig,
    on_ready: Callable[[Address], None] | None = None,
    stop: asyncio.Event | None = None,
    on_worker: Callable[[WorkerId], None] | None = None,
    on_leaving: Callable[[], None] | None = None,
    worker_trouble: Callable[[], str] | None = None,
    on_controller: Callable[[Controller], None] | None = None,
    autoscaler: Callable[[SliceRows, Credentials], Autoscaler] | None = None,
) -> None:
    """Run a controller until it is shut down, idle for `config.idle_exit_s`, or `stop` is set.

    After `stop` the workers and their attempts continue and wait for the next controller. Cancelling this task has the
    same effect, without a graceful shutdown. On shutdown or idle exit, the workers stop too.

    Args:
        config: The controller's settings.
        on_ready: Called with the address once calls are served.
        stop: Set this to end the controller; the workers continue.
        on_worker: Called with the id of each worker that connects or reconnects, in this call's event loop.
        on_leaving: Called at the decision to exit, before the workers are notified.
        worker_trouble: Returns why the caller's own worker does not start; "" if it starts.
        on_controller: Called with the controller's parts before any call is served.
        autoscaler: Returns the autoscaler, which starts when calls are served; None starts no machines.

    Raises:
        Conflict: The port is taken, another controller uses the state directory, or a newer release wrote it.
        DatabaseDamaged: The database is damaged. The message names the commands to repair it.
    """
    space = DiskSpace(config.state_dir, config.disk_reserve_bytes)
    space.give_way(lambda wanted: shed(config.state_dir / "logs", wanted))
    leadership = None
    if config.remote_state_dir:
        leadership = await asyncio.to_thread(
            acquire, config.remote_state_dir, config.state_dir, config.pace.lease_timeout_s
        )
    try:
        store, replicator = _open(config, leadership)
    except DatabaseDamaged as error:
        raise DatabaseDamaged(error.database, error.what, config.remote_state_dir) from None
    try:
        if replicator is not None:
            await asyncio.to_thread(replicator.start)
        space.tend()
        secret = load_or_create_secret(config.state_dir / "secret")
        try:
            view = load_view(store, ClusterView)
            credentials = Credentials(store, unix_ms, config.ca_sha256)
            scaler = autoscaler(store, credentials) if autoscaler is not None else None
            parts = (store, view, secret, replicator, space, credentials, scaler)
            run = _Run(config, *parts, on_worker or _ignore, worker_trouble or str)
            run.restore()
        except DatabaseDamaged as error:
            raise DatabaseDamaged(error.database, error.what, config.remote_state_dir) from None
        if on_controller is not None:
            on_controller(run.controller)
        await run.serve(on_ready, stop, on_leaving)
    finally:
        if replicator is not None:
            await asyncio.to_thread(replicator.close)
        store.close()


def _open(config: ControllerConfig, leadership: Leadership | None) -> tuple[Store, Replicator | None]:
    if leadership is None:
        return Store.open(config.state_dir), None
    try:
        store = Store.open(config.state_dir, leadership.generation)
    except BaseException:
        leadership.lock.release()
        raise
    assert store.journal is not None  # it has a generation
    for name in SECRETS:
        load_or_create_secret(config.state_dir / name)
        leadership.remote.put_secret(name, (config.state_dir / name).read_bytes())
    if config.tls is not None:
        leadership.remote.put_authority(read_authority(config.state_dir))
    return store, Replicator(leadership, config.state_dir, store.journal, config.pace, _lost_leadership)


class _Run:
    """One life of a controller."""

    def __init__(
        self,
        config: ControllerConfig,
        store: Store,
        view: ClusterView,
        secret: bytes,
        replicator: Replicator | None,
        space: DiskSpace,
        credentials: Credentials,
        autoscaler: Autoscaler | None,
        on_worker: Callable[[WorkerId], None],
        worker_trouble: Callable[[], str],
    ) -> None:
        self._config = config
        self._store = store
        self._exit: asyncio.Future[Shutdown] = asyncio.get_running_loop().create_future()
        self._leaves_for_good = False
        self._engine = Engine(view, store, unix_ms, _die, space.release)
        self._notifier = _notifier(config, view, store)
        self._idle = IdleWatch(config.idle_exit_s, self._in_use, self._leave_idle)
        self.controller = assemble(
            config,
            self._engine,
            secret=secret,
            clock_ms=unix_ms,
            request_exit=self._request_exit,
            on_worker=on_worker,
            on_client=self._idle.touch,
            replicator=replicator,
            space=space,
            notifier=self._notifier,
            worker_trouble=worker_trouble,
            credentials=credentials,
            autoscaler=autoscaler,
            usage_of=store.usage_of,
            series=store,
            history=store.history,
        )
        self._usage = UsageKeeper(view.usage, store, unix_ms)
        self._ledger = LedgerKeeper(self._engine, store, unix_ms, prices=dict(config.prices))
        logs = self.controller.hub.store
        self._moved_logs = RemotePieces(config.remote_state_dir) if config.remote_state_dir else None
        self._log_keeper = LogKeeper(logs, self._moved_logs, asyncio.get_running_loop().call_soon_threadsafe)
        self._retention = Retention(
            config, self._engine, logs, self.controller.blobs, store.history, store.forget_events
        )

    def restore(self) -> None:
        """Load the stored state. Raise DatabaseDamaged."""
        self.controller.blobs.remove_leftovers()
        self.controller.hub.store.begin_results(unix_ms())
        self._usage.restore()
        for budget in self._config.user_budgets:
            self._engine.post(BudgetSet(budget))
        self.controller.credentials.restore()
        if self._moved_logs is not None:
            hub = self.controller.hub
            recover_notes(hub.store, self._moved_logs, hub.is_known)

    async def serve(
        self,
        on_ready: Callable[[Address], None] | None,
        stop: asyncio.Event | None,
        on_leaving: Callable[[], None] | None,
    ) -> None:
        server, local, address = self._bind()
        await server.start()
        await local.start()
        chores: list[asyncio.Task[None]] = []
        try:
            self.controller.sessions.start()
            self._idle.start()
            self._log_keeper.start()
            self._notifier.restore(self._store.history.numbered)
            self._engine.record(ControllerStarted(self.controller.version()))
            self._engine.wake()
            live = self.controller.live_usage
            keepers = (
                *(self._retention.run(), self._usage.run(), self._ledger.run()),
                *(live.run(), live.history.run(), self._learn_names()),
            )
            chores += map(asyncio.create_task, keepers)
            chores.append(asyncio.create_task(self.controller.dashboard.begin(address)))
            logger.info("serving on %s, state in %s", address, self._config.state_dir)
            if on_ready is not None:
                on_ready(address)
            if self.controller.autoscaler is not None:
                self.controller.autoscaler.begin(AutoscaledCluster(self.controller))
            leaving = await self._wait_for_exit(stop)
            self._leaves_for_good = leaving.workers_exit
            logger.info("leaving: %s", leaving.reason)
            if on_leaving is not None:
                on_leaving()
            await self._close_autoscaler()
            self.controller.end_waits()
            await self.controller.sessions.say_goodbye(leaving.reason, leaving.workers_exit, _FAREWELL_S)
        finally:
            for chore in chores:
                chore.cancel()
            await self._close_autoscaler()
            if self.controller.barrier is not None:
                self.controller.barrier.close()
            await self.controller.queries.close()
            await self.controller.dashboard.close(for_good=self._leaves_for_good)
            self._idle.close()
            self._log_keeper.close()
            await self._notifier.close()
            self.controller.sessions.stop_timers()
            self.controller.end_waits()
            self._engine.close()
            self._usage.save_or_tell()
            self._ledger.save_or_tell()
            self.controller.live_usage.history.save()
            await asyncio.gather(server.stop(_LAST_ANSWERS_S), local.stop(_LAST_ANSWERS_S))

    async def _learn_names(self) -> None:
        """Let the view deny unknown names without a look into the store."""
        try:
            names = await asyncio.to_thread(lambda: NameFilter(self._store.history.names()))
        except StorageUnavailable as error:
            logger.warning("each new job is looked up: %s", error)
        else:
            self._engine.view.names.complete(names)

    async def _close_autoscaler(self) -> None:
        if self.controller.autoscaler is not None:
            await self.controller.autoscaler.close()

    def _bind(self) -> tuple[grpc.aio.Server, StreamServer, Address]:
        view = self._engine.view
        interceptor = ServerInterceptor(
            self.controller.secret,
            self._idle.on_call,
            lambda principal: check_live(principal, view),
            verify_kept=self.controller.credentials.verify,
            users=self.controller.credentials.users,
            protocol_version=self._config.protocol_version,
            figures=self._engine.figures,
            audit=self._engine.record,
        )
        server, local = make_servers(self.controller, interceptor)
        wanted = Address(self._config.host, self._config.port)
        try:
            tls = self._config.tls
            if tls is None:
                port = server.add_insecure_port(str(wanted))
            else:
                identity = grpc.ssl_server_credentials([(tls.key, tls.certificate)])
                port = server.add_secure_port(str(wanted), identity)
        except RuntimeError as error:
            raise Conflict(f"cannot listen on {wanted}: port taken, or not a host of this machine") from error
        return server, local, Address(self._config.host, port)

    async def _wait_for_exit(self, stop: asyncio.Event | None) -> Shutdown:
        if stop is None:
            return await self._exit
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((stopping, self._exit), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        return (
            self._exit.result()
            if self._exit.done()
            else Shutdown("the controller was told to stop", workers_exit=False)
        )

    def _request_exit(self, reason: Shutdown) -> None:
        if not self._exit.done():
            self._exit.set_result(reason)

    def _in_use(self) -> bool:
        return bool(self._engine.view.live_jobs) or not self.controller.clients.is_idle

    def _leave_idle(self) -> None:
        self._request_exit(Shutdown(f"idle for {self._config.idle_exit_s:g} s", workers_exit=True))


def _notifier(config: ControllerConfig, view: ClusterView, store: Store) -> Notifier:
    # A secret of its own: it is given to those who are told, who must not be able to make tokens by it.
    secret = load_or_create_secret(config.state_dir / "notify-secret")
    files = FileDebts(config.state_dir / "notices")
    soon = asyncio.get_running_loop().call_soon
    debts = StoredDebts(store, soon, files) if config.remote_state_dir else files
    return Notifier(view, debts, secret.hex().encode(), config.notices, unix_ms, config.cluster_name)


def _ignore(worker_id: WorkerId) -> None:
    del worker_id


def _die(error: Exception) -> NoReturn:
    """Exit immediately, so that no client sees state that is not on disk."""
    # What is damaged, and which command helps, is said by the error itself.
    known = isinstance(error, MarinError)
    logger.critical("cannot commit to the database, so the controller ends", exc_info=None if known else error)
    print(f"iris controller: cannot commit to the database ({error}); ending", file=sys.stderr, flush=True)
    os._exit(COMMIT_FAILED_EXIT_CODE)


def _lost_leadership(reason: str) -> NoReturn:
    """Exit immediately, because another controller may have taken over, and two must not run."""
    logger.critical("another controller may have taken over, so this one ends: %s", reason)
    print(f"iris controller: deposed ({reason}); ending", file=sys.stderr, flush=True)
    os._exit(LOST_LEADERSHIP_EXIT_CODE)
