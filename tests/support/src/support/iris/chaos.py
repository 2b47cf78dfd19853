"""A cluster of real processes that are killed, frozen and cut off, each by its own random sequence."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from fray.testing.waiting import eventually
from iris.controller.config.controller_config import Address
from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from support.iris.controller_process import ControllerProcess, fixed_port
from support.iris.proxy import TcpProxy
from support.iris.worker_process import WorkerProcess

_CONTROLLER: Final = "controller"


class Blow(StrEnum):
    """Things that may strike a process."""

    KILL = "kill -9"
    FREEZE = "SIGSTOP"
    CUT = "disconnection"


@dataclass(frozen=True, slots=True)
class Stroke:
    """One blow against one process: `rest_s` before it, `pause_s` until the process runs, or is connected, again."""

    target: str
    blow: Blow
    rest_s: float
    pause_s: float


def draw_strokes(source: random.Random, targets: list[str], count: int, most_pause_s: float) -> list[Stroke]:
    """Draw strokes at random; half of the pauses are below an eighth of the longest."""
    strokes = []
    for _ in range(count):
        target = source.choice(targets)
        blow = source.choice([Blow.KILL, Blow.FREEZE] if target == _CONTROLLER else list(Blow))
        rest_s = source.uniform(0.02, 0.15) * most_pause_s
        strokes.append(Stroke(target, blow, rest_s, most_pause_s * source.random() ** 3))
    return strokes


class Fleet:
    """One controller and some workers, as processes on this machine; `settings` are numbers of ControllerConfig."""

    def __init__(self, root: Path, workers: int, settings: Mapping[str, float]) -> None:
        self.root = root
        self.struck: list[str] = []
        self._settings = settings
        self._port = fixed_port()
        self._state_dir = root / "state"
        self._began = time.monotonic()
        self.controller = self._start_controller()
        secret = load_or_create_secret(self._state_dir / "secret")
        self.user_token = make_token(secret, PrincipalKind.USER, "ann")
        names = [f"w{number}" for number in range(workers)]
        self._tokens = {name: make_token(secret, PrincipalKind.WORKER, name) for name in names}
        self._proxies = {name: TcpProxy(str(self.address)) for name in names}
        self.workers = {name: self._start_worker(name) for name in names}

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self._port)

    @property
    def targets(self) -> list[str]:
        """Return the names of the processes; the controller's as often as two workers'."""
        return [_CONTROLLER, _CONTROLLER, *self.workers]

    def strike_all(self, strokes: list[Stroke]) -> None:
        """Carry out all strokes: those against one process one after another, against several at once."""
        mine = {
            target: [stroke for stroke in strokes if stroke.target == target] for target in dict.fromkeys(self.targets)
        }
        threads = [threading.Thread(target=self._strike_each, args=(own,)) for own in mine.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _strike_each(self, strokes: list[Stroke]) -> None:
        for stroke in strokes:
            time.sleep(stroke.rest_s)
            self._note(f"{stroke.blow} of {stroke.target} for {stroke.pause_s:.1f} s")
            repair = self._strike_controller(stroke) if stroke.target == _CONTROLLER else self._strike_worker(stroke)
            time.sleep(stroke.pause_s)
            repair()

    def _strike_controller(self, stroke: Stroke) -> Callable[[], None]:
        if stroke.blow is Blow.FREEZE:
            self.controller.pause()
            return self.controller.resume
        self.controller.kill()

        def restart() -> None:
            self.controller = self._start_controller()

        return restart

    def _strike_worker(self, stroke: Stroke) -> Callable[[], None]:
        name = stroke.target
        worker, proxy = self.workers[name], self._proxies[name]
        if stroke.blow is Blow.FREEZE:
            worker.freeze()
            return worker.thaw
        if stroke.blow is Blow.CUT:
            # Nothing passes, and neither side is told; at the end the connections break.
            proxy.hold()

            def heal() -> None:
                proxy.cut()
                proxy.release()

            return heal
        worker.kill()

        def restart() -> None:
            self.workers[name] = self._start_worker(name)

        return restart

    def _start_controller(self) -> ControllerProcess:
        return ControllerProcess(self._state_dir, self._port, settings=self._settings)

    def _start_worker(self, name: str) -> WorkerProcess:
        host, _, port = self._proxies[name].address.rpartition(":")
        return WorkerProcess(self.root / name, name, Address(host, int(port)), self._tokens[name])

    def _note(self, what: str) -> None:
        self.struck.append(f"{time.monotonic() - self._began:6.1f} s: {what}")

    def processes(self) -> dict[int, str]:
        """Every process of a task of this fleet that lives, by its environment."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                environ = Path(f"/proc/{pid}/environ").read_bytes()
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"IRIS_ATTEMPT_ID=" in environ and str(self.root).encode() in environ:
                found[int(pid)] = line.replace(b"\0", b" ").decode(errors="replace")
        return found

    def close(self) -> None:
        """End everything in order."""
        for worker in self.workers.values():
            if worker.is_alive:
                worker.stop()
        self.controller.resume()
        self.controller.kill()
        for proxy in self._proxies.values():
            proxy.close()


@contextmanager
def running_fleet(root: Path, workers: int, settings: Mapping[str, float]) -> Iterator[Fleet]:
    """A fleet for the length of the block; nothing of it is left afterwards."""
    fleet = Fleet(root, workers, settings)
    try:
        yield fleet
    finally:
        fleet.close()
    eventually(lambda: not fleet.processes(), "no task is left", timeout=30, instead=fleet.processes)
