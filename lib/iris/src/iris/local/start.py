"""Finds or starts this user's local cluster. Concurrent commands start only one."""

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from iris.local.settings import file_variables, read_settings
from iris.local.state import (
    ClusterRecord,
    LocalPaths,
    held_lock,
    is_locked,
    local_paths,
    lock_holder,
    read_record,
    wait_unlocked,
)
from iris.rpc.protocol import PROTOCOL_VERSION, version_mismatch
from iris.worker.host.environment import host_environment
from rigging.errors import Conflict, Unavailable
from rigging.log_tail import log_tail

DEFAULT_IDLE_EXIT_SECONDS: Final = 900.0
START_TIMEOUT: Final = 60.0
_CONNECT_SECONDS: Final = 2.0
LEAVING_TIMEOUT: Final = 15.0
_LOG_LIMIT_BYTES: Final = 4 * 1024 * 1024
_TAIL_LINES: Final = 15
_SETTLING_PAUSE: Final = 0.02
_LOOK_PAUSE: Final = 0.2
WORKER_TROUBLE: Final = "worker: "
"""Prefix of the controller's message, instead of "ready", if its worker does not start."""

Command = Callable[[LocalPaths, int, float], list[str]]


@dataclass(frozen=True, slots=True)
class Found:
    """A running local cluster, and whether this call started it."""

    record: ClusterRecord
    started: bool


class LocalCluster:
    """This user's cluster on this machine.

    Args:
        paths: Its state directory; None for the user's (see `local_paths`).
        idle_exit_seconds: A newly started cluster exits after this long without work; 0 for never.
        on_event: Called with one line about each slow step.
        command: Returns the command line of the controller's process (state, descriptor for "ready", idle seconds).
        start_timeout: Maximum time until the cluster is ready, in seconds.
        leaving_timeout: How long to wait for the exit of an unresponsive earlier controller, in seconds.
    """

    def __init__(
        self,
        paths: LocalPaths | None = None,
        *,
        idle_exit_seconds: float = DEFAULT_IDLE_EXIT_SECONDS,
        on_event: Callable[[str], None] | None = None,
        command: Command | None = None,
        start_timeout: float = START_TIMEOUT,
        leaving_timeout: float = LEAVING_TIMEOUT,
    ) -> None:
        self.paths = paths or local_paths(os.environ)
        self._idle_exit_seconds = idle_exit_seconds
        self._on_event = on_event
        self._command = command or controller_command
        self._start_timeout = start_timeout
        self._leaving_timeout = leaving_timeout

    def find(self) -> ClusterRecord | None:
        """Return the record of the running controller; None if no controller answers.

        The record contains whether the cluster can run jobs (`ready`), and why not.

        Raises:
            Conflict: The controller uses another version of the protocol.
        """
        record = read_record(self.paths)
        if record is None or not is_locked(self.paths.controller_lock):
            return None
        if version_mismatch("this client", PROTOCOL_VERSION, record.protocol_version):
            raise Conflict(
                f"the local cluster at {record.address} is iris {record.version} and speaks protocol "
                f"{record.protocol_version}, this client speaks {PROTOCOL_VERSION}; stop it, with its jobs, with "
                "`iris cluster stop --force`"
            )
        return record if _listens(record.address) else None

    def ensure(self) -> Found:
        """Return the running cluster, starting it if necessary. Wait until it can accept jobs, or the start of its
        worker has failed.

        Raises:
            Unavailable: The start failed (with the message of the controller or worker), or the controller that uses
                the directory does not answer. If only the worker of a running cluster does not start, its record is
                returned with `worker_trouble`.
            Conflict: See `find`.
        """
        record = self.find()
        if record is not None and record.is_settled:
            return self._found(record)
        self.paths.make()
        # A process that starts one holds this lock for as long as that takes; the others then find it.
        with held_lock(self.paths.start_lock, timeout=self._start_timeout + self._leaving_timeout):
            record = self.find() or self._after_the_former()
            if record is not None:
                return self._found(self._settled(record))
            return Found(self._start(), started=True)

    def _found(self, record: ClusterRecord) -> Found:
        if record.worker_trouble:
            self._tell(f"the local cluster's worker does not start; trying again: {record.worker_trouble}")
        return Found(record, started=False)

    def _settled(self, record: ClusterRecord) -> ClusterRecord:
        """Wait until the worker of a running controller has joined, or its start has failed."""
        deadline = time.monotonic() + self._start_timeout
        latest: ClusterRecord | None = record
        while latest is not None and not latest.is_settled:
            if time.monotonic() >= deadline:
                raise Unavailable(self._why_not_started(None, 0))
            time.sleep(_SETTLING_PAUSE)
            latest = self.find()
        if latest is None:
            raise Unavailable(f"the local cluster exited before it was ready; its log: {self.paths.controller_log}")
        return latest

    def _tell(self, line: str) -> None:
        if self._on_event is not None:
            self._on_event(line)

    def _after_the_former(self) -> ClusterRecord | None:
        """Wait for an unresponsive controller that uses the directory: it is exiting, or hangs."""
        if not is_locked(self.paths.controller_lock):
            return None
        self._tell("waiting for the previous local cluster to exit")
        deadline = time.monotonic() + self._leaving_timeout
        record = None
        while record is None and time.monotonic() < deadline:
            if wait_unlocked(self.paths.controller_lock, timeout=min(_LOOK_PAUSE, self._leaving_timeout)):
                return None
            record = self.find()
        if record is None:
            holder = lock_holder(self.paths.controller_lock) or "unknown"
            raise Unavailable(
                f"the local cluster's controller (process {holder}) holds {self.paths.root} but does not answer; "
                "kill it with `iris cluster stop --force`"
            )
        return record

    def _start(self) -> ClusterRecord:
        self._tell(f"starting a local cluster (state in {self.paths.root})")
        reader, writer = os.pipe()
        log_start = log_size(self.paths.controller_log)
        try:
            with open_log(self.paths.controller_log) as log:
                command = self._command(self.paths, writer, self._idle_exit_seconds)
                # The controller's process forks itself off, so this child ends at once and leaves no zombie.
                subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(writer,),
                    start_new_session=True,
                    cwd=self.paths.root,
                    env=controller_environment(os.environ, self.paths),
                    check=False,
                )
            os.close(writer)
            writer = -1
            words = _read_line(reader, self._start_timeout)
        except KeyboardInterrupt:
            # Another command may wait for the same cluster, so it is not taken away with this one.
            self._tell("the cluster may continue to start without this command; `iris cluster stop` ends it")
            raise
        finally:
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        if words == "ready":
            record = read_record(self.paths)
            if record is not None:
                return record
        raise Unavailable(self._why_not_started(words, log_start))

    def _why_not_started(self, words: str | None, log_start: int) -> str:
        log = self.paths.controller_log
        if words is None:
            what = f"was not ready within {self._start_timeout:g} s"
        elif words.startswith("error: "):
            return f"the local cluster did not start: {words.removeprefix('error: ')} (its log: {log})"
        elif words.startswith(WORKER_TROUBLE):
            return (
                f"the local cluster's worker does not start: {words.removeprefix(WORKER_TROUBLE)}; its controller runs "
                "and tries again (`iris cluster status` tells, `iris cluster stop` ends it)"
            )
        else:
            what = "exited before it was ready"
        tail = "\n".join(f"  {line}" for line in log_tail(log, log_start, _TAIL_LINES))
        return f"the local cluster {what}; its log {log} " + (f"ends:\n{tail}" if tail else "is empty")


def controller_command(paths: LocalPaths, ready_fd: int, idle_exit_seconds: float) -> list[str]:
    """Return the command line of a controller in the background.

    Args:
        paths: The files of the local cluster.
        ready_fd: Descriptor for the message that the controller is ready, or why not.
        idle_exit_seconds: Exit after this long without jobs and clients; 0 for never.
    """
    return [
        *(sys.executable, "-m", "iris.local.daemon", "controller", "--state-dir", str(paths.root)),
        *("--idle-exit", str(idle_exit_seconds), "--ready-fd", str(ready_fd)),
    ]


def foreground_command(paths: LocalPaths, idle_exit_seconds: float) -> list[str]:
    """Return the command line of a controller that stays in the terminal."""
    return [
        *(sys.executable, "-m", "iris.local.daemon", "controller", "--state-dir", str(paths.root)),
        *("--idle-exit", str(idle_exit_seconds), "--foreground"),
    ]


def daemon_environment(
    environ: Mapping[str, str], paths: LocalPaths, *, storage: bool = False, names: Collection[str] = ()
) -> dict[str, str]:
    """Return the variables that the processes of a local cluster keep from the command that starts them.

    Args:
        environ: The environment of the command.
        paths: The files of the local cluster.
        storage: Also keep the variables for the remote state directory, for a controller that has one.
        names: Also keep these, for the controller's cluster file.
    """
    # IRIS_* belongs to the job from which a command may have been run.
    kept = host_environment(environ, storage=storage)
    kept = {name: value for name, value in kept.items() if not name.startswith("IRIS_")}
    kept |= {name: environ[name] for name in names if name in environ}
    # gRPC's own notes about connections that come and go would fill the logs; ours say what matters.
    return {"GRPC_VERBOSITY": "ERROR", **kept, "IRIS_STATE_DIR": str(paths.root)}


def controller_environment(environ: Mapping[str, str], paths: LocalPaths) -> dict[str, str]:
    """Return the environment of the controller, including the variables for remote state and of the cluster file, which
    the controller hides from other processes.
    """
    settings = read_settings(paths)
    storage = bool(settings.remote_state_dir or settings.config)
    return daemon_environment(environ, paths, storage=storage, names=file_variables(paths))


def open_log(path: Path) -> IO[bytes]:
    """Open a log for appending; rename a large log to `<name>.old` first."""
    if log_size(path) > _LOG_LIMIT_BYTES:
        os.replace(path, path.with_name(path.name + ".old"))
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")


def log_size(path: Path) -> int:
    """Return the size of a log; 0 if there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS):
            return True
    except (OSError, ValueError):
        return False


def _read_line(descriptor: int, timeout: float) -> str | None:
    """Return the text up to a newline or the end; None at the timeout."""
    deadline = time.monotonic() + timeout
    poller = select.poll()  # not select.select, which fails for descriptors above 1023
    poller.register(descriptor, select.POLLIN | select.POLLHUP)
    received = b""
    while not received.endswith(b"\n"):
        left_ms = (deadline - time.monotonic()) * 1000
        if left_ms <= 0 or not poller.poll(left_ms):
            return None
        chunk = os.read(descriptor, 4096)
        if not chunk:
            break
        received += chunk
    return received.decode(errors="replace").strip()
