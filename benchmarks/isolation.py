"""The cost of task isolation at a start: each mode compared with an unprotected start, in alternating turns of one run.

usage: uv run --group dev python benchmarks/isolation.py [--files 500] [--starts 40] [--turns 5] [--directory DIR]

A workspace of some files, a virtual environment, and `/bin/true` or a callable that a warm interpreter runs, by the
guardian's own runtime: making the attempt's directories, the start, the end, removing the directories. Prints one JSON
line per mode: wall and processor time (this process and its children, milliseconds, medians of the turns) and the
excess over the unprotected start.
"""

import argparse
import json
import os
import pickle
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from iris.worker import callable_main
from iris.worker.attempts.directories import AttemptDirectories
from iris.worker.guardian.process import ProcessRuntime
from iris.worker.guardian.reactor import Reactor
from iris.worker.isolation.plan import IsolationMode, Mount, private_copy
from iris.worker.isolation.seals import Seals, copy_tree
from iris.worker.isolation.views import open_views
from iris.worker.paths import WorkPaths
from iris.worker.prepare.task_env import PreparedEnvironment
from iris.worker.processes import Exit, ProcessSpec
from iris.worker.strays.orphans import Marks, OrphanReaper, become_subreaper

BUNDLE = "b" * 64


class Ended:
    """Records the end of one process."""

    def __init__(self) -> None:
        self.exit: Exit | None = None

    def on_output(self, is_stderr: bool, data: bytes) -> None:
        if is_stderr:
            sys.stderr.buffer.write(data)

    def on_exit(self, exit: Exit) -> None:
        self.exit = exit


class Bench:
    """Starts attempts like a worker and its guardian, in one process."""

    def __init__(self, root: Path, files: int) -> None:
        self.paths = WorkPaths(root)
        self.paths.make()
        self.bundle = self.paths.bundles / BUNDLE
        for number in range(files):
            path = self.bundle / f"p{number // 50}" / f"m{number}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"VALUE = {number}\n")
        self.environment = self.paths.envs / "e"
        self.environment.mkdir()
        (self.environment / "pyvenv.cfg").touch()
        self.payload = root / "payload"
        self.payload.write_bytes(pickle.dumps((len, ((),), {})))
        become_subreaper()
        self.views = open_views(root)
        os.chdir("/")
        self.reactor = Reactor()
        orphans = OrphanReaper(Marks(root), adopt_unmarked=True)
        self.runtime = ProcessRuntime(self.reactor, orphans, own_cwd="/", warm=True, views=self.views)
        self.seals = Seals()
        self.seals.seal(self.bundle)
        self.count = 0
        self.later: list[Callable[[], None]] = []
        self.directories = {
            mode: AttemptDirectories(self.paths, mode or IsolationMode.OVERLAY, self.later.append)
            for mode in (None, *IsolationMode)
        }

    def attempt(self, mode: IsolationMode | None, warm: bool) -> None:
        """Run one attempt, from creating its directories to removing them. Mode None means no isolation."""
        self.count += 1
        name = f"/u/job/{self.count}:0"
        with self.views.outside():  # as the worker, which is another process
            spec = self.prepared(name, mode, warm)
        ended = Ended()
        self.runtime.start(spec, ended)
        while ended.exit is None:
            self.reactor.turn(1.0)
        assert ended.exit.succeeded, ended.exit
        with self.views.outside():
            self.directories[mode].remove(name)
            for work in self.later:
                work()
            self.later.clear()

    def prepared(self, name: str, mode: IsolationMode | None, warm: bool) -> ProcessSpec:
        """Prepare a start like a worker."""
        prepared = PreparedEnvironment(bundle_dir=self.bundle, virtual_env=str(self.environment))
        directories = self.directories[mode]
        mounts: tuple[Mount, ...] = ()
        cwd = directories.make(name, prepared)
        if mode is not None:
            if mode is IsolationMode.COPY:
                assert self.seals.is_intact(self.bundle)
            if directories.needs_copy(prepared):
                copy = private_copy(self.paths.layer(name))
                os.mkdir(os.path.dirname(copy), 0o700)
                copy_tree(self.bundle, Path(copy))
            mounts = directories.mounts(name, prepared)
        env = {"PATH": os.path.dirname(sys.executable), "TMPDIR": directories.temporary(name)}
        argv = ("python", "-P", str(callable_main.__file__), str(self.payload)) if warm else ("/bin/true",)
        # A tool of the worker is started outside of the tasks' view: that is the start without protection.
        plain = mode in (None, IsolationMode.COPY) and not warm
        return ProcessSpec(name, argv, env, cwd, "u" if warm else "", dies_with_worker=plain, mounts=mounts)

    def warm_up(self) -> None:
        """Start a warm interpreter."""
        for _ in range(3):
            self.attempt(None, True)
            time.sleep(0.3)


@contextmanager
def measured(into: list[tuple[float, float]], starts: int) -> Iterator[None]:
    def used() -> float:
        found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in found)

    before, began = used(), time.perf_counter()
    yield
    into.append(((time.perf_counter() - began) / starts * 1000, (used() - before) / starts * 1000))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--starts", type=int, default=40)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--directory", help="on the file system to be measured")
    arguments = parser.parse_args()
    ways: list[tuple[IsolationMode | None, bool]] = [
        *((None, False), (IsolationMode.OVERLAY, False), (IsolationMode.BIND, False), (IsolationMode.COPY, False)),
        *((None, True), (IsolationMode.OVERLAY, True)),
    ]
    root = Path(tempfile.mkdtemp(dir=arguments.directory))
    bench = Bench(root, arguments.files)
    bench.warm_up()
    found: dict[tuple[IsolationMode | None, bool], list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(arguments.turns):
        for mode, warm in ways:
            with measured(found[mode, warm], arguments.starts):
                for _ in range(arguments.starts):
                    bench.attempt(mode, warm)
    for (mode, warm), turns in found.items():
        wall, used = (statistics.median(column) for column in zip(*turns, strict=True))
        base = found[None, warm]
        more = [statistics.median(column) for column in zip(*base, strict=True)]
        line = {
            "start": "callable, warm" if warm else "/bin/true",
            "isolation": mode or "none",
            "files": arguments.files,
            "wall_ms": round(wall, 2),
            "processor_ms": round(used, 2),
            "wall_more_ms": round(wall - more[0], 2),
            "processor_more_ms": round(used - more[1], 2),
        }
        print(json.dumps(line))
    with bench.views.outside():
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
