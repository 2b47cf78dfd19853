"""The probe of a host without accelerators, and the notice of a preemption on its way to all members of a gang.

    uv run --group dev python benchmarks/accelerators.py [--members 64] [--turns 10]

    probe   a worker's look at its host in a new interpreter, imports excluded; fails if that imports NVML
    notice  from the message of one worker, whose host is taken back, until every other member's worker has the notice

The controller is a process; the workers are scripted, each with a connection of its own.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc

from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.generated import iris_pb2_grpc
from iris.rpc.protocol import CHANNEL_OPTIONS, PROTOCOL_VERSION, call_metadata
from support.iris.controller_process import ControllerProcess
from support.iris.users import job_spec
from support.iris.worker import GIB

PROBE = """
import sys, tempfile, time
from pathlib import Path
from iris.local.declared_devices import declared_device
from iris.worker.devices.found import check_devices
from iris.worker.host.probe import probe_attributes, probe_resources
with tempfile.TemporaryDirectory() as name:
    began = time.perf_counter()
    probe_resources(Path(name)), probe_attributes(), check_devices(declared_device(None, None))
    print((time.perf_counter() - began) * 1000)
assert "pynvml" not in sys.modules
"""
CHANNEL = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))


class Member:
    """A scripted worker: what it is told to run is running, until it is told to stop."""

    def __init__(self, address: str, secret: bytes, name: str) -> None:
        self.name, self.runs, self.told = name, asyncio.Event(), asyncio.Event()
        self.attempt = ""
        self.told_s = 0.0
        self._channel = grpc.aio.insecure_channel(address, options=CHANNEL)
        metadata = call_metadata(make_token(secret, PrincipalKind.WORKER, name))
        self.call = iris_pb2_grpc.WorkerServiceStub(self._channel).Session(metadata=metadata)

    async def serve(self) -> None:
        capacity = pb.Resources(cpu_millis=1000, memory_bytes=GIB, disk_bytes=GIB)
        hello = pb.Hello(
            worker_id=self.name, instance_id="first", capacity=capacity, attributes={"rack": "r"},
            protocol_version=PROTOCOL_VERSION,
        )  # fmt: skip
        await self.call.write(pb.WorkerMessage(hello=hello))
        while (message := await self.call.read()) is not grpc.aio.EOF:
            for run in message.desired.run:
                self.attempt = f"{run.launch.job_id}/{run.attempts[0].task_index}:{run.attempts[0].attempt}"
                await self.say(pb.TASK_STATE_RUNNING)
                self.runs.set()
            for stop in message.desired.stop:
                if stop.preemption == "spot":
                    self.told_s = time.perf_counter()
                    self.told.set()

    async def say(self, state: "pb.TaskState.ValueType") -> None:
        await self.call.write(pb.WorkerMessage(observations=[pb.Observation(attempt_id=self.attempt, state=state)]))

    async def close(self) -> None:
        self.call.cancel()
        await self._channel.close()


async def one_notice(address: str, secret: bytes, members: int, turn: int) -> float:
    """Return the seconds until the last of the others has the notice."""
    metadata = call_metadata(make_token(secret, PrincipalKind.USER, "ann"))
    workers = [Member(address, secret, f"w{turn}-{index}") for index in range(members)]
    serving = [asyncio.create_task(worker.serve()) for worker in workers]
    job = job_spec(f"/ann/gang{turn}", replicas=members, coscheduling_group_by="rack")
    async with grpc.aio.insecure_channel(address) as channel:
        jobs = iris_pb2_grpc.JobServiceStub(channel)
        await jobs.SubmitJob(pb.SubmitJobRequest(spec=job), metadata=metadata)
        await asyncio.gather(*(worker.runs.wait() for worker in workers))
        began = time.perf_counter()
        await workers[0].call.write(pb.WorkerMessage(leaving=True, host_ends=True, ending="spot"))
        await asyncio.gather(*(worker.told.wait() for worker in workers[1:]))
        await jobs.StopJob(pb.StopJobRequest(job_id=job.job_id), metadata=metadata)
    await asyncio.gather(*(worker.close() for worker in workers))
    await asyncio.gather(*serving, return_exceptions=True)
    return max(worker.told_s for worker in workers[1:]) - began


async def notices(address: str, secret: bytes, members: int, turns: int) -> list[float]:
    return [await asyncio.wait_for(one_notice(address, secret, members, turn), 60) for turn in range(turns)]


def probe_ms() -> float:
    return float(subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=True).stdout)


def tell(what: str, milliseconds: list[float], **more: int) -> None:
    figures = {"median_ms": round(statistics.median(milliseconds), 1), "max_ms": round(max(milliseconds), 1)}
    print(json.dumps({"what": what, **more, **figures}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=64)
    parser.add_argument("--turns", type=int, default=10)
    arguments = parser.parse_args()
    tell("probe", [probe_ms() for _ in range(arguments.turns)])
    with tempfile.TemporaryDirectory() as name:
        controller = ControllerProcess(Path(name))
        try:
            secret = load_or_create_secret(Path(name) / "secret")
            found = asyncio.run(notices(str(controller.address), secret, arguments.members, arguments.turns))
        finally:
            controller.kill()
    tell("notice", [seconds * 1000 for seconds in found], members=arguments.members)


if __name__ == "__main__":
    main()
