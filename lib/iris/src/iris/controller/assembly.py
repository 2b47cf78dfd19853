"""Builds a controller's parts and joins them to its engine; for the real process and for simulations."""

from collections.abc import Callable

from iris.controller.admission.admission import Admission
from iris.controller.admission.uploads import UploadChecks
from iris.controller.clients.endpoint_watchers import EndpointWatchers
from iris.controller.clients.sessions import ClientSessions
from iris.controller.clients.waiters import JobWaiters
from iris.controller.config.controller_config import ControllerConfig, Durability
from iris.controller.context import Controller, Shutdown
from iris.controller.engine.engine import Engine
from iris.controller.engine.replication_barrier import ReplicationBarrier
from iris.controller.logs.hub import LogHub
from iris.controller.logs.store import LogStore
from iris.controller.storage.blobs import BlobStore
from iris.controller.storage.disk_space import DiskSpace
from iris.controller.workers.sessions import Sessions
from iris.domain.ids import WorkerId
from iris.rpc.convert_job import SpecReader
from iris.store.replicate.replicator import Replicator


def assemble(
    config: ControllerConfig,
    engine: Engine,
    secret: bytes,
    clock_ms: Callable[[], int],
    request_exit: Callable[[Shutdown], None],
    *,
    on_worker: Callable[[WorkerId], None] = lambda _: None,
    on_client: Callable[[], None] = lambda: None,
    replicator: Replicator | None = None,
    space: DiskSpace | None = None,
    worker_trouble: Callable[[], str] = str,
) -> Controller:
    """Return the parts of a controller, which listen to the effects of `engine`.

    Args:
        config: Settings of the controller.
        engine: The engine with the loaded view.
        secret: The cluster's secret.
        clock_ms: Unix time in milliseconds.
        request_exit: Ends the controller soon after the present call.
        on_worker: Called with the id of each worker that connects (again).
        on_client: Called when a client's session says anything.
        replicator: Keeps the state off the machine, if anything does.
        space: The room on the disk; None: nothing is refused.
        worker_trouble: Returns why the worker that belongs to this controller does not start; "" while all is well.
    """
    view = engine.view
    limits = () if space is None else (space.take, space.spare)
    hub = LogHub(view, LogStore(config.state_dir / "logs", config.log_limit_bytes, *limits))
    remote = replicator if config.durability is Durability.REMOTE else None
    confirm = None if remote is None else remote.wait
    sessions = Sessions(engine, hub, config.contact_rules, config.log_wait_s, on_worker, confirm)
    waiters, clients, endpoints = JobWaiters(view), ClientSessions(view, on_client), EndpointWatchers(view)
    barrier = None if remote is None else ReplicationBarrier(remote, sessions.on_effects)
    for part in (barrier or sessions, hub, waiters, clients, endpoints):
        engine.listen(part.on_effects)
    for is_watched in (waiters.completes, clients.is_watched, hub.is_followed):
        engine.watch(is_watched)
    blobs = BlobStore(config.state_dir / "blobs", *limits[:1])
    return Controller(
        config=config,
        secret=secret,
        engine=engine,
        blobs=blobs,
        uploads=UploadChecks(blobs),
        admission=Admission(config.heartbeat_interval_s, config.scale_groups),
        specs=SpecReader(),
        hub=hub,
        sessions=sessions,
        waiters=waiters,
        clients=clients,
        endpoints=endpoints,
        replicator=replicator,
        started_at_ms=clock_ms(),
        clock_ms=clock_ms,
        request_exit=request_exit,
        space=space,
        worker_trouble=worker_trouble,
        barrier=barrier,
    )
