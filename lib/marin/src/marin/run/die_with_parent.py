"""Run a command that ends with its parent process, even if that is killed: `python die_with_parent.py COMMAND...`.

The parent holds the other end of this program's standard input. When the parent ends, this program's process group is
killed. Imports only the standard library.
"""

import os
import signal
import subprocess
import sys
import threading


def main(words: list[str]) -> int:
    """Run the command and return its exit code."""
    # Signals for the group are the command's to answer. (What is ignored here, it would ignore, too.)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    threading.Thread(target=_end_with_input, daemon=True).start()
    return subprocess.call(words, stdin=subprocess.DEVNULL)


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
