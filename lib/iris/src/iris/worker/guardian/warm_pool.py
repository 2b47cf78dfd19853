"""Warm interpreters: one helper starts Python once and forks it for each callable with the same user and variables. A
fork takes a tenth of the time of a start.

A helper runs none of the jobs' code: it is `callable_main.py --serve`, which imports cloudpickle and waits. Only
attempts of one user whose interpreters would start identically share a helper. The fork becomes a child of this
process: the kernel creates it as one, or reparents it to this subreaper. It waits for permission to continue, so a
cancelled start never runs.
"""

import contextlib
import logging
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from iris.worker.isolation.plan import Mount

logger = logging.getLogger(__name__)

_WANTED_BEFORE: Final = 1
"""Number of starts of one kind before a helper is worth its memory."""
_MOST_HELPERS: Final = 3
_IDLE_S: Final = 60.0
_REPLY_S: Final = 5.0
HELPER_SOCKET: Final = 3
"""The descriptor of a helper's socket."""
_KEPT: Final = frozenset({"IRIS_CLOUDPICKLE", "IRIS_WORK_DIR"})

_OWN_PREFIX: Final = "IRIS_"
_OWN: Final = "TMPDIR"

Kind = tuple[str, str, tuple[str, ...], frozenset[tuple[str, str]]]


class WarmPoolHost(Protocol):
    """The runtime that uses a warm pool."""

    def spawn_helper(self, executable: str, argv: tuple[str, ...], env: Mapping[str, str], descriptor: int) -> int:
        """Start a helper and return its pid.

        Args:
            executable: The interpreter.
            argv: Its command line.
            env: Its variables.
            descriptor: Passed to the helper as descriptor 3.

        Raises:
            OSError: The helper cannot be started.
        """
        ...

    def namespace(self, mounts: Sequence[Mount]) -> int | None:
        """Return a descriptor of a namespace with `mounts`; None without mounts. Raises OSError."""
        ...

    def adopt(self, pid: int) -> None:
        """Record `pid` as a child of this process that is not an orphan."""
        ...

    def watch_helper(self, pid: int, ended: Callable[[], None]) -> None:
        """Reap `pid` when it ends, then call `ended`."""
        ...

    def call_later(self, seconds: float, work: Callable[[], None]) -> None: ...


class WarmPool:
    """The helpers of one worker. Only for a process that is a subreaper."""

    def __init__(self, host: WarmPoolHost) -> None:
        self._host = host
        self._seen: dict[Kind, int] = {}
        self._helpers: dict[Kind, _Helper] = {}

    def start(
        self,
        sharer: str,
        executable: str,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        cwd: str,
        out: int,
        err: int,
        mounts: Sequence[Mount] = (),
    ) -> int | None:
        """Start the callable from a helper; return its pid, or None if it needs an ordinary start.

        Args:
            sharer: The user whose helpers may be used.
            executable: The interpreter.
            argv: The ordinary command line; the last word is the payload's path.
            env: All its variables.
            cwd: Its working directory.
            out: Descriptor of its stdout.
            err: Descriptor of its stderr.
            mounts: Its mounts over shared directories.
        """
        shared = {name: value for name, value in env.items() if name in _KEPT or not _is_own(name)}
        kind = (sharer, executable, argv[:-1], frozenset(shared.items()))
        helper = self._helpers.get(kind)
        if helper is None:
            self._consider(kind, shared)
            return None
        # The one that was used last goes last.
        self._helpers[kind] = self._helpers.pop(kind)
        try:
            if not helper.is_ready():
                return None
            own = {name: value for name, value in env.items() if name not in shared}
            with self._namespace(mounts) as namespace:
                return helper.fork(argv[-1], own, cwd, (out, err, *namespace), self._host.adopt)
        except (OSError, struct.error) as error:
            logger.warning("a warm interpreter of %s does not answer (%s); starting cold", sharer, error)
            self._drop(kind)
            return None

    @contextlib.contextmanager
    def _namespace(self, mounts: Sequence[Mount]) -> Iterator[tuple[int, ...]]:
        descriptor = self._host.namespace(mounts)
        try:
            yield () if descriptor is None else (descriptor,)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def close(self) -> None:
        """Let every helper end."""
        for kind in list(self._helpers):
            self._drop(kind)

    def _consider(self, kind: Kind, env: Mapping[str, str]) -> None:
        seen = self._seen[kind] = self._seen.get(kind, 0) + 1
        if seen <= _WANTED_BEFORE:
            if len(self._seen) > 1000:
                self._seen.clear()
            return
        ours, theirs = socket.socketpair()
        try:
            _, executable, argv, _ = kind
            pid = self._host.spawn_helper(executable, (*argv, "--serve", str(HELPER_SOCKET)), env, theirs.fileno())
        except OSError as error:
            logger.warning("cannot start a warm interpreter: %s", error)
            ours.close()
            return
        finally:
            theirs.close()
        helper = self._helpers[kind] = _Helper(pid, ours)
        self._host.watch_helper(pid, lambda: self._ended(kind, helper))
        self._host.call_later(_IDLE_S, lambda: self._look_after(kind, helper, 0))
        if len(self._helpers) > _MOST_HELPERS:
            self._drop(next(iter(self._helpers)))

    def _look_after(self, kind: Kind, helper: "_Helper", forks: int) -> None:
        if self._helpers.get(kind) is not helper:
            return
        if helper.forks == forks:
            self._drop(kind)
            return
        by_now = helper.forks
        self._host.call_later(_IDLE_S, lambda: self._look_after(kind, helper, by_now))

    def _drop(self, kind: Kind) -> None:
        helper = self._helpers.pop(kind, None)
        self._seen.pop(kind, None)
        if helper is not None:
            helper.close()

    def _ended(self, kind: Kind, helper: "_Helper") -> None:
        helper.gone = True
        if self._helpers.get(kind) is helper:
            self._drop(kind)


def _is_own(variable: str) -> bool:
    """Return whether a variable may differ between attempts that share a helper."""
    return variable.startswith(_OWN_PREFIX) or variable == _OWN


class _Helper:
    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self.forks = 0
        self.gone = False
        self._connection = connection
        self._ready = False

    def fork(
        self,
        payload: str,
        env: Mapping[str, str],
        cwd: str,
        descriptors: tuple[int, ...],
        adopt: Callable[[int], None],
    ) -> int:
        """Return the pid of a fork that has started. Call it only when the helper is ready.

        Args:
            payload: Path of the callable.
            env: Variables in addition to the helper's.
            cwd: The working directory.
            descriptors: Descriptors of stdout, stderr and optionally the mount namespace to enter.
            adopt: Called with the pid before the fork may run the payload.

        Raises:
            OSError: The helper is broken.
        """
        self.forks += 1
        words = [payload, cwd, *(f"{name}={value}" for name, value in env.items())]
        body = b"\0".join(map(os.fsencode, words))
        gate_read, gate_write = os.pipe2(os.O_CLOEXEC)
        try:
            try:
                socket.send_fds(self._connection, [struct.pack("!I", len(body))], [gate_read, *descriptors])
            finally:
                os.close(gate_read)
            self._connection.sendall(body)
            (pid,) = struct.unpack("!i", self._connection.recv(4, socket.MSG_WAITALL))
            adopt(pid)
            os.write(gate_write, b"g")
        finally:
            # Without the word it is told by this that it must not begin.
            os.close(gate_write)
        return int(pid)

    def close(self) -> None:
        self._connection.close()
        if not self.gone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def is_ready(self) -> bool:
        """Return whether the helper has started. Raises OSError if it is broken."""
        if not self._ready:
            self._connection.setblocking(False)
            try:
                if self._connection.recv(1) != b"R":
                    raise ConnectionError("it exited during its start")
            except BlockingIOError:
                return False
            self._ready = True
            self._connection.settimeout(_REPLY_S)
        return True
