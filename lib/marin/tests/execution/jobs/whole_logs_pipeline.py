"""A pipeline whose steps print, and say elsewhere what they have printed (see test_whole_logs.py).

`whole_logs_pipeline.py PREFIX DIRECTORY STEPS LINES SEED`. A step prints numbered lines on each stream, with a token of
its attempt, and notes each in `DIRECTORY/said/STEP` when it is out. By dice it kills its own process with SIGKILL, or
fails, at some line of an attempt. It holds a kernel lock meanwhile: two attempts at once are noted as trouble.
"""

from __future__ import annotations

import fcntl
import logging
import os
import random
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fray.types import ResourceConfig
from marin.execution import Executor, ExecutorStep, versioned
from marin.execution.remote import remote
from rigging.log_setup import configure_logging

logger = logging.getLogger("user")
MOST_BAD_ATTEMPTS = 3


@dataclass(frozen=True)
class Config:
    number: int
    directory: str
    lines: int
    seed: int
    streams: tuple[str, ...]
    may_kill: bool


def talk(config: Config) -> None:
    token = os.urandom(4).hex()
    place = f"{config.directory}/said/{config.number}"
    with open(f"{place}.lock", "a") as witness, open(place, "a", buffering=1) as said:
        try:
            fcntl.flock(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with open(f"{config.directory}/trouble", "a") as trouble:
                trouble.write(f"step {config.number}: two attempts at once\n")
            raise
        before = Path(place).read_text().count("begin")
        said.write(f"begin {token}\n")
        dice = random.Random(f"{config.seed} {config.number} {before}")
        is_bad = before < MOST_BAD_ATTEMPTS and dice.random() < 0.25
        bad_line = dice.randrange(config.lines) if is_bad else -1
        for number in range(config.lines):
            for stream in config.streams:
                say(stream, f"{stream} {token} {number}")
                said.write(f"{stream} {token} {number}\n")
            if number == bad_line:
                if config.may_kill and dice.random() < 0.6:
                    os.kill(os.getpid(), signal.SIGKILL)
                said.write(f"fail {token}\n")
                raise LookupError(f"no luck for {token}")


def say(stream: str, text: str) -> None:
    if stream == "out":
        print(text, flush=True)
    elif stream == "err":
        print(text, file=sys.stderr)
    elif stream == "log":
        logger.warning("%s", text)
    else:
        subprocess.run(["/bin/echo", text], check=True)


def main() -> None:
    prefix, directory, count, lines, seed = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    configure_logging()
    in_process = os.environ["FRAY_CLIENT"] == "local"
    streams = ("out", "err", "log") if in_process else ("out", "err", "log", "sub")
    fn = talk if in_process else remote(talk, resources=ResourceConfig.with_cpu(cpu=0.1, ram="64m", disk="64m"))
    steps = [
        ExecutorStep(
            name=f"talk/s{number}",
            fn=fn,
            config=Config(versioned(number), directory, lines, seed, streams, not in_process),
            retries=2 * MOST_BAD_ATTEMPTS,
        )
        for number in range(count)
    ]
    # Each prints a line or two after the other: two processors are enough for so many.
    Executor(prefix, f"{prefix}/experiments").run(steps, max_concurrent=16)


if __name__ == "__main__":
    main()
