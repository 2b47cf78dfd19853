"""Response times of the cluster's pages while they are crowded.

    uv run --group dev python benchmarks/dashboard_tabs.py [--tabs 20] [--streams 500] [--half-open 1000]

Opens visible tabs of a running job's page and log in Chromium, streams of events, and connections that stop within a
request's head. Prints one JSON line for a page asked for alone, and one for the page among all those.
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
from urllib.parse import urlsplit

import httpx2
from dashboard_pages import Pages, served

from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.protocol import call_metadata
from support.iris.controller import ControllerStubs
from support.iris.controller_process import ControllerProcess
from support.iris.users import User
from support.iris.worker import ScriptedWorker
from support.marin.sample_runs import sample_root
from support.rigging.chromium import chromium

_ASKED = 30


@contextlib.contextmanager
def crowd(pages: Pages, streams: int, half_open: int) -> Iterator[None]:
    """Context manager: hold streams of events, and connections with half a request, open."""
    host, port = urlsplit(pages.url).hostname, urlsplit(pages.url).port
    cookie = "; ".join(f"{name}={value}" for name, value in pages.cookies.items())
    head = f"GET /events HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\n"
    loop, held = asyncio.new_event_loop(), []

    async def hold() -> None:
        for number in range(streams + half_open):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write((head + "\r\n" if number < streams else head).encode())
            if number < streams:
                assert b"200" in await reader.readline()
            held.append(writer)

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    task = asyncio.run_coroutine_threadsafe(hold(), loop)
    thread.start()
    task.result(120)
    yield
    loop.call_soon_threadsafe(loop.stop)


def measure(pages: Pages, name: str) -> None:
    times = []
    for _ in range(_ASKED):
        began = time.perf_counter()
        # Like a new browser: with a connection of its own.
        answer = httpx2.get(f"{pages.url}/job?id=/ann/a", cookies=pages.cookies, timeout=60)
        times.append((time.perf_counter() - began) * 1e3)
        assert answer.status_code == 200, answer.text
    line = {"page": name, "median_ms": round(statistics.median(times), 1), "max_ms": round(max(times), 1)}
    print(json.dumps(line | {"load": round(os.getloadavg()[0], 1)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tabs", type=int, default=20)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--half-open", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="iris-bench-", ignore_cleanup_errors=True) as name, chromium() as browser:
        state_dir = Path(name)
        (prefix := state_dir / "prefix").mkdir()
        sample_root(prefix)
        controller = ControllerProcess(state_dir)
        secret = load_or_create_secret(state_dir / "secret")
        stubs = ControllerStubs(controller.address, call_metadata(make_token(secret, PrincipalKind.ADMIN, "root")))
        with (
            ScriptedWorker(controller.address, make_token(secret, PrincipalKind.WORKER, "w1")) as worker,
            served(controller, secret, prefix) as pages,
        ):
            User(stubs).submit("/ann/a")
            worker.wait_for_start("/ann/a/0:0")
            measure(pages, "alone")
            context = browser.new_context()
            context.add_cookies(
                [{"name": key, "value": value, "url": pages.url} for key, value in pages.cookies.items()]
            )
            for number in range(options.tabs):
                tab = context.new_page()
                tab.goto(f"{pages.url}/{('job', 'logs')[number % 2]}?id=/ann/a")
                tab.wait_for_selector("[data-connected]")
            with crowd(pages, options.streams, options.half_open):
                measure(pages, f"with {options.tabs} tabs, {options.streams} streams, {options.half_open} half-open")
        stubs.close()
        controller.kill()


if __name__ == "__main__":
    main()
