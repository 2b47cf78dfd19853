"""A terminal in which a command of a test runs."""

import os
import pty
import select
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

_LOOK_SECONDS: Final = 0.05
_END_SECONDS: Final = 30.0


CONTROLLED: Final = ("setsid", "--ctty", "--wait")


class Terminal:
    """A command in a terminal of its own: what it prints there, and keys that are pressed.

    Args:
        words: The command, for this computer. `CONTROLLED` before what is to have the terminal's Ctrl-C and its end.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._master, slave = pty.openpty()
        self._shown = b""
        self.process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)
        closing, self._closing = os.pipe()
        self._reader = threading.Thread(target=self._read, args=[closing], daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hang_up()

    @property
    def text(self) -> str:
        """Everything that it has shown."""
        return self._shown.decode(errors="replace").replace("\r\n", "\n")

    def press(self, keys: str) -> None:
        """Press keys: "\\x03" is Ctrl-C, "\\r" is Enter."""
        os.write(self._master, keys.encode())

    def await_text(self, wanted: str | Callable[[str], bool], seconds: float = 60) -> str:
        """Everything that it has shown, once `wanted` is in it. Raises AssertionError if that does not come in time."""
        deadline = time.monotonic() + seconds
        while not (wanted in self.text if isinstance(wanted, str) else wanted(self.text)):
            ended = self.process.poll() is not None and not self._reader.is_alive()
            if ended or time.monotonic() > deadline:
                raise AssertionError(f"the terminal did not show {wanted!r}, but:\n{self.text[-8000:]}")
            time.sleep(_LOOK_SECONDS)
        return self.text

    def wait(self, seconds: float = 60) -> int:
        """Wait for the command's end; returns its exit code."""
        return self.process.wait(seconds)

    def hang_up(self) -> None:
        """Close the terminal, as when its window is closed, and wait for what runs in it."""
        if self._master < 0:
            return
        os.close(self._closing)
        self._reader.join()  # a terminal that is being read stays open
        os.close(self._master)
        self._master = -1
        try:
            self.process.wait(_END_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()

    def _read(self, closing: int) -> None:
        while True:
            ready, _, _ = select.select([self._master, closing], [], [])
            try:
                data = b"" if closing in ready else os.read(self._master, 65536)
            except OSError:  # the other end is closed
                data = b""
            if not data:
                os.close(closing)
                return
            self._shown += data
