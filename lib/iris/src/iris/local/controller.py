"""Runs the controller of a local cluster, with its address in cluster.json."""

import asyncio
import contextlib
import dataclasses
import importlib.metadata
import logging
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from iris.autoscale.fleet import Fleet
from iris.autoscale.runtime import Autoscaler
from iris.controller.app import Address, ControllerConfig, serve
from iris.controller.config.cluster_file import read_cluster_config
from iris.controller.config.controller_config import Durability
from iris.controller.config.options import Given, controller_config
from iris.controller.context import Controller
from iris.domain.ids import WorkerId
from iris.domain.scale_groups import GROUP_ATTRIBUTE
from iris.local.fleet.provider import LocalProvider, local_rules, local_worker_id
from iris.local.fleet.slices import plan_fleet
from iris.local.interrupts import stop_on_signals
from iris.local.settings import read_settings
from iris.local.state import WORKER_ID, ClusterRecord, LocalPaths, read_record, write_record
from iris.local.worker_keeper import WorkerKeeper, WorkerStart
from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.protocol import PROTOCOL_VERSION
from iris.store.db import SchemaTooOld
from iris.store.replicate.restore import set_aside_all
from iris.user_name import default_user
from rigging.clock import unix_ms
from rigging.errors import Conflict, Unavailable
from rigging.log_setup import configure_logging

logger = logging.getLogger(__name__)

SAVE_AGAIN_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 5.0


def serve_local(
    paths: LocalPaths,
    idle_exit_seconds: float,
    *,
    first_worker: WorkerStart | None,
    start_worker: Callable[[], WorkerStart],
    on_listening: Callable[[], None],
    on_ready: Callable[[], None],
    on_trouble: Callable[[str], None],
    look_seconds: float = LOOK_SECONDS,
    save_again_seconds: float = SAVE_AGAIN_SECONDS,
) -> None:
    """Run the controller until it exits.

    Args:
        paths: The files of the local cluster.
        idle_exit_seconds: Exit after this long without jobs and clients; 0 for never.
        first_worker: The worker process started with the controller; None if the cluster has slices instead of one
            worker.
        start_worker: Starts a new worker process when the current one has exited.
        on_listening: Called when cluster.json contains the controller's address.
        on_ready: Called when the worker has also joined.
        on_trouble: Called with the reason if the worker does not start.
        look_seconds: Interval between checks that cluster.json exists.
        save_again_seconds: Delay before retrying a failed write of cluster.json.

    Raises:
        MarinError: The state directory is damaged or no port is free.
    """
    configure_logging(logging.INFO)
    # A controller that comes back where the former was is found by tasks that know only the address.
    former = read_record(paths)
    port = _port_of(former.address) if former is not None else 0
    worker = _Worker(first_worker, start_worker) if first_worker is not None else None
    pauses = (look_seconds, save_again_seconds)
    run = _Run(paths, idle_exit_seconds, worker, on_listening, on_ready, on_trouble, pauses)
    try:
        asyncio.run(run.serve(port))
    except SchemaTooOld as error:
        logger.warning(
            "%s. It is kept in %s, and the cluster starts with an empty state", error, set_aside_all(paths.root)
        )
        asyncio.run(run.serve(port))
    except Conflict as error:
        if not port or run.listened:
            raise
        logger.warning("%s; taking another port", error)
        asyncio.run(run.serve(0))
    with contextlib.suppress(FileNotFoundError):
        paths.record.unlink()


@dataclasses.dataclass(frozen=True, slots=True)
class _Worker:
    first: WorkerStart
    start_another: Callable[[], WorkerStart]


class _Run:
    def __init__(
        self,
        paths: LocalPaths,
        idle_exit_seconds: float,
        worker: _Worker | None,
        on_listening: Callable[[], None],
        on_ready: Callable[[], None],
        on_trouble: Callable[[str], None],
        pauses: tuple[float, float],
    ) -> None:
        self._paths = paths
        self._look_seconds, self._save_again_seconds = pauses
        self._idle_exit_seconds = idle_exit_seconds
        self._worker = worker
        self._on_listening = on_listening
        self._on_ready = on_ready
        self._on_trouble = on_trouble
        self._record: ClusterRecord | None = None
        self.listened = False

    async def serve(self, port: int) -> None:
        """Try to serve once, on one port (0 for any)."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        stop_on_signals(loop, stop, lambda: "the worker and its tasks continue; `iris cluster stop --force` ends them")
        config = local_config(self._paths, port, self._idle_exit_seconds)
        if self._worker is None:
            await self._serve_slices(config, stop)
            return
        first = self._worker.first
        keeper = WorkerKeeper(self._paths, self._worker.start_another, self._trouble)

        def listens(address: Address) -> None:
            self._tell(address)
            keeper.watch_start(first)

        def joined(worker_id: str) -> None:
            del worker_id  # there is one
            keeper.on_worker()
            self._ready()

        try:
            await serve(config, listens, stop, joined, keeper.close, self._worker_trouble)
        finally:
            keeper.close()

    async def _serve_slices(self, config: ControllerConfig, stop: asyncio.Event) -> None:
        plan = plan_fleet(config.scale_groups, read_settings(self._paths).max_hosts)
        config = dataclasses.replace(config, scale_groups=plan.groups)
        provider = LocalProvider(self._paths, plan.groups, self._trouble)
        fleet = Fleet(plan.groups, local_rules(plan.max_hosts), worker_id=local_worker_id)
        sizes = {group.name: group.hosts_per_slice for group in plan.groups}
        missing = {name: count * sizes[name] for name, count in plan.first.items()}
        started: list[Controller] = []

        def listens(address: Address) -> None:
            self._tell(address)
            if not missing:
                self._ready()

        def joined(worker_id: WorkerId) -> None:
            provider.on_worker(worker_id)
            workers = started[0].view.workers.values()
            groups = Counter(worker.attributes.get(GROUP_ATTRIBUTE) for worker in workers if worker.connected)
            if all(groups[name] >= count for name, count in missing.items()):
                self._ready()

        await serve(
            config,
            listens,
            stop,
            joined,
            worker_trouble=lambda: provider.trouble,
            on_controller=started.append,
            autoscaler=lambda rows, _: Autoscaler(provider, rows, fleet, unix_ms),
        )

    def _tell(self, address: Address) -> None:
        """Write the record; called when the controller answers."""
        self.listened = True
        secret = load_or_create_secret(self._paths.root / "secret")
        record = ClusterRecord(
            pid=os.getpid(),
            address=str(address),
            token=make_token(secret, PrincipalKind.ADMIN, default_user()),
            worker_token=make_token(secret, PrincipalKind.WORKER, WORKER_ID),
            protocol_version=PROTOCOL_VERSION,
            version=importlib.metadata.version("marin-iris"),
            started_at_ms=unix_ms(),
            idle_exit_seconds=self._idle_exit_seconds,
            ready=False,
        )
        write_record(self._paths, record)
        self._record = record
        asyncio.get_running_loop().call_later(self._look_seconds, self._look)
        self._on_listening()

    def _ready(self) -> None:
        """Record that the worker has joined; called at each join."""
        if self._record is not None and not self._record.ready:
            self._record = dataclasses.replace(self._record, ready=True)
            self._save()

    def _trouble(self, trouble: str) -> None:
        """Record why the worker does not start; "" when it has joined."""
        log = self._paths.worker_log if self._worker is not None else self._paths.hosts / "NAME" / "worker.log"
        trouble = f"{trouble} (its log: {log})" if trouble else ""
        if self._record is not None and self._record.worker_trouble != trouble:
            self._record = dataclasses.replace(self._record, worker_trouble=trouble)
            self._save()
        if trouble:
            self._on_trouble(trouble)

    def _look(self) -> None:
        """Rewrite a damaged or removed record, because clients need it to find this controller."""
        asyncio.get_running_loop().call_later(self._look_seconds, self._look)
        with contextlib.suppress(Unavailable):
            if read_record(self._paths) == self._record:
                return
        self._save()

    def _save(self) -> None:
        """Write the changed record; retry while the disk is full."""
        if self._record is None:
            return
        try:
            write_record(self._paths, self._record)
        except OSError as error:
            logger.error("cannot write %s: %s", self._paths.record, error.strerror)
            asyncio.get_running_loop().call_later(self._save_again_seconds, self._save)
            return
        if self._record.ready:
            self._on_ready()

    def _worker_trouble(self) -> str:
        return self._record.worker_trouble if self._record is not None else ""


def local_config(paths: LocalPaths, port: int = 0, idle_exit_seconds: float = 0) -> ControllerConfig:
    """Return the local controller's configuration, from the last `iris cluster start --local`.

    Args:
        paths: The files of the local cluster.
        port: The port to listen on; 0 for any.
        idle_exit_seconds: As in `serve_local`.

    Raises:
        InvalidRequest: The settings are damaged.
    """
    settings = read_settings(paths)
    if settings.max_hosts:
        # Where the real cluster keeps its state, and at which port, is nothing for a run that stands in for it.
        file = read_cluster_config(Path(settings.config))
        return ControllerConfig(
            state_dir=paths.root,
            port=port,
            idle_exit_s=idle_exit_seconds,
            scale_groups=file.scale_groups,
            limits=file.limits,
            user_budgets=file.user_budgets,
            jobs_per_user=file.jobs_per_user,
            log_limit_bytes=file.log_limit_bytes,
            remote_state_dir=settings.remote_state_dir,
            durability=Durability(settings.durability or Durability.LOCAL),
        )
    given = Given(paths.root, port, idle_exit_seconds, settings.remote_state_dir or None, settings.durability or None)
    return controller_config(Path(settings.config) if settings.config else None, given)


def _port_of(address: str) -> int:
    port = address.rpartition(":")[2]
    return int(port) if port.isdigit() else 0
