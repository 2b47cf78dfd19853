"""Response times of the experiment pages: 10,000 runs, one of 2,000 steps, a log of 1 GB, and 20 pages that follow.

    uv run --group dev python benchmarks/browser_pages.py [--runs 10000] [--steps 2000]

Prints the first time of each page and the median of nine more, over HTTP on loopback, in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil

from marin.browser.command import browser_app
from marin.browser.site import make_site
from rigging.web.login import Viewer
from rigging.web.serving import WebServer, bind
from support.marin.recorded_runs import RecordedStorage, ended, started, step_ended

BIG = "many-aaaaaa"
_REPEATS = 9
_CONFIG = {"model": {"layers": 24, "width": 2048}, "data": [f"shard-{number}" for number in range(20)]}


def write_root(root: Path, runs: int, steps: int) -> None:
    """Write the runs, the large run, and a log of 1 GB (sparse, with text at its end)."""
    storage = RecordedStorage(root)
    for number in range(runs):
        storage.run(f"run-{number:06x}", [], [started(0, user="ada"), ended(ends={"succeeded": 1})], pid=number + 1)
    made = []
    for number in range(steps):
        name = f"stage_{number // 40}/part_{number % 40}"
        needs = [made[number - 40]["output_path"]] if number >= 40 else []
        made.append(
            {
                "name": name,
                "output_path": f"{root}/{name}-{number:06x}",
                "config": _CONFIG,
                "version": {"name": name, "config": _CONFIG, "dependencies": []},
                "dependencies": needs,
            }
        )
    queued = [{"event": "step_queued", "time": 1.0, "name": s["name"], "path": s["output_path"]} for s in made]
    storage.run(BIG, made, [started(steps), *queued, *map(step_ended, made), ended(ends={"succeeded": steps})], hour=5)
    output = Path(made[0]["output_path"])
    output.mkdir(parents=True)
    (output / ".executor_info").write_text(json.dumps(made[0]))
    (output / ".executor_status").write_text("RUNNING")
    with (output / ".log").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(1 << 30)
        file.write(b"".join(f"line {number}\n".encode() for number in range(100_000)))


@contextlib.contextmanager
def served(root: Path) -> Iterator[httpx2.Client]:
    """Context manager: yield a client that is signed in at the served pages."""
    site = make_site(str(root), f"{root}/experiments")
    bound = bind(0)
    app = browser_app(site, bound, None)
    server = WebServer(app, bound, site.stop)
    thread = threading.Thread(target=lambda: asyncio.run(server.run()))
    thread.start()
    with httpx2.Client(base_url=bound.url, timeout=60) as client:
        client.get(app.state.web.login_path(Viewer("ada")))
        try:
            yield client
        finally:
            server.stop()
            thread.join()


def time_page(client: httpx2.Client, name: str, address: str) -> None:
    """Print the response time of a page, and its size."""
    times = []
    for _ in range(_REPEATS + 1):
        began = time.perf_counter()
        answer = client.get(f"/experiments/{address}")
        times.append(1000 * (time.perf_counter() - began))
        assert answer.status_code == 200, answer.text
    size = len(answer.content) / 1024
    print(f"{name:<44} first {times[0]:7.1f} ms   median {statistics.median(times[1:]):7.1f} ms   {size:7.0f} KiB")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=2_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        write_root(root, options.runs, options.steps)
        first = psutil.Process().memory_info().rss / 2**20
        with served(root) as client:
            time_page(client, f"{options.runs} runs, the newest", "runs")
            time_page(client, "the last page of them", "runs?page=200")
            time_page(client, "found by words", "runs?q=run-0012")
            time_page(client, "found by state", "runs?state=succeeded")
            time_page(client, f"run of {options.steps} steps, like ones together", f"run?run={BIG}")
            time_page(client, "each step for itself", f"run?run={BIG}&group=none")
            time_page(client, "its steps by name", f"run?run={BIG}&q=stage_7")
            time_page(client, "a step, log of 1 GB", f"step?path=stage_0/part_0-000000&run={BIG}")
            time_page(client, "the log alone", "log?path=stage_0/part_0-000000")
            time_page(client, "the middle of the log", "log?path=stage_0/part_0-000000&end=536870912")
            time_page(client, "compared with another", f"compare?before=run-000001&after={BIG}")
            process = psutil.Process()
            before = process.memory_info().rss
            print(f"memory of all, this client included: {before / 2**20:.0f} MiB, at first {first:.0f}")
            with contextlib.ExitStack() as stack:
                for _ in range(20):
                    address = "/experiments/log/events?path=stage_0/part_0-000000&at=1073741824"
                    stack.enter_context(client.stream("GET", address))
                used = process.cpu_times()
                time.sleep(5)
                now = process.cpu_times()
                busy = (now.user + now.system - used.user - used.system) / 5
                grown = (process.memory_info().rss - before) / 2**20
                print(
                    f"20 pages that follow a log: {100 * busy:.1f} % of a core, + {grown:.1f} MiB (this client's too)"
                )
    print(f"processors: {os.cpu_count()}, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
