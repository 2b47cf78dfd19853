"""A terminal in which a command of a test runs."""

import os
import pty
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

_LOOK_SECONDS: Final = 0.05


class Terminal:
    """A command in a terminal of its own: what it prints there, and keys that are pressed.

    Args:
        words: The command, for this computer.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._master, slave = pty.openpty()
        self._shown = b""
        # With `setsid` the terminal's Ctrl-C goes to all that the command has in the foreground, as for people.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *words], stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hang_up()

    @property
    def text(self) -> str:
        """What it has shown."""
        return self._shown.decode(errors="replace").replace("\r\n", "\n")

    def press(self, keys: str) -> None:
        """Press keys: "\\x03" is Ctrl-C, "\\r" is Enter."""
        os.write(self._master, keys.encode())

    def await_text(self, wanted: str | Callable[[str], bool], seconds: float = 60) -> str:
        """What it shows, once it shows `wanted`. Raises AssertionError if it does not in time."""
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
        """Close the terminal, and end what is left of the command."""
        if self._master >= 0:
            master, self._master = self._master, -1
            if self.process.poll() is None:
                self.process.terminate()
            os.close(master)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # the other end is closed
                return
            if not data:
                return
            self._shown += data
