"""Response times of the cluster's pages, and the cost of followed pages for the controller.

    uv run --group dev python benchmarks/dashboard_pages.py [--jobs 10000] [--tasks 10000] [--log-gb 1] [--watchers 20]

    pages     each page once, and the median of nine more, over HTTP on loopback: with so many jobs, a job of so many
              tasks, and a log of so many GB
    watched   jobs a second of a scripted worker, and the memory of the controller and of the process that serves the
              pages, before and after; without pages, and with so many that look on, in turns: two in five are lists of
              jobs, which are loaded again as browsers do, the others follow a log, a run and the list of runs

Prints one JSON line per measurement.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx2
import psutil

from iris.controller.logs.keeper import LogKeeper, leftovers
from iris.controller.logs.store import LogStore
from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logformat import encode_lines
from iris.rpc.protocol import call_metadata
from support.iris.controller import ControllerStubs
from support.iris.controller_process import ControllerProcess
from support.iris.users import User
from support.iris.worker import ScriptedWorker, succeed_at_once
from support.marin.sample_runs import sample_root

_REPEATS = 9
_SIZE = pb.Resources(cpu_millis=64_000, memory_bytes=1 << 40, disk_bytes=1 << 40)
_LINES = 100_000
_CALLERS = 16


def write_log(state_dir: Path, job: str, gigabytes: float) -> None:
    """Write a log in the format of a worker's log."""
    store = LogStore(state_dir / "logs", 2**40)
    key = (job, 0, 0)
    lines = [f"step={i} loss=0.{i % 9973:04d} lr=1e-4 tokens={i * 4096}".encode() for i in range(_LINES)]
    written, at_ms = 0, int(time.time() * 1000) - 10_000_000
    while written < gigabytes * 1e9:
        data = encode_lines(False, at_ms, lines)
        store.append(key, store.size(key), data)
        written += len(data)
        at_ms += 1000
    # A controller packs what is finished while the rest comes in.
    keeper = LogKeeper(store, None, lambda _: None)
    for piece in leftovers(store.root):
        keeper.tend(piece)


@dataclass(frozen=True, slots=True)
class Pages:
    """The process that serves the pages, started like by the controller.

    Attributes:
        url: Its address.
        cookies: An admin's session.
        process: The process.
    """

    url: str
    cookies: dict[str, str]
    process: psutil.Process


@contextlib.contextmanager
def served(controller: ControllerProcess, secret: bytes, prefix: Path) -> Iterator[Pages]:
    """Serve the cluster's pages, and the experiment pages of a prefix, in a separate process."""
    settings = {"controller": str(controller.address), "secret": secret.hex(), "key": "00" * 32}
    command = [sys.executable, "-m", "iris.dashboard"]
    environment = {**os.environ, "MARIN_PREFIX": str(prefix)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(settings) + "\n")
        url = json.loads(process.stdout.readline())["url"]
        asked = {"user": "root", "admin": True, "may_write": False, "token_id": ""}
        process.stdin.write(json.dumps({"link": asked}) + "\n")
        path = json.loads(process.stdout.readline())["path"]
        with httpx2.Client(base_url=url) as client:
            client.get(path).raise_for_status()
            cookies = dict(client.cookies)
        yield Pages(url, cookies, psutil.Process(process.pid))
        process.stdin.close()


def measure_pages(pages: Pages, big: str) -> None:
    counted = quote("SELECT state_word, count(*) FROM tasks GROUP BY 1")
    paths = {
        "overview": "/cluster",
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
    with httpx2.Client(base_url=pages.url, cookies=pages.cookies, timeout=60) as client:
        for name, path in paths.items():
            times = []
            for _ in range(_REPEATS + 1):
                began = time.perf_counter()
                answer = client.get(path)
                times.append((time.perf_counter() - began) * 1e3)
                assert answer.status_code == 200, answer.text
                time.sleep(0.3)  # longer than an answer is kept for pages that ask at once
            line = {"page": name, "first_ms": round(times[0], 1), "median_ms": round(statistics.median(times[1:]), 1)}
            print(json.dumps(line | {"kb": len(answer.content) // 1024}), flush=True)


def look_on(pages: Pages, stream_of: str, load: str, stop: threading.Event, loads: list[int]) -> None:
    """Act like a page with a list: after an event, load the list, at most once in half a second.

    Args:
        pages: The process that serves the pages.
        stream_of: The page's stream of events.
        load: The list to load; "" for the stream only.
        stop: Set when the user leaves the page.
        loads: Receives the status of each answer.
    """
    with (
        contextlib.suppress(httpx2.RemoteProtocolError),  # the server ends
        httpx2.Client(base_url=pages.url, cookies=pages.cookies, timeout=60) as client,
        client.stream("GET", stream_of) as stream,
    ):
        stream.raise_for_status()
        last = 0.0
        for line in stream.iter_lines():
            if stop.is_set():
                return
            if load and line == "event: jobs" and time.monotonic() - last > 0.5:
                last = time.monotonic()
                loads.append(client.get(load, headers={"HX-Request": "true"}).status_code)


def pages_of(big: str) -> list[tuple[str, str]]:
    """Return the followed pages: the stream of each, and the list that it loads."""
    return [
        ("/events", "/jobs"),
        ("/events", "/jobs"),
        (f"/logs/follow?id={quote(big)}/0&since={int(time.time() * 1000)}", ""),
        ("/experiments/run/events?run=pretrain-3d4e5f", ""),
        ("/experiments/runs/events", ""),
    ]


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
    parser.add_argument("--new-jobs", type=int, default=2000, help="jobs of a round with followed pages")
    parser.add_argument("--rounds", type=int, default=3)
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
            prefix = state_dir / "prefix"
            prefix.mkdir()
            sample_root(prefix)
            with served(controller, secret, prefix) as pages:
                measure_pages(pages, big)
            process = psutil.Process(controller.pid)
            for watchers in (0, options.watchers) * options.rounds:
                with contextlib.ExitStack() as stack:
                    stop = threading.Event()
                    loads: list[int] = []
                    pages_mb = [0, 0]
                    if watchers:
                        shown = stack.enter_context(served(controller, secret, prefix))
                        pages_mb[0] = shown.process.memory_info().rss >> 20
                        kinds = pages_of(big)
                        for number in range(watchers):
                            given = (shown, *kinds[number % len(kinds)], stop, loads)
                            threading.Thread(target=look_on, args=given, daemon=True).start()
                    before = process.memory_info().rss >> 20
                    cpu = sum(process.cpu_times()[:2])
                    rate = jobs_per_second(user, f"w{time.time_ns()}-", options.new_jobs)
                    cpu = sum(process.cpu_times()[:2]) - cpu
                    stop.set()
                    if watchers:
                        pages_mb[1] = shown.process.memory_info().rss >> 20
                line = {"watchers": watchers, "jobs_per_s": round(rate), "controller_cpu_s": round(cpu, 2)}
                line |= {"controller_rss_mb": [before, process.memory_info().rss >> 20], "pages_rss_mb": pages_mb}
                load = round(os.getloadavg()[0], 1)
                print(json.dumps(line | {"loads": len(loads), "load": load}), flush=True)
        stubs.close()
        controller.kill()


if __name__ == "__main__":
    main()
