"""The cost of many hosts for a controller, and its task throughput, with scripted workers that start nothing.

usage: uv run --group dev python benchmarks/cluster_workers.py [--workers 1000] [--tasks 20000] [--idle SECONDS] [--tls]

    idle    processor time of the controller while the workers only send heartbeats, in percent of a core
    tasks   one job of N one-core tasks that end as soon as they are started: tasks/s, submit to end

Each worker has a separate connection. Prints one JSON line per measurement.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path

import grpc
import psutil

from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.generated import iris_pb2_grpc
from iris.rpc.protocol import CHANNEL_OPTIONS, PROTOCOL_VERSION, call_metadata
from iris.tls.certificates import SERVER_NAME, read_certificates
from support.iris.controller_process import ControllerProcess

GIB = 1024**3
CORES = 8
BEAT_S = 2.5
OPTIONS = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))


class Target:
    """The controller's address, and how to open channels to it."""

    def __init__(self, place: ControllerAddress, ca_pem: bytes | None) -> None:
        self.place = place
        self._ca_pem = ca_pem

    def channel(self) -> grpc.aio.Channel:
        if self._ca_pem is None:
            return grpc.aio.insecure_channel(self.place.address, options=OPTIONS)
        options = (*OPTIONS, ("grpc.ssl_target_name_override", SERVER_NAME))
        return grpc.aio.secure_channel(self.place.address, grpc.ssl_channel_credentials(self._ca_pem), options=options)


async def be_worker(target: Target, secret: bytes, name: str, welcomed: asyncio.Semaphore) -> None:
    async with target.channel() as channel:
        token = make_token(secret, PrincipalKind.WORKER, name)
        call = iris_pb2_grpc.WorkerServiceStub(channel).Session(metadata=call_metadata(token))
        hello = pb.Hello(
            worker_id=name,
            instance_id="first",
            capacity=pb.Resources(cpu_millis=CORES * 1000, memory_bytes=64 * GIB, disk_bytes=100 * GIB),
            protocol_version=PROTOCOL_VERSION,
        )
        await call.write(pb.WorkerMessage(hello=hello))
        beats = asyncio.create_task(send_beats(call))
        try:
            while (message := await call.read()) is not grpc.aio.EOF:
                kind = message.WhichOneof("kind")
                if kind == "welcome":
                    welcomed.release()
                elif kind == "desired" and message.desired.run:
                    ended = [
                        pb.Observation(
                            attempt_id=f"{run.launch.job_id}/{ref.task_index}:{ref.attempt}",
                            state=pb.TASK_STATE_SUCCEEDED,
                        )
                        for run in message.desired.run
                        for ref in run.attempts
                    ]
                    await call.write(pb.WorkerMessage(observations=ended))
        finally:
            beats.cancel()


async def send_beats(call: grpc.aio.StreamStreamCall) -> None:
    beat = 0
    while True:
        await asyncio.sleep(BEAT_S)
        beat += 1
        await call.write(pb.WorkerMessage(beat=beat))


async def measure(target: Target, secret: bytes, pid: int, workers: int, tasks: int, idle_s: float) -> None:
    welcomed = asyncio.Semaphore(0)
    running = [asyncio.create_task(be_worker(target, secret, f"w{n}", welcomed)) for n in range(workers)]
    begin = time.perf_counter()
    for _ in running:
        await welcomed.acquire()
    tell("joined", workers=workers, seconds=round(time.perf_counter() - begin, 2))
    await asyncio.sleep(2 * BEAT_S)
    tell("idle", percent=round(await share_of_core(pid, idle_s), 2))
    async with target.channel() as channel:
        jobs = iris_pb2_grpc.JobServiceStub(channel)
        metadata = call_metadata(make_token(secret, PrincipalKind.USER, "ann"))
        spec = pb.JobSpec(
            job_id="/ann/many",
            entrypoint=pb.Entrypoint(command=pb.Command(argv=["true"])),
            resources=pb.Resources(cpu_millis=1000, memory_bytes=GIB),
            replicas=tasks,
        )
        processes = [psutil.Process(pid), psutil.Process()]
        before = [sum(process.cpu_times()[:2]) for process in processes]
        begin = time.perf_counter()
        await jobs.SubmitJob(pb.SubmitJobRequest(spec=spec), metadata=metadata)
        while not (
            await jobs.WaitJobs(pb.WaitJobsRequest(job_ids=["/ann/many"], timeout_ms=60_000), metadata=metadata)
        ).done:
            pass
        seconds = time.perf_counter() - begin
    used = [sum(process.cpu_times()[:2]) - was for process, was in zip(processes, before, strict=True)]
    tell(
        "tasks",
        tasks=tasks,
        seconds=round(seconds, 2),
        per_second=round(tasks / seconds),
        controller_cpu_s=round(used[0], 2),
        workers_cpu_s=round(used[1], 2),
    )
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def share_of_core(pid: int, seconds: float) -> float:
    process = psutil.Process(pid)
    before = sum(process.cpu_times()[:2])
    await asyncio.sleep(seconds)
    return (sum(process.cpu_times()[:2]) - before) / seconds * 100


def tell(what: str, **figures: float) -> None:
    print(json.dumps({"what": what, **figures}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--idle", type=float, default=20.0)
    parser.add_argument("--tls", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    with tempfile.TemporaryDirectory() as name:
        state = Path(name)
        controller = ControllerProcess(state, tls=arguments.tls)
        try:
            place = ControllerAddress(str(controller.address), "")
            target = Target(place, read_certificates(state).ca_certificate if arguments.tls else None)
            secret = load_or_create_secret(state / "secret")
            asyncio.run(measure(target, secret, controller.pid, arguments.workers, arguments.tasks, arguments.idle))
        finally:
            controller.kill()


if __name__ == "__main__":
    main()
