"""Converts job specs between wire and domain. Invalid messages raise InvalidRequest."""

from typing import Any, Final

from iris.domain.constraints import STORED_NUMBERS, Constraint, stored_operator
from iris.domain.ids import validate_job_id
from iris.domain.job_spec import (
    DEFAULT_FENCE_AFTER_MS,
    PLAIN_FIELDS,
    CallableEntrypoint,
    CommandEntrypoint,
    Entrypoint,
    JobSpec,
    renamed,
)
from iris.domain.resources import Device, Resources
from iris.domain.states import PriorityBand
from iris.domain.webhooks import shown
from iris.rpc.convert_runtime import number, runtime_from_wire, runtime_to_wire
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import InvalidRequest

_KEPT_SPECS: Final = 64
_KEPT_BYTES: Final = 64 * 1024


def spec_to_wire(spec: JobSpec, *, with_env_vars: bool = False) -> pb.JobSpec:
    """Return the wire form of a spec. For display, omit env_vars and the path of notify_url, which may contain
    secrets.
    """
    plain: dict[str, Any] = {name: getattr(spec, name) for name in PLAIN_FIELDS}
    if not with_env_vars:
        plain["notify_url"] = shown(spec.notify_url)
    return pb.JobSpec(
        job_id=spec.job_id,
        entrypoint=entrypoint_to_wire(spec.entrypoint),
        resources=resources_to_wire(spec.resources),
        environment=environment_to_wire(spec, with_env_vars=with_env_vars),
        constraints=[
            pb.Constraint(key=c.key, op=pb.ConstraintOp.ValueType(STORED_NUMBERS[c.op]), values=c.values, soft=c.soft)
            for c in spec.constraints
        ],
        ports=spec.ports,
        band=pb.PriorityBand.ValueType(int(spec.band)),
        runtime=runtime_to_wire(spec.runtime),
        **plain,
    )


def spec_from_wire(message: pb.JobSpec, default_band: PriorityBand = PriorityBand.INTERACTIVE) -> JobSpec:
    """Return the requested spec, with `default_band` if the message names no band."""
    environment = message.environment
    plain = {name: getattr(message, name) for name in PLAIN_FIELDS}
    if message.exclusive and not message.fence_after_ms:
        plain["fence_after_ms"] = DEFAULT_FENCE_AFTER_MS
    return JobSpec(
        job_id=validate_job_id(message.job_id),
        entrypoint=entrypoint_from_wire(message.entrypoint),
        resources=resources_from_wire(message.resources),
        extras=tuple(environment.extras),
        pip_packages=tuple(environment.pip_packages),
        env_vars=dict(environment.env_vars),
        constraints=tuple(
            Constraint(c.key, stored_operator(c.op, f"constraint {c.key!r}: operator"), tuple(c.values), c.soft)
            for c in message.constraints
        ),
        ports=tuple(message.ports),
        band=number(PriorityBand, message.band, "priority band") if message.band else default_band,
        runtime=runtime_from_wire(message.runtime if message.HasField("runtime") else None),
        **plain,
    )


class SpecReader:
    """Reads jobs from the wire. Parses jobs that differ only in their names once; they share their parts."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, PriorityBand], JobSpec] = {}

    def read(self, message: pb.JobSpec, default_band: PriorityBand) -> JobSpec:
        """Return the same spec as `spec_from_wire`."""
        nameless = pb.JobSpec()
        nameless.CopyFrom(message)
        nameless.ClearField("job_id")
        key = (nameless.SerializeToString(), default_band)
        known = self._known.get(key)
        if known is not None:
            return renamed(known, validate_job_id(message.job_id))
        spec = spec_from_wire(message, default_band)
        if len(key[0]) <= _KEPT_BYTES:
            if len(self._known) >= _KEPT_SPECS:
                self._known.clear()
            self._known[key] = spec
        return spec


def resources_from_wire(message: pb.Resources) -> Resources:
    """Return the resources of a message without validation."""
    device = None
    if message.HasField("device") and message.device.kind:
        wire = message.device
        device = Device(wire.kind, wire.variant, wire.count, tuple(wire.alternatives))
    return Resources(message.cpu_millis, message.memory_bytes, message.disk_bytes, device)


def resources_to_wire(resources: Resources) -> pb.Resources:
    """Return the wire form of resources."""
    device = resources.device
    return pb.Resources(
        cpu_millis=resources.cpu_millis,
        memory_bytes=resources.memory_bytes,
        disk_bytes=resources.disk_bytes,
        device=None
        if device is None
        else pb.Device(kind=device.kind, variant=device.variant, count=device.count, alternatives=device.alternatives),
    )


def entrypoint_from_wire(message: pb.Entrypoint) -> Entrypoint:
    """Return the entry point of a message. Raises InvalidRequest if the message has none."""
    kind = message.WhichOneof("kind")
    if kind == "command":
        return CommandEntrypoint(tuple(message.command.argv))
    if kind == "callable":
        return CallableEntrypoint(message.callable.payload_digest, message.callable.display_name)
    raise InvalidRequest("the job has no entrypoint: give a command or a callable")


def entrypoint_to_wire(entrypoint: Entrypoint) -> pb.Entrypoint:
    """Return the wire form of an entry point."""
    if isinstance(entrypoint, CommandEntrypoint):
        return pb.Entrypoint(command=pb.Command(argv=entrypoint.argv))
    return pb.Entrypoint(
        callable=pb.Callable(payload_digest=entrypoint.payload_digest, display_name=entrypoint.display_name)
    )


def environment_to_wire(spec: JobSpec, with_env_vars: bool = True) -> pb.Environment:
    """Return the wire form of a job's environment."""
    return pb.Environment(
        extras=spec.extras, pip_packages=spec.pip_packages, env_vars=dict(spec.env_vars) if with_env_vars else {}
    )
