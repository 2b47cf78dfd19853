"""A command inside a running task (`iris task exec`), with streams both ways."""

import contextlib
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

import grpc

from iris.client.connection.connection import Connection
from iris.rpc.generated import exec_pb2 as pb
from iris.rpc.status_map import from_rpc_error
from rigging.errors import Conflict

_PIECE: Final = 64 * 1024
_AHEAD: Final = 4
_LOOK_S: Final = 0.2
_SIGNAL_CODE: Final = 128


class TaskCommand:
    """A command inside a running task, in its directory and with its files, variables, user and limits.

    The command ends with the task, with this object's `close`, and with the connection. Read `output` in one thread;
    others may send input.

    Args:
        connection: The connection to the controller (`IrisClient.connection`).
        task_id: The task.
        argv: The command, found in the task's PATH.
        terminal: Rows and columns of a terminal; None for pipes.
        term: TERM of the terminal.
    """

    def __init__(
        self,
        connection: Connection,
        task_id: str,
        argv: Sequence[str],
        *,
        terminal: tuple[int, int] | None = None,
        term: str = "",
    ) -> None:
        self._connection = connection
        self._inputs: queue.SimpleQueue[pb.ExecInput | None] = queue.SimpleQueue()
        self._room = threading.BoundedSemaphore(_AHEAD)
        self._over = threading.Event()
        self._end: pb.ExecEnd | None = None
        window = None if terminal is None else pb.WindowSize(rows=terminal[0], columns=terminal[1])
        start = pb.ExecStart(task_id=task_id, argv=argv, terminal=window, term=term)
        self._inputs.put(pb.ExecInput(start=start))
        stubs = connection.current()
        self._call: Any = stubs.execs.Exec(self._messages(), metadata=stubs.metadata)

    @property
    def exit_code(self) -> int:
        """The exit code, 128 + n after signal n; 126 or 127 if the command was not started.

        Raises:
            Conflict: The command has not ended.
        """
        if self._end is None:
            raise Conflict("the command has not ended")
        return _SIGNAL_CODE + self._end.exit_signal if self._end.exit_signal else self._end.exit_code

    @property
    def error(self) -> str:
        """Why the command was not started; empty if it was."""
        return "" if self._end is None else self._end.error

    def output(self) -> Iterator[tuple[bytes, bool]]:
        """Yield pieces of output until the command ends, and whether each is of stderr. A terminal has only stdout.

        Raises:
            Conflict: The task is not running.
            Denied: The caller is neither the owner of the job nor an admin.
            NotFound: There is no such task.
            Unavailable: The controller or the worker has gone, which ended the command.
        """
        try:
            for message in self._call:
                kind = message.WhichOneof("kind")
                if kind == "end":
                    self._end = message.end
                    return
                if kind in ("stdout", "stderr"):
                    yield getattr(message, kind), kind == "stderr"
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        finally:
            self.close()

    def write(self, data: bytes) -> bool:
        """Send bytes to stdin, waiting while the command does not read; return False if it has ended."""
        for start in range(0, len(data), _PIECE):
            while not self._room.acquire(timeout=_LOOK_S):
                if self._over.is_set():
                    return False
            self._inputs.put(pb.ExecInput(stdin=data[start : start + _PIECE]))
        return not self._over.is_set()

    def end_input(self) -> None:
        """End stdin."""
        self._inputs.put(pb.ExecInput(stdin_ends=True))

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal. May be called from a signal handler."""
        self._inputs.put(pb.ExecInput(window=pb.WindowSize(rows=rows, columns=columns)))

    def close(self) -> None:
        """End the command if it runs."""
        self._over.set()
        self._inputs.put(None)
        self._call.cancel()

    def _messages(self) -> Iterator[pb.ExecInput]:
        while (message := self._inputs.get()) is not None:
            yield message
            if message.WhichOneof("kind") == "stdin":
                with contextlib.suppress(ValueError):
                    self._room.release()
