"""Response times of the experiment pages: 10,000 runs with metrics, one of 2,000 steps, 50 curves of 100,000 points,
a log of 1 GB, and 20 pages that follow.

    uv run --group dev python benchmarks/browser_pages.py [--runs 10000] [--steps 2000] [--points 100000]

Prints the first time of each page and the median of nine more, over HTTP on loopback, in milliseconds; and with
Chromium, when the curves of a run's page and of a comparison are painted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import psutil
from tensorboardX import SummaryWriter

from marin.browser.command import browser_app
from marin.browser.site import make_site
from rigging.web.login import Viewer
from rigging.web.serving import WebServer, bind
from support.marin.recorded_runs import RecordedStorage, ended, started, step_ended
from support.rigging.chromium import chromium, chromium_path

BIG = "many-aaaaaa"
CURVES = 50
RUN_OF_CURVES = "run?run=curves-aaaaaa&tab=results"
COMPARED = "compare?" + "&".join(f"run=sweep-{number:06x}" for number in range(CURVES))
_REPEATS = 9
_CONFIG = {"model": {"layers": 24, "width": 2048}, "data": [f"shard-{number}" for number in range(20)]}


def write_root(root: Path, runs: int, steps: int) -> None:
    """Write the runs, the large run, and a log of 1 GB (sparse, with text at its end)."""
    storage = RecordedStorage(root)
    for number in range(runs):
        step = {
            "name": "train",
            "output_path": f"{root}/train-{number:06x}",
            "config": {"lr": number},
            "dependencies": [],
        }
        output = Path(step["output_path"])
        output.mkdir()
        rows = ({"step": n, "loss": number + n, "acc": n / 9, "lr": number} for n in range(5))
        (output / ".executor_metrics").write_text("".join(json.dumps(row) + "\n" for row in rows))
        events = [started(1, user="ada"), ended(ends={"succeeded": 1})]
        storage.run(f"run-{number:06x}", [step], events, pid=number + 1)
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


def write_curves(root: Path, points: int) -> None:
    """Write a run with 50 steps whose curves have many points, and 50 runs with one of these steps each."""
    storage = RecordedStorage(root)
    values = (math.exp(-n / 20_000) + random.random() / 10 for n in range(points))
    lines = "".join(f'{{"step": {n}, "loss": {value}, "lr": 0.001}}\n' for n, value in enumerate(values))
    steps = [storage.step(f"curve{number}-{number:06x}", config={"seed": number}) for number in range(CURVES)]
    for number, step in enumerate(steps):
        Path(step["output_path"], ".executor_metrics").write_text(lines)
        storage.run(f"sweep-{number:06x}", [step], [started(1), step_ended(step), ended()], pid=9 + number, hour=7)
    storage.run("curves-aaaaaa", steps, [started(CURVES), *map(step_ended, steps), ended()], hour=6)


def write_events(root: Path, points: int) -> None:
    """Write a run with 50 steps with a long curve each in a file of TensorBoard."""
    storage = RecordedStorage(root)
    steps = [storage.step(f"events{number}-{number:06x}") for number in range(CURVES)]
    with SummaryWriter(str(root / "events")) as writer:
        for number in range(points):
            writer.add_scalar("loss", number, number)
    [written] = (root / "events").iterdir()
    for step in steps:
        os.link(written, Path(step["output_path"], written.name))
    storage.run("events-aaaaaa", steps, [started(CURVES), *map(step_ended, steps), ended()], hour=8)


def time_events(client: httpx2.Client) -> None:
    """Print how long pages take while 50 long files of TensorBoard are read, and how long that takes."""
    began = time.perf_counter()
    results = "run/results?run=events-aaaaaa"
    time_page(client, "a run with 50 files of TensorBoard", results, repeats=0)
    time.sleep(1)
    time_page(client, "the list of runs while these are read", "runs")
    while "Reading more metrics" in client.get(f"/experiments/{results}").text:
        time.sleep(0.2)
    print(f"50 files of TensorBoard are known after {time.perf_counter() - began:.1f} s")


def time_curves(client: httpx2.Client) -> None:
    """Print how long the first points of 50 curves take, all points, and a part of them; and pages meanwhile."""
    time_page(client, "a run with 50 curves", RUN_OF_CURVES, repeats=0)
    time_page(client, "50 runs compared", COMPARED, repeats=0)
    query = "curves?metric=loss&columns=400&" + "&".join(f"output=curve{n}-{n:06x}" for n in range(CURVES))
    began = time.perf_counter()
    time_page(client, "50 curves, a sample of them", query, repeats=0)
    time.sleep(1)
    time_page(client, "a run while all points are read", RUN_OF_CURVES)
    time_page(client, "the list of runs while all points are read", "runs")
    while not client.get(f"/experiments/{query}").json()["whole"]:
        time.sleep(0.2)
    print(f"all points of 50 curves are known after {time.perf_counter() - began:.1f} s")
    time_page(client, "50 curves, all points", query)
    time_page(client, "a tenth of them", f"{query}&from=40000&to=50000")


def time_painting(root: Path, name: str, address: str) -> None:
    """Print when a browser has painted the curves of a page that nobody has seen, and how long a zoom takes."""
    with served(root) as (client, login), chromium() as browser:
        base = str(client.base_url).rstrip("/")
        page = browser.new_page(viewport={"width": 1440, "height": 900}, bypass_csp=True)
        page.goto(base + login())
        page.wait_for_url("**/experiments/runs")
        drawn = "document.querySelector('[data-series]')?.dataset.drawn"
        for turn in ("first", "while all points are read", "with all points"):
            began = time.perf_counter()
            page.goto(f"{base}/experiments/{address}")
            page.evaluate("document.querySelector('[data-series]')?.scrollIntoView()")
            page.wait_for_function(f"{drawn} >= 1")
            print(f"a browser paints {name}, {turn}: {1000 * (time.perf_counter() - began):.0f} ms")
            if turn == "first":
                time.sleep(1.5)
                continue
            page.wait_for_function("!document.querySelector('.sampled')", timeout=120_000)
            page.wait_for_function(f"{drawn} >= 2")
        for _ in range(3):
            box = page.locator(".u-over").first.bounding_box()
            assert box is not None
            before = page.evaluate(drawn)
            page.mouse.move(box["x"] + 100, box["y"] + 50)
            page.mouse.down()
            page.mouse.move(box["x"] + 200, box["y"] + 50)
            began = time.perf_counter()
            page.mouse.up()
            page.wait_for_function(f"{drawn} > {before}", polling=5)
            print(f"zoom: {1000 * (time.perf_counter() - began):.0f} ms")


@contextlib.contextmanager
def served(root: Path) -> Iterator[tuple[httpx2.Client, Callable[[], str]]]:
    """Context manager: yield a client that is signed in at the served pages, and a function that makes a login path."""
    site = make_site(str(root), f"{root}/experiments")
    bound = bind(0)
    app = browser_app(site, bound, None)
    server = WebServer(app, bound, site.stop)
    thread = threading.Thread(target=lambda: asyncio.run(server.run()))
    thread.start()
    with httpx2.Client(base_url=bound.url, timeout=60) as client:
        client.get(app.state.web.login_path(Viewer("ada")))
        try:
            yield client, lambda: app.state.web.login_path(Viewer("ada"))
        finally:
            server.stop()
            thread.join()


def time_page(client: httpx2.Client, name: str, address: str, repeats: int = _REPEATS) -> None:
    """Print the response time of a page, and its size."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        answer = client.get(f"/experiments/{address}")
        times.append(1000 * (time.perf_counter() - began))
        assert answer.status_code == 200, answer.text
    size = len(answer.content) / 1024
    median = statistics.median(times[1:] or times)
    print(f"{name:<44} first {times[0]:7.1f} ms   median {median:7.1f} ms   {size:7.0f} KiB")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--points", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        write_root(root, options.runs, options.steps)
        write_curves(root, options.points)
        write_events(root, options.points)
        first = psutil.Process().memory_info().rss / 2**20
        with served(root) as (client, _):
            time_page(client, f"{options.runs} runs, the newest", "runs")
            columns = "columns=chosen&col=loss&col=acc&col=lr"
            time_page(client, "with three columns of metrics", f"runs?{columns}")
            time_page(client, "sorted by one of them", f"runs?{columns}&sort=loss&order=up")
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
        if chromium_path() is not None:
            time_painting(root, "a run with 50 curves", RUN_OF_CURVES)
            time_painting(root, "50 runs compared", COMPARED)
        with served(root) as (client, _):
            time_events(client)
        with served(root) as (client, _):
            time_curves(client)
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
