"""Callables that are forked from a warm interpreter behave as those that were started cold."""

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

WORKER = '''
"""Runs every case again and again, so that the first runs are cold and the last one is warm."""
import json, os, sys, time, cloudpickle
from pathlib import Path
from iris.worker import callable_main
from iris.worker.guardian.orphans import Marks, OrphanReaper, become_subreaper
from iris.worker.guardian.process import ProcessRuntime
from iris.worker.guardian.reactor import Reactor
from iris.worker.processes import ProcessSpec

MINE = {"MINE": "m", "IRIS_CLOUDPICKLE": "", "PYTHONPATH": sys.argv[2]}

def cases():
    def look():
        import atexit, threading
        atexit.register(lambda: print("exit handler", flush=True))
        def late():
            threading.main_thread().join()
            print("thread")
        threading.Thread(target=late).start()
        print(os.getcwd(), os.environ["MINE"], os.environ["IRIS_ATTEMPT_ID"], sorted(sys.argv[1:]) != [], flush=True)
        print(os.getppid(), os.getsid(0) == os.getpid(), repr(sys.stdin.read()), "IRIS_CLOUDPICKLE" in os.environ)
        print(sorted(pair for pair in os.environ.items() if pair[0] != "IRIS_ATTEMPT_ID"))
        print("to stderr", file=sys.stderr)
        import random
        return random.random()
    return {
        "look": (look, ()),
        "code": (sys.exit, (3,)),
        "text": (sys.exit, ("gone wrong",)),
        "none": (sys.exit, (None,)),
        "raise": (int, ("x",)),
        "signal": (print, ()),
        "child": (os.system, ("sleep 600 & echo started",)),
    }

class Seen:
    def __init__(self, reactor): self.reactor, self.out, self.exit = reactor, {False: b"", True: b""}, None
    def on_output(self, is_stderr, data): self.out[is_stderr] += data
    def on_exit(self, exit): self.exit = exit.code, exit.signal
    def ended(self):
        while self.exit is None:
            self.reactor.turn(1.0)
        return self.exit

def main(directory):
    become_subreaper()
    reactor = Reactor()
    os.chdir(directory)
    orphans = OrphanReaper(Marks(directory), adopt_unmarked=True)
    runtime = ProcessRuntime(reactor, orphans, own_cwd=str(directory), warm=True)
    script = str(Path(callable_main.__file__))
    place = directory / "place"
    place.mkdir()
    number = 0

    def run(payload, sharer="ann", **variables):
        nonlocal number
        number += 1
        env = {**os.environ, **MINE, "IRIS_ATTEMPT_ID": f"/ann/j/0:{number}", **variables}
        seen = Seen(reactor)
        argv = (sys.executable, "-P", script, str(payload))
        process = runtime.start(ProcessSpec(f"/ann/j/0:{number}", argv, env, str(place), sharer), seen)
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\\0")
        ended = seen.ended()
        warm = b"--serve" in words
        own = str(os.getpid())
        out = seen.out[False].decode().replace(f":{number} ", ":N ").replace(own, "WORKER")
        return warm, {"out": out, "err": seen.out[True].decode().splitlines()[-1:], "ended": ended}

    def until(payload, warm, **options):
        for _ in range(400):
            is_warm, told = run(payload, **options)
            if is_warm == warm: return told
            reactor.turn(0.02)
        raise SystemExit("never " + ("warm" if warm else "cold"))

    report = {}
    for name, (function, args) in cases().items():
        if name == "signal":
            function, args = (lambda: os.kill(os.getpid(), 9)), ()
        payload = directory / name
        payload.write_bytes(cloudpickle.dumps((function, args, {})))
        report[name] = [until(payload, False, sharer=f"cold {name}"), until(payload, True)]
    # Another user, and other variables, have helpers of their own.
    none = directory / "none"
    report["strangers"] = [(run(none, sharer="bob"))[0], (run(none, MINE="n"))[0]]
    hang = directory / "hang"
    def wait():
        import time
        time.sleep(600)
    hang.write_bytes(cloudpickle.dumps((wait, (), {})))
    env = {**os.environ, **MINE, "IRIS_ATTEMPT_ID": "/ann/j/0:9999"}
    seen = Seen(reactor)
    argv = (sys.executable, "-P", script, str(hang))
    process = runtime.start(ProcessSpec("/ann/j/0:9999", argv, env, str(place), "ann"), seen)
    process.kill()
    report["killed"] = seen.ended()
    runtime.close()
    for _ in range(500):
        if not Path(f"/proc/self/task/{os.getpid()}/children").read_text().strip(): break
        reactor.turn(0.01)
    report["children"] = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    print(json.dumps(report))

main(Path(sys.argv[1]))
'''


@pytest.fixture(scope="module", params=["sibling", "orphan"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the cases did; forks are made the worker's children by either way, the second without ctypes."""
    directory = tmp_path_factory.mktemp("warm_pool")
    (directory / "worker.py").write_text(WORKER)
    modules = directory / "modules"
    modules.mkdir()
    if request.param == "orphan":
        (modules / "ctypes.py").write_text("raise ImportError('this Python has none')")
    done = subprocess.run(
        [sys.executable, str(directory / "worker.py"), str(directory), str(modules)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_what_a_callable_finds_and_leaves_is_the_same(report: Any) -> None:
    cold, warm = report["look"]
    assert warm == cold
    first, second, environment, *rest = warm["out"].splitlines()
    assert "('MINE', 'm')" in environment
    assert first.endswith("place m /ann/j/0:N True")
    assert second == "WORKER True '' False"
    assert rest == ["thread", "exit handler"]
    assert (warm["err"], warm["ended"]) == (["to stderr"], [0, 0])


@pytest.mark.parametrize(
    ("case", "ended"),
    [("code", [3, 0]), ("text", [1, 0]), ("none", [0, 0]), ("raise", [1, 0]), ("signal", [0, 9]), ("child", [0, 0])],
)
def test_it_ends_the_same(report: Any, case: str, ended: list[int]) -> None:
    cold, warm = report[case]
    assert warm == cold
    assert warm["ended"] == ended


def test_helpers_are_not_shared_with_others(report: Any) -> None:
    assert report["strangers"] == [False, False]


def test_it_is_killed_like_any_other_and_nothing_is_left(report: Any) -> None:
    assert report["killed"] == [0, 9]
    assert report["children"] == ""
