"""The worker process: builds every component and connects them."""

import asyncio
import contextlib
import importlib.metadata
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from iris.domain.constraints import CONTAINERS_ATTRIBUTE, LIMITS_ATTRIBUTE, TASK_USERS_ATTRIBUTE
from iris.domain.resources import Resources
from iris.domain.states import PreemptionReason
from iris.worker.attempts.ports import PortChooser
from iris.worker.attempts.rooms import Room, Rooms, furnish
from iris.worker.attempts.supervisor import Supervisor
from iris.worker.connection.agent import Agent, AgentEnd, Resolver, cancel_and_wait
from iris.worker.connection.exec_call import serve_exec
from iris.worker.connection.session import WorkerIdentity
from iris.worker.containers.engine import AUTO, Engine, find_engine
from iris.worker.containers.removal import Containers
from iris.worker.devices.allotment import NO_CHIPS, Allotment, Chips
from iris.worker.exec.commands import AttemptCommands
from iris.worker.guardian.client import GuardianClient, attach
from iris.worker.guardian.launch import DEFAULT_LINGER_S, GuardianPaths
from iris.worker.host.disk_offer import CapacityOffer
from iris.worker.host.environment import hide_own_environment
from iris.worker.host.oom import OomKills
from iris.worker.host.preemption import GceHost, Platform
from iris.worker.host.probe import (
    disk_size,
    free_disk,
    own_oom_counters,
    place_of,
    probe_attributes,
    probe_resources,
    source_address,
)
from iris.worker.host.termination import TerminationSignals
from iris.worker.isolation.plan import IsolationMode, variables_of
from iris.worker.limits.plan import LimitsMode
from iris.worker.output.log_room import DEFAULT_LIMIT_BYTES
from iris.worker.paths import WorkPaths
from iris.worker.prepare.preparer import BundlePreparer
from iris.worker.prepare.task_env import ACTOR_HOST_VARIABLE, TaskEnvironment, base_variables, user_variables
from iris.worker.users.identity import TaskIdentity
from iris.worker.users.uids import TaskUsers
from rigging.exit_codes import INTERRUPTED
from rigging.filesystem.private import check_own_folder
from rigging.process.file_lock import open_lock_file, try_lock

logger = logging.getLogger(__name__)

_MOST_NAMED: Final = 5
EXIT_OK: Final = 0
EXIT_INCOMPATIBLE: Final = 1


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Settings of a worker process.

    Args:
        work_dir: The worker's data; used by one worker at a time.
        capacity: Resources that the worker offers; None for those that `probe` finds.
        attributes: Attributes in addition to those that `probe` finds.
        orphan_timeout_s: Exit after this time without a controller, unless a task is running.
        stop_grace_s: Time between SIGTERM and SIGKILL for tasks when the worker shuts down.
        platform: The platform of the host. When it announces a preemption, the worker exits at once and its attempts
            count as preempted.
        isolation: The strongest isolation between tasks to try.
        log_limit_bytes: Maximum number of bytes of an attempt's log that may wait on this host's disk for the
            controller.
        limits: How the limits of attempts are enforced.
        max_processes: Maximum number of processes and threads of an attempt; 0 for most of the host's maximum.
        guardian_linger_s: How long a guardian without a worker or tasks waits for a worker before it exits.
        port_range: First and last port for tasks; None for any free port.
        task_variables: Connection variables for tasks, except the cluster's address and their token.
        key: The private key that authenticates the worker in each session; None to use only its token (embedded).
        task_users: The uids of tasks on this host; None to run them as the worker's user. Needs root.
        containers: The container engine, as `find_engine`.
        chips: The accelerators to allot to attempts; they must be those of `capacity`.
        leave_s: Maximum time to send the last reports to the controller.
    """

    work_dir: Path
    worker_id: str
    capacity: Resources | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    orphan_timeout_s: float = 60.0
    stop_grace_s: float = 3.0
    platform: Platform = Platform.NONE
    guardian_linger_s: float = DEFAULT_LINGER_S
    leave_s: float = 2.0
    isolation: IsolationMode = IsolationMode.OVERLAY
    log_limit_bytes: int = DEFAULT_LIMIT_BYTES
    limits: LimitsMode = LimitsMode.AUTO
    max_processes: int = 0
    port_range: tuple[int, int] | None = None
    task_variables: Mapping[str, str] = field(default_factory=dict)
    key: Ed25519PrivateKey | None = field(default=None, repr=False)
    task_users: TaskUsers | None = None
    containers: str = AUTO
    chips: Chips = NO_CHIPS


def run_worker(config: WorkerConfig, resolve: Resolver) -> int:
    """Run a worker until the controller, a signal (SIGTERM, SIGINT), the platform or the orphan timeout ends it.

    Returns the exit code.

    If the worker process is killed, its tasks keep running under the guardian, and the next worker process adopts them.
    This function changes the process's signal handlers and environment.

    Raises:
        Denied: Other users can write to the work directory, and could replace the guardian's socket.
    """
    engine = find_engine(config.containers, str(config.work_dir.absolute()))
    hide_own_environment()
    if config.task_users is not None:
        os.umask(0o022)  # what it makes for tasks must be readable for them; directories above keep others out
    paths = WorkPaths(config.work_dir.absolute())
    paths.make()
    check_own_folder(paths.root, "the work directory", "name a new directory in it")
    with _locked(paths.lock) as holder:
        if holder:
            print(f"worker is already running: process {holder} owns {paths.root}", flush=True)
            return EXIT_OK
        return asyncio.run(_serve(config, paths, resolve, engine))


async def _serve(config: WorkerConfig, paths: WorkPaths, resolve: Resolver, engine: Engine | None) -> int:
    host = GceHost() if config.platform is Platform.GCE else None
    termination = TerminationSignals(host, asyncio.get_running_loop())
    termination.watch()
    while True:
        guardian = await attach(
            GuardianPaths(paths.root),
            linger_s=config.guardian_linger_s,
            isolation=config.isolation,
            limits=config.limits,
            max_processes=config.max_processes,
        )
        code = await _serve_guardian(config, paths, resolve, termination, guardian, engine)
        if code is not None:
            return code
        # Its tasks are gone, or will be when the next guardian comes: this is another instance.
        logger.error("the guardian died, and its tasks with it: starting a new guardian")


async def _serve_guardian(
    config: WorkerConfig,
    paths: WorkPaths,
    resolve: Resolver,
    termination: TerminationSignals,
    guardian: GuardianClient,
    engine: Engine | None,
) -> int | None:
    """Run the worker with one guardian; return the exit code, or None if the guardian died."""
    held = guardian.held()
    kept = [(attempt.owner, str(attempt.note.get("job", ""))) for attempt in held]
    for own in (paths, *_paths_of_users(config, paths)):
        own.clear_attempts(kept)
    if held:
        logger.info("adopted %d attempts from guardian %s (process %d)", len(held), guardian.guardian_id, guardian.pid)
    logger.info("isolation between tasks: %s; see %s for the reason", guardian.isolation, GuardianPaths(paths.root).log)
    identity = _identity(config, paths, guardian, engine)
    # A capacity that was configured stays as it is.
    free = None if config.capacity is not None else lambda: free_disk(paths.root)
    agent = Agent(identity, resolve, config.orphan_timeout_s, offer=CapacityOffer(identity.capacity, free))
    containers = None if engine is None else Containers(engine, paths.root)
    supervisor = Supervisor(
        paths,
        guardian,
        _rooms(config, paths, guardian, agent, containers),
        oom_kills=OomKills(own_oom_counters()),
        log_limit_bytes=config.log_limit_bytes,
        send_blob=agent.upload,
    )
    supervisor.take_up_held()
    commands = AttemptCommands(guardian.join, supervisor.exec_place, paths.tokens)
    if containers is not None:
        commands.end_leftovers()
        containers.keep_only(lambda: supervisor.live_attempts)
    agent.on_exec = partial(serve_exec, commands)
    serving = asyncio.create_task(agent.run(supervisor))
    waiting = asyncio.create_task(termination.received.wait())
    try:
        await asyncio.wait((serving, waiting, guardian.lost), return_when=asyncio.FIRST_COMPLETED)
        if guardian.lost.done():
            return None
        reason = serving.result() if serving.done() else AgentEnd.LEFT
        notice = await termination.notice()
        ending = f"the platform stops the host ({notice})" if notice else reason
        why = f"worker {config.worker_id} ended: {ending}"
        logger.info("%s", why)
        if names := supervisor.live_attempts:
            logger.info(
                "stopping its tasks within %s: %s; press Ctrl-C again to exit at once",
                "their graces" if notice else f"about {config.stop_grace_s:g} s",
                _few(names),
            )
        await _end_attempts(supervisor, guardian, termination, why, int(config.stop_grace_s * 1000), notice)
        if termination.interrupted_again.is_set():
            return _leave_at_once(supervisor.live_attempts, guardian)
        if not serving.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(config.leave_s):
                    await agent.leave()
                    await asyncio.wait((serving,))
        await guardian.finish()
        return EXIT_INCOMPATIBLE if reason in (AgentEnd.INCOMPATIBLE, AgentEnd.REFUSED) else EXIT_OK
    finally:
        waiting.cancel()
        await cancel_and_wait(serving)
        await commands.close()
        await agent.close()
        if containers is not None:
            await containers.close(0 if termination.interrupted_again.is_set() else config.leave_s)
        guardian.close()


def _rooms(
    config: WorkerConfig, paths: WorkPaths, guardian: GuardianClient, agent: Agent, containers: Containers | None
) -> Rooms:
    base = base_variables(os.environ) | dict(config.task_variables)
    ports, allotment = PortChooser(config.port_range), Allotment(config.chips)

    def make(identity: TaskIdentity | None, user: str, refusal: str) -> Room:
        own, variables = paths, base
        if identity is not None:
            own = WorkPaths(paths.root, identity.uid)
            own.make()
            variables = user_variables(base, own.home, user)
        return furnish(
            own,
            guardian.isolation,
            BundlePreparer.over(own, agent, guardian, variables, identity),
            TaskEnvironment(own, config.worker_id, variables | variables_of(guardian.isolation), _own_address),
            agent.address,
            log_limit_bytes=config.log_limit_bytes,
            ports=ports,
            allotment=allotment,
            identity=identity,
            refusal=refusal,
            engine=None if containers is None else containers.engine,
        )

    return Rooms(make, config.task_users, containers)


def _paths_of_users(config: WorkerConfig, paths: WorkPaths) -> Iterator[WorkPaths]:
    for identity in config.task_users.known().values() if config.task_users is not None else ():
        own = WorkPaths(paths.root, identity.uid)
        own.make()
        yield own


async def _end_attempts(
    supervisor: Supervisor,
    guardian: GuardianClient,
    termination: TerminationSignals,
    reason: str,
    grace_ms: int,
    notice: PreemptionReason | None,
) -> None:
    """Stop all attempts; return when all have ended, the guardian has died, or the user interrupts again."""
    ending = asyncio.create_task(supervisor.stop_all(reason, grace_ms, notice))
    again = asyncio.create_task(termination.interrupted_again.wait())
    await asyncio.wait((ending, again, guardian.lost), return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    again.cancel()
    await asyncio.wait((ending, again))


def _leave_at_once(names: Sequence[str], guardian: GuardianClient) -> int:
    """Log the attempts that are still running; return the exit code."""
    if names:
        logger.warning(
            "exited with tasks still running: %s. The guardian (process %d) stops them and keeps their "
            "reports for the next worker in this work directory",
            _few(names),
            guardian.pid,
        )
    return INTERRUPTED


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown} and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else shown


def _own_address(controller_address: str) -> str:
    return os.environ.get(ACTOR_HOST_VARIABLE) or source_address(controller_address)


def _identity(
    config: WorkerConfig, paths: WorkPaths, guardian: GuardianClient, engine: Engine | None
) -> WorkerIdentity:
    return WorkerIdentity(
        worker_id=config.worker_id,
        instance_id=guardian.guardian_id,  # what it holds is what counts, not the process that speaks for it
        capacity=config.capacity or probe_resources(paths.root),
        attributes={
            **probe_attributes(),
            **({} if config.capacity else disk_size(paths.root)),
            **config.attributes,
            **({} if config.task_users is None else {TASK_USERS_ATTRIBUTE: "true"}),
            **({} if engine is None else {CONTAINERS_ATTRIBUTE: engine.kind}),
            **({LIMITS_ATTRIBUTE: guardian.limits} if guardian.limits else {}),
        },
        version=importlib.metadata.version("marin-iris"),
        place=place_of(paths.root),
        key=config.key,
    )


def work_dir_holder(work_dir: Path) -> str:
    """Return the pid of the worker that uses a work directory; empty if there is none."""
    place = WorkPaths(work_dir.absolute()).lock
    if not place.exists():
        return ""
    with _locked(place) as holder:
        return holder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[str]:
    """Hold the lock of a work directory; yields "" if it was acquired, else the pid of its holder."""
    descriptor = open_lock_file(path)
    try:
        if not try_lock(descriptor):
            yield os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            return
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield ""
    finally:
        os.close(descriptor)
