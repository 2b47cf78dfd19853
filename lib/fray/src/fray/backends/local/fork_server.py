"""The server that forks processes for callables of a local client, so that they start with everything imported.

usage: python -P -m fray.backends.local.fork_server DESCRIPTOR

DESCRIPTOR is a stream socket of the client. A request is the length of its body with three descriptors (the job's
socket, its directory and its output), then the body, a pickled `ForkRequest`. Each job gets a keeper, which leads its
process group, and below it the callable's process. On the job's socket the keeper reports its process id, and how the
callable's process ended. If the keeper was killed, this process reports the end. When the socket closes, because the
client has received the report or is gone, the keeper kills its group. Until then its process id is not reused: the
keeper lives, or remains a zombie. This process forks, so it has one thread and imports nothing that starts another.
"""

import atexit
import contextlib
import gc
import os
import pickle
import selectors
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from fray.backends.common.lifeline import FORWARDED

READY = b"R"
STARTED = b"S"
ENDED = b"E"
WORD = struct.Struct("!ci")
_LENGTH = struct.Struct("!I")
_DESCRIPTORS = 3


class ForkRequest(NamedTuple):
    """A callable to run in a forked process.

    Args:
        payload, result: As in `child.main`.
        environment: The complete environment.
    """

    payload: str
    result: str
    environment: Mapping[str, str]


def send_request(server: socket.socket, request: ForkRequest, descriptors: tuple[int, int, int]) -> None:
    """Request a fork. Only one request is sent at a time.

    Args:
        server: The client's end of the server's socket.
        request: The callable to run.
        descriptors: The socket that reports its end, its directory, and its output.
    """
    body = pickle.dumps(request)
    socket.send_fds(server, [_LENGTH.pack(len(body))], descriptors)
    server.sendall(body)


def serve(server: socket.socket) -> ForkRequest:
    """Fork for every request. In each callable's process, return the request."""
    with selectors.DefaultSelector() as selector:
        selector.register(server, selectors.EVENT_READ)
        server.sendall(READY)
        while selector.get_map():
            for key, _ in selector.select():
                if key.fileobj is server:
                    request = _accept(server, selector)
                    if request is not None:
                        return request
                elif isinstance(key.fileobj, socket.socket):
                    # The client has noted the end, or is gone.
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    os.waitpid(key.data, 0)
                else:
                    _tell_end(key.fd, selector)
    os._exit(0)


def _accept(server: socket.socket, selector: selectors.BaseSelector) -> ForkRequest | None:
    """Fork a keeper for the next request. In the callable's process, return the request."""
    header, passed, _, _ = socket.recv_fds(server, _LENGTH.size, _DESCRIPTORS)
    body = b""
    if len(header) == _LENGTH.size:
        (size,) = _LENGTH.unpack(header)
        body = server.recv(size, socket.MSG_WAITALL)
    if not body:
        # The client has no more; those that run are waited for.
        selector.unregister(server)
        return None
    if len(passed) != _DESCRIPTORS:
        # There is no room for more: the client sees the job's socket closed, and starts it in another way.
        for descriptor in passed:
            os.close(descriptor)
        return None
    job = socket.socket(fileno=passed[0])
    keeper = os.fork()
    if keeper == 0:
        _let_go(selector)
        return _become(pickle.loads(body), job, passed[1], passed[2])  # noqa: S301 - from the client that started us
    for descriptor in passed[1:]:
        os.close(descriptor)
    selector.register(os.pidfd_open(keeper), selectors.EVENT_READ, (keeper, job))
    return None


def _let_go(selector: selectors.BaseSelector) -> None:
    """Close the descriptors of the client and of other jobs in a fork, so that their ends stay visible."""
    for key in list(selector.get_map().values()):
        if isinstance(key.fileobj, socket.socket):
            key.fileobj.close()
        else:
            os.close(key.fd)
            key.data[1].close()


def _tell_end(pidfd: int, selector: selectors.BaseSelector) -> None:
    """Report how a keeper ended, and wait until the client has read it."""
    keeper, job = selector.unregister(pidfd).data
    os.close(pidfd)
    ended = os.waitid(os.P_PID, keeper, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    selector.register(job, selectors.EVENT_READ, keeper)
    # When the client no longer listens, there is an end of file to read.
    with contextlib.suppress(OSError):
        job.sendall(WORD.pack(ENDED, code))


def _become(request: ForkRequest, job: socket.socket, directory: int, output: int) -> ForkRequest:
    """Become the leader of a group and fork the callable's process. Return only in that process."""
    os.setsid()
    os.fchdir(directory)
    for standard in (1, 2):
        os.dup2(output, standard)
    for descriptor in (directory, output):
        os.close(descriptor)
    # A signal that comes while we fork waits until it is known who takes it: the callable's process alone.
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    job.sendall(WORD.pack(STARTED, os.getpid()))
    child = os.fork()
    if child != 0:
        _keep(child, job)
    job.close()
    for number in FORWARDED:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    return request


def _keep(child: int, job: socket.socket) -> NoReturn:
    """Report how the child ended, and kill the group once the client has read it or is gone."""
    for number in FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    watch = threading.Thread(target=_watch, args=(job,))
    watch.start()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):
        job.sendall(WORD.pack(ENDED, code))
    # Our process id is the group's until the client has noted the end, and kills what is left.
    watch.join()
    os._exit(0)


def _watch(job: socket.socket) -> None:
    # A client that was killed before it read all that it was told resets the connection.
    with contextlib.suppress(OSError):
        job.recv(1)
    os.killpg(0, signal.SIGKILL)


def _leave(code: int) -> NoReturn:
    """End a fork like `sys.exit(code)`, but skip interpreter shutdown: its memory is shared with the server."""
    # As multiprocessing ends its forks: threads are waited for, then exit handlers run.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or without a reader
            stream.flush()
    os._exit(code & 0xFF)


def main(descriptor: int) -> NoReturn:
    """Detach from the client's children and serve it. In a fork, run a callable and exit with its code."""
    import cloudpickle  # noqa: F401 - what is called was pickled by it

    import fray.types  # noqa: F401 - likely to be needed
    from fray.backends.common import child

    if os.fork():
        # The client need not reap us, and whatever else it does with its children is not disturbed.
        os._exit(0)
    gc.freeze()
    request = serve(socket.socket(fileno=descriptor))
    sys.argv = [child.__file__, request.payload, request.result]
    _leave(child.main(request.payload, request.result))


if __name__ == "__main__":
    # As an importable module, not __main__, so that requests can be unpickled.
    from fray.backends.local import fork_server

    fork_server.main(int(sys.argv[1]))
