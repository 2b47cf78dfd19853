"""The client's side of `fork_server`: runs callables in processes forked from one that has everything imported."""

import contextlib
import errno
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping

from fray.backends.common.child import READ_AT_START
from fray.backends.common.process_owner import ProcessOwner
from fray.backends.common.processes import START_LOCK, OutputFile, ProcessTree
from fray.backends.local.fork_server import ENDED, READY, STARTED, WORD, ForkRequest, send_request

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 30.0


class ForkedLeader:
    """A keeper of `fork_server`: the leader of one callable's process group."""

    def __init__(self, job: socket.socket, pid: int) -> None:
        self.pid = pid
        self._job = job
        self._code: int | None = None

    def await_end(self) -> None:
        with contextlib.suppress(OSError):
            word = self._job.recv(WORD.size, socket.MSG_WAITALL)
            if len(word) == WORD.size:
                self._code = WORD.unpack(word)[1]

    def reap(self) -> int:
        # Closing alone would not tell the server while a fork of this process lives, which has the socket, too.
        with self._job, contextlib.suppress(OSError):
            self._job.shutdown(socket.SHUT_RDWR)
        if self._code is None:
            raise ChildProcessError(errno.ECHILD, "the process that it was forked from has ended")
        return self._code


class ForkServer:
    """Start a server on first use and replace it if it dies.

    The server's interpreter has already read its start-up variables, so a call with different values is not forked.
    """

    def __init__(self) -> None:
        self._owner = ProcessOwner()
        self._lock = threading.Lock()
        self._server: socket.socket | None = None
        self._environment: dict[str, str] = {}
        self._usable = sys.platform == "linux" and hasattr(os, "pidfd_open")

    def start(self, request: ForkRequest, cwd: str | None, output: OutputFile) -> ProcessTree | None:
        """Fork a process for a callable. Return None if the caller must start it in another way.

        Args:
            request: The callable to run.
            cwd: The working directory; None for the caller's.
            output: The file for its stdout and stderr.

        Raises:
            OSError: The directory is not accessible.
        """
        if not self._usable:
            return None
        directory = os.open(cwd or os.curdir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not os.access(f"/proc/self/fd/{directory}", os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), cwd)
            ours, theirs = socket.socketpair()
            out = output.open()
            try:
                sent = self._send(request, (theirs.fileno(), directory, out))
            finally:
                theirs.close()
                os.close(out)
        finally:
            os.close(directory)
        pid = _started(ours) if sent else None
        if pid is None:
            ours.close()
            return None
        return ProcessTree(ForkedLeader(ours, pid))

    def close(self) -> None:
        """Let the server end after its forks. If no fork is left, wait for its end."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            with server, contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_WR)
                server.settimeout(_PATIENCE_SECONDS)
                server.recv(1)

    def _send(self, request: ForkRequest, descriptors: tuple[int, int, int]) -> bool:
        with self._lock:
            for _ in range(2):
                if self._server is None:
                    self._server = self._start_server()
                if self._server is None or not self._fits(request.environment):
                    return False
                try:
                    send_request(self._server, request, descriptors)
                except OSError:
                    self._server.close()
                    self._server = None
                else:
                    return True
        return False

    def _start_server(self) -> socket.socket | None:
        self._environment = dict(os.environ)
        # A fork must not get the server's end either: `close` would wait for that fork.
        with START_LOCK:
            ours, theirs = socket.socketpair()
            with theirs:
                self._launch(theirs)
        ours.settimeout(_PATIENCE_SECONDS)
        try:
            ready = ours.recv(1) == READY
        except OSError:
            ready = False
        if not ready:
            self._usable = False
            ours.close()
            return None
        ours.settimeout(None)
        self._owner.at_end(self, ours.close)
        return ours

    def _launch(self, end: socket.socket) -> None:
        command = [sys.executable, "-P", "-m", "fray.backends.local.fork_server", str(end.fileno())]
        try:
            subprocess.run(
                command,
                check=True,
                env=self._environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[end.fileno()],
            )
        except (OSError, subprocess.CalledProcessError) as error:
            logger.warning("callables get new interpreters, because there is no process to fork from: %s", error)

    def _fits(self, environment: Mapping[str, str]) -> bool:
        differing = environment.items() ^ self._environment.items()
        return not any(name.startswith(READ_AT_START) for name, _ in differing)


def _started(job: socket.socket) -> int | None:
    """Return the keeper's process id; None if there is no keeper."""
    try:
        word = job.recv(WORD.size, socket.MSG_WAITALL)
    except OSError:
        return None
    if len(word) != WORD.size:
        return None
    kind, pid = WORD.unpack(word)
    assert kind in (STARTED, ENDED)
    return pid if kind == STARTED else None
