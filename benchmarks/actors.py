"""Calls of actors on a warm local Iris cluster, compared with Ray's actors and a bare gRPC stream in the same run.

usage: uv run --group dev python benchmarks/actors.py [--no-peer] [--calls N]

    one        1 KB there and back, one call after the other: p50 and p99 in ms
    in_flight  the same with 64 calls of one client under way: calls/s
    megabyte   1 MB there and back, one after the other: calls/s

Figures are medians of 3. Prints one JSON line per system. "grpc floor" is a bare bidirectional stream between two
processes that passes each message between threads, like a server of actors. Ray runs in a separate process namespace
(`unshare`), and is skipped if that is not possible.
"""

import argparse
import contextlib
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PEER = Path(__file__).with_name("peers") / "ray_actors.py"
NAMESPACE = ("unshare", "--fork", "--pid", "--kill-child", "--mount-proc")
REPEATS = 3
IN_FLIGHT = 64
KB, MB = b"x" * 1024, b"x" * (1 << 20)

Submit = Callable[[bytes, Callable[[], object]], None]
"""Starts a call, and calls the callable at its end."""


class Echo:
    def echo(self, data: bytes) -> bytes:
        return data


def measure(call: Callable[[bytes], object], submit: Submit | None, calls: int) -> dict[str, float]:
    """Return all figures of one system."""
    for _ in range(200):
        call(KB)
    one = [_latencies(call, calls // 4) for _ in range(REPEATS)]
    told = {
        "one_p50_ms": round(statistics.median(statistics.median(times) for times in one), 3),
        "one_p99_ms": round(statistics.median(statistics.quantiles(times, n=100)[98] for times in one), 3),
    }
    if submit is not None:
        told["in_flight_per_s"] = round(statistics.median(_rate(submit, calls) for _ in range(REPEATS)))
    megabytes = [sum(_latencies(call, 50, MB)) for _ in range(REPEATS)]
    told["megabyte_per_s"] = round(50e3 / statistics.median(megabytes))
    return told


def _latencies(call: Callable[[bytes], object], count: int, data: bytes = KB) -> list[float]:
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        call(data)
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def _rate(submit: Submit, count: int) -> float:
    room, ended = threading.Semaphore(IN_FLIGHT), threading.Semaphore(0)

    def end() -> None:
        room.release()
        ended.release()

    begin = time.perf_counter()
    for _ in range(count):
        room.acquire()
        submit(KB, end)
    for _ in range(count):
        ended.acquire()
    return count / (time.perf_counter() - begin)


# ---- ours ----


def ours(calls: int) -> dict[str, float]:
    from fray import ResourceConfig
    from fray.backends import iris
    from iris.actor import ActorClient
    from iris.client import IrisClient

    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryDirectory() as workspace:
        os.environ["IRIS_STATE_DIR"] = state
        os.chdir(workspace)
        cluster = IrisClient.local()
        cluster.list_jobs()
        client = iris.connect(cluster.address)
        try:
            small = ResourceConfig.with_cpu(cpu=0.1, ram="256m", disk="64m")
            group = client.create_actor_group(Echo, name="echo", count=1, resources=small)
            (actor,) = group.wait_ready()
            endpoint = f"{group.job_id}/actor-0"
            with ActorClient(endpoint, client=cluster) as raw:

                def submit(data: bytes, end: Callable[[], object]) -> None:
                    raw.echo.remote(data).add_done_callback(lambda _: end())

                return measure(actor.echo, submit, calls)
        finally:
            os.chdir("/")
            client.shutdown()
            cluster.stop_cluster(stop_jobs=True)
            cluster.shutdown()


# ---- the floor ----


def serve_floor() -> None:
    import grpc

    work: queue.SimpleQueue[tuple[bytes, queue.SimpleQueue[bytes]]] = queue.SimpleQueue()

    def worker() -> None:
        while True:
            data, out = work.get()
            out.put(data)

    def echo(messages: Any, context: Any) -> Any:
        out: queue.SimpleQueue[bytes] = queue.SimpleQueue()

        def read() -> None:
            with contextlib.suppress(grpc.RpcError):  # the end
                for message in messages:
                    work.put((message, out))

        threading.Thread(target=read, daemon=True).start()
        while True:
            yield out.get()

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            return grpc.stream_stream_rpc_method_handler(echo)

    threading.Thread(target=worker, daemon=True).start()
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Handler(),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()


def floor(calls: int) -> dict[str, float]:
    import grpc

    server = subprocess.Popen(
        [sys.executable, __file__, "--serve-floor"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    channel = grpc.insecure_channel(f"127.0.0.1:{server.stdout.readline().strip()}")
    out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    waiting: deque[Callable[[], object]] = deque()
    stream = channel.stream_stream("/floor/Echo")(iter(out.get, None))

    def read() -> None:
        try:
            for _ in stream:
                waiting.popleft()()
        except grpc.RpcError:
            return  # the end

    threading.Thread(target=read, daemon=True).start()

    def submit(data: bytes, end: Callable[[], object]) -> None:
        waiting.append(end)
        out.put(data)

    def call(data: bytes) -> None:
        ended = threading.Lock()
        ended.acquire()
        submit(data, ended.release)
        ended.acquire()

    try:
        return measure(call, submit, calls)
    finally:
        stream.cancel()
        channel.close()
        server.kill()
        server.wait()


def peer(calls: int) -> dict[str, float] | None:
    command = [*NAMESPACE, sys.executable, str(PEER), str(calls)]
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(Path(__file__).parent)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    except FileNotFoundError:
        return None
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-peer", action="store_true", help="without Ray")
    parser.add_argument("--calls", type=int, default=8000, help="calls of each measurement in flight (default 8000)")
    parser.add_argument("--serve-floor", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve_floor:
        serve_floor()
        return
    systems: dict[str, Callable[[int], dict[str, float] | None]] = {"iris": ours, "grpc floor": floor}
    if not chosen.no_peer:
        systems["ray"] = peer
    for name, run in systems.items():
        print(json.dumps({"system": name, **(run(chosen.calls) or {"skipped": True})}), flush=True)


if __name__ == "__main__":
    main()
