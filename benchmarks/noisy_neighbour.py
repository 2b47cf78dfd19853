"""Latency of `/bin/true` from submission to its reported end, alone and beside a task that writes logs at a given rate.

usage: uv run --group dev python benchmarks/noisy_neighbour.py [--megabytes-per-second 90] [--jobs 40] [--turns 3]

The two cases alternate in one run on a warm local cluster. Prints one JSON line: medians in milliseconds, the writer's
actual rate, and the machine's load, which affects the figures.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WRITER = """\
import os, sys, time
rate, place, gate = float(sys.argv[1]) * 1e6, sys.argv[2], sys.argv[3]
chunk = b"x" * 99 + b"\\n"
chunk *= 1000
began, written = time.monotonic(), 0
while not os.path.exists(gate):
    os.write(1, chunk)
    written += len(chunk)
    ahead = written / rate - (time.monotonic() - began)
    if ahead > 0:
        time.sleep(ahead)
open(place, "w").write(str(written / (time.monotonic() - began) / 1e6))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes-per-second", type=float, default=90)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="iris-speed-") as state_dir:
        os.environ["IRIS_STATE_DIR"] = state_dir
        from iris.client import IrisClient
        from iris.cluster.types import Entrypoint, ResourceSpec

        client = IrisClient.local()
        resources = ResourceSpec(cpu=0.1, memory="64MB", disk="1MB")

        def took(name: str) -> float:
            begin = time.perf_counter()
            client.submit(Entrypoint.from_command("/bin/true"), name, resources).wait(timeout=60)
            return (time.perf_counter() - begin) * 1000

        alone: list[float] = []
        beside: list[float] = []
        rates: list[float] = []
        try:
            for number in range(10):
                took(f"warm-{number}")
            for turn in range(options.turns):
                alone += [took(f"alone-{turn}-{number}") for number in range(options.jobs)]
                place, gate = Path(state_dir, f"rate-{turn}"), Path(state_dir, f"gate-{turn}")
                argv = [sys.executable, "-c", WRITER, str(options.megabytes_per_second), str(place), str(gate)]
                writer = client.submit(Entrypoint.from_command(*argv), f"writer-{turn}", resources)
                time.sleep(1)
                beside += [took(f"beside-{turn}-{number}") for number in range(options.jobs)]
                gate.touch()
                writer.wait(timeout=60)
                rates.append(float(place.read_text()))
        finally:
            client.shutdown()
            subprocess.run([str(Path(sys.executable).with_name("iris")), "cluster", "stop", "--force"], check=False)
    print(
        json.dumps(
            {
                "alone_ms": round(statistics.median(alone), 1),
                "beside_ms": round(statistics.median(beside), 1),
                "writer_mb_per_s": round(statistics.median(rates), 1),
                "load": round(os.getloadavg()[0], 1),
            }
        )
    )


if __name__ == "__main__":
    main()
