"""Builds a controller's parts and connects them to its engine, for the real process and for simulations."""

from collections.abc import Callable, Mapping

from iris.autoscale.runtime import Autoscaler
from iris.controller.access.credentials import Credentials
from iris.controller.admission.admission import Admission
from iris.controller.admission.uploads import UploadChecks
from iris.controller.clients.endpoint_watchers import EndpointWatchers
from iris.controller.clients.sessions import ClientSessions
from iris.controller.clients.waiters import JobWaiters
from iris.controller.config.controller_config import ControllerConfig, Durability
from iris.controller.context import Controller, Shutdown
from iris.controller.dashboard.changes import ChangeWatchers
from iris.controller.dashboard.process import DashboardProcess, DashboardSettings
from iris.controller.engine.engine import Engine
from iris.controller.engine.replication_barrier import ReplicationBarrier
from iris.controller.logs.hub import LogHub
from iris.controller.logs.searcher import Searchers
from iris.controller.logs.store import LogStore
from iris.controller.notices.notifier import Notifier
from iris.controller.storage.blobs import BlobStore
from iris.controller.storage.disk_space import DiskSpace
from iris.controller.storage.query_processes import QueryProcesses
from iris.controller.workers.attempt_waits import AttemptWaits
from iris.controller.workers.live_usage import LiveUsage
from iris.controller.workers.sessions import Sessions
from iris.controller.workers.usage_history import NoSeries, SeriesStore, UsageHistory
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.usage import AttemptUse
from iris.rpc.convert_job import SpecReader
from iris.store.history import History
from iris.store.log_shelf import LogShelf
from iris.store.replicate.replicator import Replicator


def assemble(
    config: ControllerConfig,
    engine: Engine,
    *,
    secret: bytes,
    clock_ms: Callable[[], int],
    request_exit: Callable[[Shutdown], None],
    credentials: Credentials,
    history: History,
    on_worker: Callable[[WorkerId], None] = lambda _: None,
    on_client: Callable[[], None] = lambda: None,
    replicator: Replicator | None = None,
    space: DiskSpace | None = None,
    notifier: Notifier | None = None,
    worker_trouble: Callable[[], str] = str,
    autoscaler: Autoscaler | None = None,
    usage_of: Callable[[JobId, int, int], Mapping[AttemptId, AttemptUse]] = lambda *_: {},
    series: SeriesStore | None = None,
) -> Controller:
    """Return the parts of a controller, subscribed to the effects of `engine`.

    Args:
        config: The controller's settings.
        engine: The engine with the loaded view.
        secret: The cluster's secret.
        clock_ms: Returns Unix time in milliseconds.
        request_exit: Ends the controller soon after the current call.
        credentials: The credentials of workers.
        history: Reads ended jobs.
        on_worker: Called with the id of each worker that connects or reconnects.
        on_client: Called whenever a client's session is used.
        replicator: Replicates the state; None without a remote state.
        notifier: Sends notices of jobs' ends; None for none.
        space: The space on the disk; None never refuses.
        worker_trouble: Returns why the controller's own worker does not start; "" if it starts.
        autoscaler: Starts and ends machines; None starts none.
        usage_of: Reads the stored use of the attempts of a job's tasks, from an index to an index.
        series: Stores the series of tasks; None for nowhere.
    """
    view = engine.view
    view.jobs_per_user = config.jobs_per_user
    remote = replicator if config.durability is Durability.REMOTE else None
    blobs = BlobStore(config.state_dir / "blobs", *_room(space)[:1])
    hub = _logs(config, engine, space)
    sessions = Sessions(
        engine, hub, config.contact_rules, config.log_wait_s, on_worker, None if remote is None else remote.wait
    )
    controller = Controller(
        config=config,
        secret=secret,
        engine=engine,
        blobs=blobs,
        uploads=UploadChecks(blobs),
        admission=Admission(config.heartbeat_interval_s, config.scale_groups, config.limits),
        specs=SpecReader(),
        hub=hub,
        live_usage=LiveUsage(engine, usage_of, UsageHistory(engine, series or NoSeries(), clock_ms)),
        attempt_waits=AttemptWaits(view),
        sessions=sessions,
        waiters=JobWaiters(view),
        clients=ClientSessions(view, on_client),
        endpoints=EndpointWatchers(view),
        changes=ChangeWatchers(),
        dashboard=DashboardProcess(
            DashboardSettings(
                config.state_dir,
                secret,
                config.dashboard_port,
                config.cluster_name,
                config.ca_sha256,
                config.task_pages_domain,
            )
        ),
        queries=QueryProcesses(config.state_dir),
        credentials=credentials,
        history=history,
        notifier=notifier,
        replicator=replicator,
        started_at_ms=clock_ms(),
        clock_ms=clock_ms,
        request_exit=request_exit,
        space=space,
        worker_trouble=worker_trouble,
        autoscaler=autoscaler,
        barrier=None if remote is None else ReplicationBarrier(remote, sessions.on_effects),
    )
    _listen(controller)
    return controller


def _room(space: DiskSpace | None) -> tuple[()] | tuple[Callable[[int], bool], Callable[[], bool]]:
    """Return the functions that request disk space, for data and for notes; without limits, they always grant it."""
    return () if space is None else (space.take, space.spare)


def _logs(config: ControllerConfig, engine: Engine, space: DiskSpace | None) -> LogHub:
    place = config.state_dir / "logs"
    shelf = LogShelf(config.state_dir / "small-logs.db")
    has_room, spare = _room(space) or (lambda count: count >= 0, lambda: False)
    store = LogStore(place, config.log_limit_bytes, has_room, spare, shelf=shelf)
    return LogHub(engine.view, store, Searchers(str(place), config.remote_state_dir))


def _listen(controller: Controller) -> None:
    """Subscribe each part to the engine's effects: first the workers, or the barrier that delays their effects until a
    commit is replicated.
    """
    engine = controller.engine
    first = controller.barrier or controller.sessions
    for part in (first, controller.hub, controller.waiters, controller.clients, controller.endpoints):
        engine.listen(part.on_effects)
    if controller.notifier is not None:
        engine.listen(controller.notifier.on_effects)
    if controller.autoscaler is not None:
        engine.listen(controller.autoscaler.on_effects)
    engine.listen_to_changes(controller.changes.on_changes)
    controller.credentials.users.listen(lambda token_id, _: controller.changes.on_revoked(token_id))
    for is_watched in (controller.waiters.completes, controller.clients.is_watched, controller.hub.is_followed):
        engine.watch(is_watched)
