"""Log lines per second from one task to the controller's disk, and from there to a reader, checked for completeness.

usage: uv run --group dev python benchmarks/log_lines.py [LINES]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from processor_time import Meter

PRINTER = """\
import sys
n = int(sys.argv[1])
for i in range(0, n, 1000):
    sys.stdout.write("".join(f"line {j} of many\\n" for j in range(i, i + 1000)))
"""


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(prefix="iris-speed-") as state_dir:
        os.environ["IRIS_STATE_DIR"] = state_dir
        from iris.client import IrisClient
        from iris.cluster.types import Entrypoint, EnvironmentSpec, ResourceSpec

        client = IrisClient.local()
        try:
            quiet = EnvironmentSpec(env_vars={"PYTHONUNBUFFERED": ""})
            resources = ResourceSpec(cpu=1, memory="256MB", disk="1MB")
            client.submit(Entrypoint.from_command("true"), "warm-up", resources).wait(timeout=60)
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", PRINTER, str(count)], stdout=subprocess.DEVNULL, check=True)
            alone = time.perf_counter() - begin
            meter = Meter(state_dir)
            begin = time.perf_counter()
            job = client.submit(
                Entrypoint.from_command("python", "-c", PRINTER, str(count)), "printer", resources, quiet
            )
            job.wait(timeout=600)
            shipped = time.perf_counter() - begin
            spent = meter.per_item(count // 1000)
            meter = Meter(state_dir)
            begin = time.perf_counter()
            lines = client.read_logs(job.job_id, from_start=True)
            read = sum(1 for line in lines if not line.partial and not line.note)
            reading = time.perf_counter() - begin
            reader = meter.per_item(count // 1000)
            line = {
                "bench": "log-lines",
                "lines": count,
                "lost": count - read,
                "printed_alone_per_s": round(count / alone),
                "shipped_per_s": round(count / shipped),
                "read_per_s": round(count / reading),
                "us_a_line_read": {part: reader[f"{part}_ms"] for part in ("controller", "client")},
                "us_a_line": {part.removesuffix("_ms"): us for part, us in spent.items() if part.endswith("_ms")},
            }
            print(json.dumps(line), flush=True)
        finally:
            client.shutdown()
            iris = Path(sys.executable).with_name("iris")
            subprocess.run([str(iris), "cluster", "stop", "--force"], check=False)


if __name__ == "__main__":
    main()
