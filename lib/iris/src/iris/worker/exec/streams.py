"""The streams of a command in an attempt: three named pipes, or a terminal. The worker holds one end of each."""

import asyncio
import errno
import fcntl
import os
import shutil
import struct
import tempfile
import termios
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Final

_READ_BYTES: Final = 64 * 1024
_MOST_CELLS: Final = 65_535


class CommandStreams:
    """The worker's ends of a command's streams. Call it from the running loop; close it when done.

    Args:
        folder: A private directory.
        window: Rows and columns of a terminal; None for pipes.
        uid: The command's uid; 0 for the worker's.

    Attributes:
        paths: The command's ends: paths of its stdin, stdout and stderr, or of its terminal.
    """

    def __init__(self, folder: Path, window: tuple[int, int] | None, uid: int = 0) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = False
        self._waiting: dict[asyncio.Future[None], Callable[[], object]] = {}
        self._descriptors: list[int] = []
        self._terminal: int | None = None
        self._stdin: int | None = None
        self._folder = ""
        self.paths: tuple[str, ...] = ()
        try:
            if window is None:
                self._make_pipes(folder, uid)
            else:
                self._make_terminal(window, uid)
        except BaseException:
            self.close()
            raise

    def _make_pipes(self, folder: Path, uid: int) -> None:
        self._folder = tempfile.mkdtemp(prefix=".exec-", dir=folder)
        self.paths = tuple(f"{self._folder}/{name}" for name in ("stdin", "stdout", "stderr"))
        for path, mode in zip(self.paths, (os.O_RDWR, os.O_RDONLY, os.O_RDONLY), strict=True):
            os.mkfifo(path, 0o600)
            if uid:
                os.chown(path, uid, -1)  # it may open /dev/stdout
            self._descriptors.append(os.open(path, mode | os.O_NONBLOCK | os.O_CLOEXEC))

    def _make_terminal(self, window: tuple[int, int], uid: int) -> None:
        self._terminal, slave = os.openpty()
        self._descriptors += [self._terminal, slave]
        os.set_blocking(self._terminal, False)
        self.resize(*window)
        if uid:
            os.fchown(slave, uid, -1)
        self.paths = (os.ttyname(slave),)

    def started(self) -> None:
        """Release the command's ends, which it has open now, so that their ends are seen here."""
        if self._terminal is not None:
            os.close(self._descriptors.pop())
            self._stdin = self._terminal
            return
        holder, flags = self._descriptors[0], os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
        self._stdin = self._descriptors[0] = os.open(self.paths[0], flags)
        os.close(holder)

    def outputs(self) -> list[AsyncIterator[bytes]]:
        """Return its outputs, each until its end: stdout and stderr, or the terminal's."""
        sources = [self._terminal] if self._terminal is not None else self._descriptors[-2:]
        return [self._read(descriptor) for descriptor in sources]

    async def write(self, data: bytes) -> None:
        """Write to its stdin; drop what nobody will read."""
        view = memoryview(data)
        while view and self._stdin is not None and not self._ended:
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await self._ready(self._stdin, self._loop.add_writer, self._loop.remove_writer)
            except OSError:
                self.end_input()

    def end_input(self) -> None:
        """End its stdin; on a terminal like Ctrl-D."""
        if self._terminal is not None:
            if self._stdin is not None:
                try:
                    os.write(self._terminal, b"\x04")
                except OSError:  # full, or gone
                    return
        elif self._stdin is not None:
            self._descriptors.remove(self._stdin)
            os.close(self._stdin)
            self._stdin = None

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of its terminal, which tells the command."""
        if self._terminal is not None:
            size = [min(max(number, 0), _MOST_CELLS) for number in (rows, columns)]
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))

    def ended(self) -> None:
        """Make the outputs end after what is in them now: the command has ended."""
        self._ended = True
        for future, unwatch in self._waiting.items():
            unwatch()
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def close(self) -> None:
        """Close everything. A terminal's processes get SIGHUP."""
        self.ended()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors, self._terminal, self._stdin = [], None, None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _read(self, descriptor: int) -> AsyncIterator[bytes]:
        while True:
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                if self._ended:
                    return
                await self._ready(descriptor, self._loop.add_reader, self._loop.remove_reader)
                continue
            except OSError as error:
                if error.errno != errno.EIO:  # of a terminal that nobody has open
                    raise
                data = b""
            if not data:
                return
            yield data

    async def _ready(
        self, descriptor: int, add: Callable[[int, Callable[[], None]], object], remove: Callable[[int], object]
    ) -> None:
        """Wait until a descriptor is ready, or the command has ended."""
        future = self._loop.create_future()
        self._waiting[future] = partial(remove, descriptor)
        add(descriptor, lambda: None if future.done() else future.set_result(None))
        try:
            await future
        finally:
            if self._waiting.pop(future, None) is not None:  # else the descriptor may be another's by now
                remove(descriptor)
