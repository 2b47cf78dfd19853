"""Steps for the tour of the terminal: files in the folder `signals` say when they go on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fray.current_client import set_current_client
from fray.local_backend import LocalClient
from fray.types import ResourceConfig
from marin.execution import ExecutorStep, executor_main, progress, this_output_path, versioned
from marin.execution.remote import remote

SIGNALS = Path("signals").absolute()


@dataclass(frozen=True)
class Config:
    """Of every step."""

    n: int
    output_path: str
    after: str | None = None


def wait_for(name: str) -> None:
    """Wait until the tour says so."""
    while not (SIGNALS / name).exists():
        time.sleep(0.02)


def is_first(name: str) -> bool:
    """True at the first call."""
    try:
        (SIGNALS / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def read(config: Config) -> None:
    """Print, and return; beside another step, once that is at work."""
    if config.n == 3:
        wait_for("tokenizing")
    print(f"{config.n} files")


def tokenize(config: Config) -> None:
    """Tell how far it is, and how long it will take."""
    (SIGNALS / "tokenizing").touch()
    time.sleep(0.5)
    progress(20, 1000)
    wait_for("tokenize")


def load(config: Config) -> None:
    """Run until it may end."""
    (SIGNALS / f"gate-{config.n}").touch()
    wait_for(f"load-{config.n}")


def gate(config: Config) -> None:
    """Wait until another step is at work, so that the one behind begins after that."""
    wait_for(f"gate-{config.n}")


def hiccup(config: Config) -> None:
    """Fail at the first attempt."""
    if is_first("hiccup"):
        raise ConnectionError("the site hiccups")
    wait_for("hiccup-again")


def broken(config: Config) -> None:
    """Fail until it is mended."""
    total = sum(range(config.n))
    if not (SIGNALS / "mended").exists():
        raise ValueError(f"{total} tokens are too few")


def bars(config: Config) -> None:
    """Show a progress bar."""
    from tqdm import tqdm

    (SIGNALS / "gate-9").touch()
    shown = "{desc} {percentage:3.0f}%|{bar:20}| {n_fmt}/{total_fmt}"
    for done in tqdm(range(4), desc="shards", bar_format=shown, mininterval=0, miniters=1):
        if done == 2:
            wait_for("bars")


def talk(config: Config) -> None:
    """Print whole lines and parts of lines, in turn with another step."""
    me, other = ("a", "b") if config.n == 1 else ("b", "a")
    for turn in range(3):
        if turn or me == "b":
            wait_for(f"said-{other}-{turn if me == 'a' else turn + 1}")
        print(f"{me} says ", end="", flush=True)
        print(f"{turn}")
        (SIGNALS / f"said-{me}-{turn + 1}").touch()
    wait_for(f"end-{me}")


def ask(config: Config) -> None:
    """Stop at a breakpoint."""
    answer = config.n
    breakpoint()
    print(f"the answer is {answer}")


def stubborn(config: Config) -> None:
    """Wait for a program that does not mind to be asked to end; go on when it is killed."""
    subprocess.run(["bash", "-c", "trap '' INT TERM; touch signals/stubborn; read < <(sleep 600)"], check=False)
    time.sleep(600)


class BusyClient(LocalClient):
    """Runs one job at a time, and says why the others wait."""

    def __init__(self) -> None:
        super().__init__(max_threads=1)

    def submit(self, *arguments: Any, **options: Any) -> Any:
        """Submit a job whose handle tells why it waits."""
        handle = super().submit(*arguments, **options)
        handle.pending_reason = lambda: "no TPU of type v5p-8 is free"  # type: ignore[attr-defined]
        return handle


def step(name: str, fn: Callable[[Any], Any], n: int = 3, after: Any = None, **more: Any) -> ExecutorStep[Any]:
    """Return a step."""
    return ExecutorStep(name=f"tour/{name}", fn=fn, config=Config(versioned(n), this_output_path(), after), **more)


def as_job(fn: Callable[[Any], Any]) -> Any:
    """Return a function that runs as a job."""
    return remote(fn, resources=ResourceConfig.with_cpu(cpu=1))


SCENES: dict[str, Callable[[], list[ExecutorStep[Any]]]] = {
    "run": lambda: [step("tokenize", tokenize), step("load", load, n=1, after=step("read", read))],
    "retry": lambda: [step("hiccup", hiccup, retries=1, retry_delay=0.1)],
    "queue": lambda: [
        step("queue/first", as_job(load), n=1),
        step("queue/second", as_job(load), n=2, after=step("gate", gate, n=1)),
    ],
    "tqdm": lambda: [step("bars", bars), step("beside/bars", load, n=1, after=step("gate", gate, n=9))],
    "prints": lambda: [step("talk/a", talk, n=1), step("talk/b", talk, n=2)],
    "breakpoint": lambda: [step("ask", ask, n=42), step("beside/ask", load, n=1)],
    "failure": lambda: [step("broken", broken, after=step("read", read, n=4))],
    "interrupt": lambda: [step("stubborn", stubborn), step("again", hiccup, retries=1, retry_delay=600.0)],
}


def play(scene: str) -> None:
    """Run the steps of a scene."""
    with set_current_client(BusyClient()):
        executor_main(steps=SCENES[scene]())


if __name__ == "__main__":
    scenes = sys.argv.pop(1).split(",")
    for index, scene in enumerate(scenes):
        if index:
            wait_for(f"scene-{scene}")
            for signal in SIGNALS.iterdir():
                signal.unlink()
            print("\x1b[H\x1b[2J", end="", flush=True)
        play(scene)
        print(f"end of {scene}")
