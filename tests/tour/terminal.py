"""A terminal in a real tmux, and its screen in a form that two runs of the same program share."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

DEADLINE_SECONDS: Final = 60.0
_LINES: Final = 60
# Not `clear`, which tmux answers by keeping what was there.
CLEAR_COMMAND: Final = r"printf '\033[H\033[2J'"

# From what changes from run to run to what stands in its place. Columns of the view stay where they are.
_CHANGING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b[IWE]\d{8} \d\d:\d\d:\d\d"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"), "<time>"),
    (re.compile(r"\[(?:\d+\.\ds|\d+:\d\d)\]"), "[<s>]"),
    (re.compile(r" *\b\d+(?:\.\d+)? ?(?:s|it/s|s/it)\b"), " <s>"),
    (re.compile(r"(?<=[-_])[0-9a-f]{6,8}(?=[/.\s\]),:]|$)", re.MULTILINE), "<hash>"),
    (re.compile(r"\^C"), ""),
    (re.compile(r"(?<=: )\[\d+(?:, \d+)*\]"), "<ids>"),
    # The view cuts what does not fit, and that depends on the length of the times.
    (re.compile(r"(?: |^)/\S*…$|…$", re.MULTILINE), " …"),
)


def normalised(screen: str, folder: Path) -> str:
    """Return a screen without what differs between two runs: times, hashes, process ids, the folder."""
    text = screen.replace(str(folder), "<folder>").replace(sys.executable, "python")
    for pattern, replacement in _CHANGING:
        text = pattern.sub(replacement, text)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()).rstrip() + "\n"


class Terminal:
    """A shell in a tmux server of its own.

    Args:
        folder: For the server's socket; the shell's current folder, with the scripts.
        columns: Its width when it is started.
        environment: Further variables.
    """

    def __init__(self, folder: Path, columns: int, environment: dict[str, str]) -> None:
        self.folder = folder
        self._socket = str(folder / "socket")
        self.columns = columns
        self._environment = environment
        self._first_line: tuple[str, ...] = ()

    def start(self) -> None:
        """Start the shell."""
        plain = {name: os.environ[name] for name in ("HOME", "UV_CACHE_DIR") if name in os.environ}
        path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "/usr/bin:/bin")))
        environment = {
            **plain, "PATH": path, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PS1": "$ ", "PYTHONSAFEPATH": "",
            "HISTFILE": "/dev/null", **self._environment,
        }  # fmt: skip
        size = ("-x", str(self.columns), "-y", str(_LINES))
        command = [
            "tmux",
            "-f",
            "/dev/null",
            "-S",
            self._socket,
            "new-session",
            "-d",
            *size,
            "exec env 'PS1=$ ' bash --norc --noprofile",
        ]
        subprocess.run(command, env=environment, cwd=self.folder, check=True, timeout=DEADLINE_SECONDS)
        self.wait_for(lambda screen: screen.rstrip().endswith("$"))

    def stop(self) -> None:
        """End the server, and what runs in it."""
        self._ask("kill-server")

    def type(self, text: str) -> None:
        """Type a line."""
        self._ask("send-keys", "-l", text)
        self._ask("send-keys", "Enter")

    def press(self, key: str) -> None:
        """Press a key, by tmux's name of it: `C-c`."""
        self._ask("send-keys", key)

    def resize(self, columns: int) -> None:
        """Make the terminal wider or narrower; lines at its top may go to its history, which is shown from now on."""
        self._first_line = ("-S", "-")
        self._ask("resize-window", "-x", str(columns), "-y", str(_LINES))

    def clear(self) -> None:
        """Empty the terminal, which shows the shell's prompt."""
        self.type(CLEAR_COMMAND)
        self.wait_for(lambda screen: screen.strip() == "$")

    def screen(self) -> str:
        """Return what the terminal shows, with broken lines joined."""
        return self._ask("capture-pane", "-p", "-J", *self._first_line)

    def settled(self) -> str:
        """Return the screen once two looks at it, half a second apart, differ in times alone."""
        before = ""
        while (now := normalised(self.screen(), self.folder)) != before:
            before = now
            time.sleep(0.5)
        return self.screen()

    def wait_for(self, shown: str | Callable[[str], bool], seconds: float = DEADLINE_SECONDS) -> str:
        """Wait until a text is shown, or a condition of the screen holds; return the screen.

        Raises:
            AssertionError: It did not come in time; the message is the screen.
        """
        deadline = time.monotonic() + seconds
        while True:
            screen = self.screen()
            if shown in screen if isinstance(shown, str) else shown(screen):
                return screen
            assert time.monotonic() < deadline, f"{shown!r} was not seen:\n{screen}"
            time.sleep(0.05)

    def _ask(self, *words: str) -> str:
        command = ["tmux", "-S", self._socket, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS).stdout


def has_tmux() -> bool:
    """True if tmux is installed."""
    return shutil.which("tmux") is not None
