"""Start of an attempt in a container beside the process runtime and podman alone: from the order to its first line.

    uv run --group dev python benchmarks/containers.py [--turns N]

Needs root, podman, runc and catatonit; the image is made of this host's files. Times have a resolution of 10 ms.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

from iris.rpc.generated import iris_pb2 as pb
from iris.worker.containers.engine import find_engine
from support.iris.images import PODMAN, make_image, podman, why_not
from support.iris.worker_fixtures import FakeController, InProcessWorker, run_command

IMAGE = "localhost/iris-benchmark"
COMMAND = ("cat", "/proc/uptime")
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=10000:10000")


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def alone() -> float:
    began = now()
    line = podman("run", "--rm", "--init", "--network=host", "--log-driver=none", *LIMITS, IMAGE, *COMMAND)
    return float(line.split()[0]) - began


async def measure(turns: int, root: Path) -> dict[str, list[float]]:
    controller = FakeController()
    await controller.start()
    worker = await InProcessWorker.start(
        root / "work", controller, dict(os.environ), engine=find_engine(PODMAN, str(root))
    )
    await controller.until(lambda: controller.hellos)
    found: dict[str, list[float]] = {"process": [], "container": [], "podman alone": []}
    for turn in range(turns):
        for name, runtime in (("process", None), ("container", pb.Runtime(image=IMAGE))):
            job = f"/user/{name}-{turn}"
            began = now()
            controller.send(run=[run_command(*COMMAND, job_id=job, runtime=runtime)])
            await controller.until_ended(f"{job}/0:0", timeout_s=60)
            found[name].append(float(controller.output(f"{job}/0:0").split()[0]) - began)
        found["podman alone"].append(await asyncio.to_thread(alone))
    await worker.close()
    await controller.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    turns = parser.parse_args().turns
    if reason := why_not():
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory() as name:
        make_image(IMAGE, Path(name) / "image")
        found = asyncio.run(measure(turns, Path(name)))
        podman("rmi", "--force", IMAGE)
    for kind, times in found.items():
        print(f"{kind:12} p50 {statistics.median(times) * 1000:6.1f} ms  max {max(times) * 1000:6.1f} ms")


if __name__ == "__main__":
    main()
