"""Conversion between the wire and the worker's own types; with `session`, the only file here that uses protobuf."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from iris.domain.resources import Device, Resources
from iris.rpc.convert import usage_to_wire
from iris.rpc.convert_job import resources_to_wire
from iris.rpc.convert_runtime import runtime_from_wire
from iris.rpc.generated import iris_pb2 as pb
from iris.worker.limits.plan import requested_limits
from iris.worker.types import DesiredChange, Gang, Launch, Observation, StartRequest, StopRequest
from iris.worker.watch.rules import NOT_WATCHED, WatchRules

_MESSAGE_EXCEPTION_BYTES: Final = 4 * 1024 * 1024


def desired_from_wire(message: pb.Desired) -> DesiredChange:
    """Return a change of the desired set from the wire."""
    start = []
    for run in message.run:
        # The attempts of one job come in many messages; each needs the same, and is known by it.
        one = run.launch
        launch = _shared(one.SerializeToString(deterministic=True)) if one.replicas > 1 else launch_from_wire(one)
        job_id = launch.job_id
        gang = Gang(tuple(run.gang.hosts), run.gang.attempt) if run.HasField("gang") else None
        for ref in run.attempts:
            task_id = f"{job_id}/{ref.task_index}"
            start.append(StartRequest(f"{task_id}:{ref.attempt}", task_id, ref.task_index, launch, ref.prefilled, gang))
    return DesiredChange(
        revision=message.revision,
        start=tuple(start),
        stop=tuple(StopRequest(stop.attempt_id, stop.grace_ms, stop.reason, stop.preemption) for stop in message.stop),
        forget=tuple(message.forget),
        withdraw=tuple(message.withdraw),
    )


@lru_cache(maxsize=64)
def _shared(data: bytes) -> Launch:
    return launch_from_wire(pb.Launch.FromString(data))


def launch_from_wire(message: pb.Launch) -> Launch:
    """Return the common part of a job's attempts."""
    environment = message.environment
    asked = message.resources
    device = Device(asked.device.kind, asked.device.variant, asked.device.count)
    has_device = device.kind not in ("", "cpu")
    resources = Resources(asked.cpu_millis, asked.memory_bytes, asked.disk_bytes, device if has_device else None)
    return Launch(
        job_id=message.job_id,
        argv=tuple(message.entrypoint.command.argv),
        payload_digest=message.entrypoint.callable.payload_digest,
        extras=tuple(environment.extras),
        pip_packages=tuple(environment.pip_packages),
        env_vars=dict(environment.env_vars),
        bundle_digest=message.bundle_digest,
        ports=tuple(message.ports),
        replicas=message.replicas,
        token=message.job_token,
        has_accelerator=has_device,
        resources=resources,
        limits=requested_limits(resources, message.enforced),
        runtime=runtime_from_wire(message.runtime if message.HasField("runtime") else None),
        watch=_watch(message),
        exclusive=message.exclusive,
        fence_after_ms=message.fence_after_ms,
        grace_ms=message.grace_ms,
    )


def _watch(message: pb.Launch) -> WatchRules:
    if not (message.health_cmd or message.stall_timeout_ms):
        return NOT_WATCHED
    return WatchRules(
        message.health_cmd,
        message.health_interval_ms / 1000,
        message.health_timeout_ms / 1000,
        message.health_retries,
        message.stall_timeout_ms / 1000,
    )


def observations_to_wire(observations: Iterable[Observation]) -> list[pb.Observation]:
    """Return the observations for one message. If many callables fail at once, some observations contain only the text
    of the exception.
    """
    messages = []
    room = _MESSAGE_EXCEPTION_BYTES
    for observation in observations:
        message = observation_to_wire(observation)
        if observation.exception and len(observation.exception) <= room:
            message.exception = observation.exception
            room -= len(observation.exception)
        messages.append(message)
    return messages


def observation_to_wire(observation: Observation) -> pb.Observation:
    """Return an observation without its exception."""
    return pb.Observation(
        attempt_id=observation.attempt_id,
        state=int(observation.state),  # type: ignore[arg-type]
        exit_code=observation.exit_code,
        exit_signal=observation.exit_signal,
        error=observation.error,
        at_ms=observation.at_ms,
        log_size=observation.log_size,
        failure=int(observation.failure),  # type: ignore[arg-type]
        pid=observation.pid,
        started_at_ms=observation.started_at_ms,
        result=observation.result.packed,
        result_digest=observation.result.digest,
        waits_for=observation.waits_for,
        usage=None if observation.usage is None else usage_to_wire("", observation.usage),
    )


def hello(
    worker_id: str,
    instance_id: str,
    protocol_version: int,
    capacity: Resources,
    attributes: Mapping[str, str],
    inventory: Iterable[Observation],
    leaving: bool = False,
    sent_at_ms: int = 0,
    version: str = "",
    place: str = "",
    public_key: bytes = b"",
) -> pb.WorkerMessage:
    """Create the first message of a session.

    Args:
        worker_id: The worker's name.
        instance_id: The id of its guardian, which identifies the set of tasks.
        protocol_version: `PROTOCOL_VERSION`.
        capacity: Resources that the worker offers.
        attributes: The worker's attributes, for constraints.
        inventory: Observations of all attempts that the worker knows.
        leaving: Whether the worker is shutting down and accepts no new attempts.
        sent_at_ms: The current time on the clock of the observations.
        version: The worker's release.
        place: Identifies the boot of its host and its work directory.
        public_key: The worker's public key; empty if it has none.
    """
    return pb.WorkerMessage(
        hello=pb.Hello(
            worker_id=worker_id,
            instance_id=instance_id,
            protocol_version=protocol_version,
            capacity=resources_to_wire(capacity),
            attributes=attributes,
            inventory=observations_to_wire(inventory),
            version=version,
            place=place,
            public_key=public_key,
        ),
        leaving=leaving,
        sent_at_ms=sent_at_ms,
    )
