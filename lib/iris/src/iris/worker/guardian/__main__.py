"""The guardian's process: `python -m iris.worker.guardian --work-dir DIR`. `iris.worker.guardian.launch` starts it.

Without asyncio and gRPC the process is small and starts fast.
"""

import argparse
import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from iris.worker.guardian.guardian import Guardian
from iris.worker.guardian.launch import DEFAULT_LINGER_S, GuardianPaths, build_of
from iris.worker.guardian.process import ProcessRuntime
from iris.worker.guardian.reactor import Reactor
from iris.worker.guardian.server import GuardianServer
from iris.worker.isolation.plan import IsolationMode
from iris.worker.isolation.views import open_views
from iris.worker.limits.plan import LimitsMode
from iris.worker.limits.probe import LimitsAbility, close_limits, open_limits
from iris.worker.strays import cgroup
from iris.worker.strays.leftovers import end_leftovers
from iris.worker.strays.orphans import Marks, OrphanReaper, become_subreaper
from rigging.process.file_lock import open_lock_file, try_lock

logger = logging.getLogger(__name__)

_ENOUGH_DESCRIPTORS: Final = 4096
_TERM_GRACE_MS: Final = 1000
_AFTER_DEFECT_S: Final = 0.5
_YOUNG_OBJECTS: Final = 20_000
"""Attempts leave no reference cycles, so collections find little."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the guardian of a work directory until the worker ends it or it has neither worker nor tasks; return the exit
    code.
    """
    options = _parser().parse_args(argv)
    paths = GuardianPaths(options.work_dir.absolute())
    lock = open_lock_file(paths.lock)
    if not try_lock(lock):
        return 0  # there is one
    ready_read, ready_write = os.pipe()
    if os.fork():
        # The starter waits for this process only, and until the other listens.
        os.close(ready_write)
        os._exit(0 if os.read(ready_read, 1) else 1)
    os.close(ready_read)
    os.setsid()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s guardian: %(message)s")
    logging.raiseExceptions = False  # a full disk is no reason to fail
    os.truncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    become_subreaper()
    end_leftovers(paths.root)
    group = cgroup.enter(paths.root)
    ability = open_limits(paths.root, LimitsMode(options.limits), group, options.max_processes)
    listener = _listen(paths)
    os.write(ready_write, b"R")
    os.close(ready_write)
    try:
        serve(paths, listener, options.linger, IsolationMode(options.isolation), ability)
    finally:
        close_limits(paths.root, ability)
        if group is not None:
            cgroup.leave(group, paths.root)
        paths.socket.unlink(missing_ok=True)
    return 0


def serve(
    paths: GuardianPaths,
    listener: socket.socket,
    linger_s: float,
    isolation: IsolationMode,
    ability: LimitsAbility | None = None,
) -> None:
    """Run until a request to finish, or until there was neither worker nor task for `linger_s`.

    Args:
        paths: The files of the guardian.
        listener: The listening socket, for workers.
        linger_s: Seconds to wait for a worker while there are no tasks.
        isolation: The strongest isolation between tasks to try.
        ability: How limits are enforced; None to enforce none.
    """
    views = open_views(paths.root, isolation)
    reactor = Reactor()
    os.chdir("/")
    runtime = ProcessRuntime(
        reactor,
        OrphanReaper(Marks(paths.root), adopt_unmarked=True),
        own_cwd="/",
        warm=True,
        views=views,
        groups=None if ability is None else ability.groups,
    )
    guardian = Guardian(reactor, runtime, ability=ability)
    server = GuardianServer(
        reactor,
        guardian,
        listener,
        {
            "guardian": uuid.uuid4().hex,
            "pid": os.getpid(),
            "isolation": views.mode,
            "build": build_of(Path(__file__).parent),
            "limits": str(ability or LimitsAbility(LimitsMode.OFF)),
            "descriptors": _raise_descriptor_limit(),
        },
    )
    finish_on_sigterm(reactor, guardian)
    spare_collector()
    guard(reactor, guardian, server, linger_s)
    server.send_news()
    server.close()
    runtime.close()
    signal.set_wakeup_fd(-1)  # signals have no effect from now on
    reactor.close()


def guard(
    reactor: Reactor,
    guardian: Guardian,
    server: GuardianServer,
    linger_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Run turns until a request to finish, or until there was neither worker nor task for `linger_s`.

    Args:
        reactor: Waits for events.
        guardian: Holds the attempts.
        server: Holds the worker's connection.
        linger_s: Seconds to wait for a worker while there are no tasks.
        clock: Returns monotonic time in seconds.
        sleep: Sleeps for a number of seconds.
    """
    alone_since = clock()
    while not (guardian.finishing and not guardian.live_count):
        if server.has_worker or guardian.live_count:
            longest, alone_since = server.wait_s(), clock()
        else:
            longest = alone_since + linger_s - clock()
            if longest <= 0:
                logger.info("no worker connected and no task is running: the guardian exits")
                break
        try:
            reactor.turn(0.0 if guardian.has_queue else longest)
            guardian.start_some()
            server.send_news()
        except Exception:
            # Whatever is wrong with one attempt must not end all others.
            logger.exception("a bug in the guardian")
            sleep(_AFTER_DEFECT_S)


def spare_collector() -> None:
    """Exclude imported objects from garbage collection, which thousands of attempts would trigger."""
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)


def finish_on_sigterm(reactor: Reactor, guardian: Guardian) -> None:
    """End the attempts and then the guardian at SIGTERM; ignore SIGHUP and SIGINT."""
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    # Handlers, not SIG_IGN: what is ignored would be ignored by every task, too.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)

    def on_signal() -> None:
        if signal.SIGTERM in woken.recv(64):
            logger.warning("SIGTERM: ending %d attempts", guardian.live_count)
            guardian.finish(_TERM_GRACE_MS)
        wake.fileno()  # kept alive with this closure

    reactor.watch(woken.fileno(), on_signal)


def _listen(paths: GuardianPaths) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    paths.socket.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        with paths.short_name() as name:
            listener.bind(name)
    finally:
        os.umask(before)
    listener.listen(16)
    listener.setblocking(False)
    return listener


def enough_descriptors(soft: int, hard: int) -> int:
    """Return the limit of open files to set: a few thousand within the hard limit, never below the current limit."""
    enough = _ENOUGH_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_DESCRIPTORS)
    return enough if soft == resource.RLIM_INFINITY else max(soft, enough)


def _raise_descriptor_limit() -> int:
    """Raise the limit of open files, so that attempts do not wait for descriptors; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = enough_descriptors(soft, hard)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m iris.worker.guardian")
    parser.add_argument("--work-dir", type=Path, required=True)
    parser.add_argument("--isolation", choices=list(IsolationMode), default=IsolationMode.OVERLAY)
    parser.add_argument("--limits", choices=list(LimitsMode), default=LimitsMode.AUTO)
    parser.add_argument("--max-processes", type=int, default=0, help="maximum per task; 0: most of the host's maximum")
    parser.add_argument(
        "--linger", type=float, default=DEFAULT_LINGER_S, help="seconds to wait for a worker while there are no tasks"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
