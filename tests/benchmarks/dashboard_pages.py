"""How long the cluster's pages take, and what pages that look on cost the controller.

    uv run python tests/benchmarks/dashboard_pages.py [--jobs 10000] [--tasks 10000] [--log-gb 1] [--watchers 20]

    pages     each page once, and the median of nine more, over HTTP on loopback: with so many jobs, a job of so many
              tasks, and a log of so many GB
    watched   jobs a second of a scripted worker, and the controller's memory, without pages and with so many that look
              on: each has a stream of events and loads its list again, as browsers do

Prints one JSON line a measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import httpx2
import psutil

from iris.controller.logs.store import LogStore
from iris.dashboard.application import make_application
from iris.dashboard.cluster_client import viewer_of
from iris.dashboard.settings import Settings
from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.logformat import encode_lines
from iris.rpc.protocol import call_metadata
from iris.testing.controller import ControllerStubs
from iris.testing.controller_process import ControllerProcess
from iris.testing.users import User
from iris.testing.worker import ScriptedWorker, succeed_at_once
from rigging.web.serving import WebServer, bind

_REPEATS = 9
_SIZE = pb.Resources(cpu_millis=64_000, memory_bytes=1 << 40, disk_bytes=1 << 40)
_LINES = 100_000
_CALLERS = 16


def write_log(state_dir: Path, job: str, gigabytes: float) -> None:
    """Write a log as a worker's would be there."""
    store = LogStore(state_dir / "logs", 2**40)
    key = (job, 0, 0)
    lines = [f"step={i} loss=0.{i % 9973:04d} lr=1e-4 tokens={i * 4096}".encode() for i in range(_LINES)]
    written, at_ms = 0, int(time.time() * 1000) - 10_000_000
    while written < gigabytes * 1e9:
        data = encode_lines(False, at_ms, lines)
        store.append(key, store.size(key), data)
        written += len(data)
        at_ms += 1000


@contextlib.contextmanager
def served(controller: ControllerProcess, secret: bytes) -> Iterator[tuple[str, dict[str, str]]]:
    """The pages in a thread of this process: their address, and a session's cookie."""
    bound = bind(0)
    app, live = make_application(Settings(str(controller.address), secret.hex(), "00" * 32), others=())
    server = WebServer(app, bound, live.broadcaster.close)
    thread = threading.Thread(target=lambda: asyncio.run(server.run()), daemon=True)
    thread.start()
    name = app.state.web.settings.cookie
    cookie = app.state.web.sessions.open(viewer_of("root", is_admin=True, may_write=False))
    try:
        yield bound.url, {name: cookie}
    finally:
        server.stop()
        thread.join()


def measure_pages(url: str, cookie: dict[str, str], big: str) -> None:
    counted = quote("SELECT state_word, count(*) FROM tasks GROUP BY 1")
    pages = {
        "jobs": "/jobs",
        "jobs, searched": "/jobs?q=j99",
        "jobs, last page": "/jobs?page=200",
        "job of many tasks": f"/job?id={big}",
        "its tasks": f"/job/tasks?id={big}",
        "its last tasks": f"/job/tasks?id={big}&page=100",
        "task": f"/task?id={big}/0",
        "log": f"/logs?id={big}/0",
        "queue": "/queue",
        "workers": "/workers",
        "users": "/users",
        "controller": "/controller",
        "sql": f"/sql?q={counted}",
        "metrics": "/metrics",
    }
    with httpx2.Client(base_url=url, cookies=cookie, timeout=60) as client:
        for name, path in pages.items():
            times = []
            for _ in range(_REPEATS + 1):
                began = time.perf_counter()
                answer = client.get(path)
                times.append((time.perf_counter() - began) * 1e3)
                assert answer.status_code == 200, answer.text
                time.sleep(0.3)  # longer than an answer is kept for pages that ask at once
            line = {"page": name, "first_ms": round(times[0], 1), "median_ms": round(statistics.median(times[1:]), 1)}
            print(json.dumps(line | {"kb": len(answer.content) // 1024}), flush=True)


def look_on(url: str, cookie: dict[str, str], stop: threading.Event, loads: list[int]) -> None:
    """As a page with the list of jobs does: told of a change, it loads the list, once in half a second at most."""
    with (
        httpx2.Client(base_url=url, cookies=cookie, timeout=60) as client,
        client.stream("GET", "/events") as stream,
    ):
        last = 0.0
        for line in stream.iter_lines():
            if stop.is_set():
                return
            if line == "event: jobs" and time.monotonic() - last > 0.5:
                last = time.monotonic()
                loads.append(client.get("/jobs", headers={"HX-Request": "true"}).status_code)


def jobs_per_second(user: User, prefix: str, count: int) -> float:
    began = time.perf_counter()
    names = [f"/ann/{prefix}{i}" for i in range(count)]
    with ThreadPoolExecutor(_CALLERS) as callers:
        list(callers.map(lambda name: user.submit(name, cpu_millis=10, memory_bytes=1), names))
    for first in range(0, count, 500):
        user.wait(*names[first : first + 500])
    return count / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--log-gb", type=float, default=1.0)
    parser.add_argument("--watchers", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="iris-bench-", ignore_cleanup_errors=True) as name:
        state_dir, big = Path(name), "/ann/big"
        controller = ControllerProcess(state_dir)
        secret = load_or_create_secret(state_dir / "secret")
        stubs = ControllerStubs(controller.address, call_metadata(make_token(secret, PrincipalKind.ADMIN, "root")))
        user = User(stubs)
        token = make_token(secret, PrincipalKind.WORKER, "w1")
        with ScriptedWorker(controller.address, token, capacity=_SIZE, script=succeed_at_once):
            jobs_per_second(user, "j", options.jobs)
            user.submit(big, replicas=options.tasks, cpu_millis=10, memory_bytes=1)
            user.wait(big)
            write_log(state_dir, big, options.log_gb)
            with served(controller, secret) as (url, cookie):
                measure_pages(url, cookie, big)
            process = psutil.Process(controller.pid)
            for watchers in (0, options.watchers, 0, options.watchers):
                with contextlib.ExitStack() as stack:
                    stop = threading.Event()
                    loads: list[int] = []
                    if watchers:
                        url, cookie = stack.enter_context(served(controller, secret))
                        for _ in range(watchers):
                            looker = threading.Thread(target=look_on, args=(url, cookie, stop, loads), daemon=True)
                            looker.start()
                    cpu = sum(process.cpu_times()[:2])
                    rate = jobs_per_second(user, f"w{time.time_ns()}-", 2000)
                    cpu = sum(process.cpu_times()[:2]) - cpu
                    stop.set()
                line = {"watchers": watchers, "jobs_per_s": round(rate), "rss_mb": process.memory_info().rss >> 20}
                print(json.dumps(line | {"controller_cpu_s": round(cpu, 2), "loads": len(loads)}), flush=True)
        stubs.close()
        controller.stop()


if __name__ == "__main__":
    main()
