"""`iris` commands in forks of one interpreter that has imported it: a command in a tenth of the processor time.

What differs from the installed program is the start of the interpreter alone: each command has a process, a session, a
directory, variables and streams of its own, runs the program's entry point, and ends as an interpreter ends.
"""

import functools
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

_LARGEST_REQUEST = 2**20
# What most commands import.
_PRELOADED = (
    "iris.cli.cluster.commands", "iris.cli.job.commands", "iris.cli.job.follow", "iris.cli.user", "iris.client",
    "iris.client.connection.discovery", "iris.local.start",
)  # fmt: skip


class CommandTimeout(Exception):
    """A command did not end in time, and was killed; the arguments are what it wrote to stdout and stderr."""


class WarmCommands:
    """Runs commands; the interpreter that is forked for them ends with this process."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Its own session: a Ctrl-C is for the commands' caller.
        self._server = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], start_new_session=True
        )
        theirs.close()

    def run(self, argv: list[str], cwd: Path, env: Mapping[str, str], timeout: float) -> tuple[int, str, str]:
        """Run `iris`; its exit code (negative for a signal), stdout and stderr, or CommandTimeout."""
        request = json.dumps({"argv": argv, "cwd": str(cwd), "env": dict(env)}).encode()
        reply, its_reply = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        with reply:
            socket.send_fds(self._requests, [request], [its_out, its_err, its_reply.fileno()])
            its_reply.close()
            os.close(its_out)
            os.close(its_err)
            pid = int(reply.recv(64))
            end = time.monotonic() + timeout
            written, is_in_time = _read_all([out, err], end)
            reply.settimeout(max(end - time.monotonic(), 0.001))
            try:
                code = int(reply.recv(64)) if is_in_time else None
            except TimeoutError:
                code = None
            if code is None:
                os.killpg(pid, signal.SIGKILL)
                raise CommandTimeout(*written)
            return code, written[0], written[1]


@functools.cache
def warm_commands() -> WarmCommands:
    """The one of this process, started by the first call."""
    return WarmCommands()


def _read_all(descriptors: list[int], end: float) -> tuple[list[str], bool]:
    """Read until all are at their ends; returns what was read, and whether that was before the time `end`."""
    parts: dict[int, list[bytes]] = {descriptor: [] for descriptor in descriptors}
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and (left := end - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                data = os.read(key.fd, 65536)
                parts[key.fd].append(data)
                if not data:
                    selector.unregister(key.fd)
        is_in_time = not selector.get_map()
    for descriptor in descriptors:
        os.close(descriptor)
    return [b"".join(part).decode() for part in parts.values()], is_in_time


def _await_command(requests: socket.socket) -> None:
    """Be the interpreter that is forked: returns in each command's process, its streams and directory in place."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, 3)
        if not data:
            sys.exit(0)
        parent = os.fork()
        if parent:
            for descriptor in descriptors:
                os.close(descriptor)
            os.waitpid(parent, 0)
            continue
        # A process between the two waits for the command, so that commands can run side by side.
        if os.fork():
            os._exit(0)
        requests.close()
        out, err, reply = descriptors
        command = os.fork()
        if command:
            _report(socket.socket(fileno=reply), command, [out, err])
        os.close(reply)
        _become_command(json.loads(data), out, err)
        return


def _report(reply: socket.socket, command: int, descriptors: list[int]) -> None:
    """Tell the command's process and its exit code, and end."""
    for descriptor in descriptors:
        os.close(descriptor)
    reply.send(str(command).encode())
    _, status = os.waitpid(command, 0)
    try:
        reply.send(str(os.waitstatus_to_exitcode(status)).encode())
    finally:
        os._exit(0)


def _become_command(request: dict[str, object], out: int, err: int) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    os.environ.update(request["env"])  # type: ignore[call-overload]
    sys.argv[:] = [str(Path(sys.executable).with_name("iris")), *request["argv"]]  # type: ignore[misc]


if __name__ == "__main__":
    from iris.cli import entry

    for module in _PRELOADED:
        importlib.import_module(module)
    _await_command(socket.socket(fileno=int(sys.argv[1])))
    entry.main()
