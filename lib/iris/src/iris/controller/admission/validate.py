"""Validates a submitted job before any change. Refusals name the field, its value and the allowed values."""

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from iris.controller.storage.blobs import check_digest
from iris.core.rules.retry_budget import MAX_DELAY_MS
from iris.domain.constraints import validate_constraint
from iris.domain.ids import validate_job_id
from iris.domain.job_spec import (
    AFTER_CONDITIONS,
    LIMIT_WORDS,
    MAX_FENCE_AFTER_MS,
    MAX_GRACE_MS,
    CommandEntrypoint,
    JobSpec,
    awaited,
)
from iris.domain.resources import validate_resources
from iris.domain.runtime import validate_runtime
from iris.domain.scale_groups import ScaleGroup
from iris.domain.webhooks import parse_webhook
from iris.sched.feasible import WorkerCapacity, impossible_reason
from rigging.errors import InvalidRequest

MAX_REPLICAS: Final = 100_000
MAX_TEXT_LENGTH: Final = 1024 * 1024
MAX_PLAIN_TEXT_LENGTH: Final = 4096
MAX_PORTS: Final = 100
"""Maximum per task. A worker finds ports one by one: 100,000 ports block it for minutes per attempt."""
MAX_CONSTRAINTS: Final = 100
MAX_CONSTRAINT_VALUES: Final = 1_000
"""Maximum over all constraints of a job, because each round compares all values with every worker."""

_COUNTS: Final = tuple(
    item.name for item in fields(JobSpec) if item.type is int and item.name not in ("replicas", "fence_after_ms")
)
"""Numeric fields of a job that must be 0 or more."""
_TEXTS: Final = tuple(item.name for item in fields(JobSpec) if item.type is str)

_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXTRA: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_PORT: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
# The start of a PEP 508 requirement; uv judges the rest. An option ("--index-url ...") is none.
_REQUIREMENT: Final = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\s*(?:\[[A-Za-z0-9._,\s-]*\])?\s*(?:$|[<>=!~;(]|@\s*\S)"
)


def validate_spec(spec: JobSpec) -> None:
    """Validate a job without the cluster's state. Raise InvalidRequest."""
    job = f"job {spec.job_id}"
    if not 1 <= spec.replicas <= MAX_REPLICAS:
        raise InvalidRequest(f"{job}: replicas is {spec.replicas}; allowed are 1 to {MAX_REPLICAS}")
    for name in _COUNTS:
        if getattr(spec, name) < 0:
            raise InvalidRequest(f"{job}: {name} is {getattr(spec, name)}; it must be 0 or more")
    for name in _TEXTS:
        if len(getattr(spec, name)) > MAX_PLAIN_TEXT_LENGTH:
            size = len(getattr(spec, name))
            raise InvalidRequest(f"{job}: {name} has {size} characters; at most {MAX_PLAIN_TEXT_LENGTH} are allowed")
    if spec.reserve and spec.resources.accelerator is None:
        raise InvalidRequest(f"{job}: reserve is set, but no accelerator is requested; name one to reserve")
    if unknown := {*spec.enforced.split(",")} - {"", *LIMIT_WORDS}:
        raise InvalidRequest(f"{job}: enforced has {min(unknown)!r}; allowed are {', '.join(LIMIT_WORDS)}")
    _validate_after(job, spec.after)
    if spec.notify_url:
        parse_webhook(spec.notify_url)
    _validate_health(job, spec)
    _validate_fence(job, spec)
    _validate_entrypoint(job, spec)
    try:
        validate_resources(spec.resources)
        _validate_constraints(spec)
        validate_runtime(spec.runtime)
    except InvalidRequest as error:
        raise InvalidRequest(f"{job}: {error}") from None
    _validate_environment(job, spec)
    _validate_ports(job, spec)


def _validate_constraints(spec: JobSpec) -> None:
    if len(spec.constraints) > MAX_CONSTRAINTS:
        raise InvalidRequest(f"the job has {len(spec.constraints)} constraints; at most {MAX_CONSTRAINTS} are allowed")
    values = sum(len(constraint.values) for constraint in spec.constraints)
    if values > MAX_CONSTRAINT_VALUES:
        raise InvalidRequest(f"the constraints have {values} values; at most {MAX_CONSTRAINT_VALUES} are allowed")
    for constraint in spec.constraints:
        validate_constraint(constraint)


def _validate_ports(job: str, spec: JobSpec) -> None:
    if len(spec.ports) > MAX_PORTS:
        raise InvalidRequest(f"{job}: {len(spec.ports)} ports; a task may have at most {MAX_PORTS}")
    for port in spec.ports:
        if not _PORT.fullmatch(port):
            raise InvalidRequest(f"{job}: port name {port!r}; allowed are a letter, then up to 63 of A-Z a-z 0-9 _ -")
    if len(set(spec.ports)) != len(spec.ports):
        raise InvalidRequest(f"{job}: port names {list(spec.ports)} are not distinct")


def _validate_after(job: str, after: str) -> None:
    for item in after.split(",") if after else ():
        name, _, condition = item.rpartition(":")
        try:
            validate_job_id(name)
        except InvalidRequest as error:
            raise InvalidRequest(f"{job}: after has {item!r}: {error}") from None
        if condition not in AFTER_CONDITIONS:
            allowed = " or ".join(AFTER_CONDITIONS)
            raise InvalidRequest(f"{job}: after has {item!r}; the condition must be {allowed}, not {condition!r}")
    if len(awaited(after)) < after.count(",") + bool(after):
        raise InvalidRequest(f"{job}: after names a job twice: {after}")


def _validate_health(job: str, spec: JobSpec) -> None:
    settings = {name: getattr(spec, name) for name in ("health_interval_ms", "health_timeout_ms", "health_retries")}
    for name, value in settings.items():
        if bool(value) != bool(spec.health_cmd):
            raise InvalidRequest(f"{job}: {name} is {value}; with a health_cmd it must be above 0, without one 0")
    if "\0" in spec.health_cmd:
        raise InvalidRequest(f"{job}: health_cmd has a NUL character, which no command can hold")


def _validate_fence(job: str, spec: JobSpec) -> None:
    if spec.retry_delay_ms > MAX_DELAY_MS:
        raise InvalidRequest(f"{job}: retry_delay_ms is {spec.retry_delay_ms}; it must be at most {MAX_DELAY_MS}")
    if spec.grace_ms > MAX_GRACE_MS:
        raise InvalidRequest(f"{job}: grace_ms is {spec.grace_ms}; it must be at most {MAX_GRACE_MS}")
    if spec.fence_after_ms and not spec.exclusive:
        raise InvalidRequest(f"{job}: fence_after_ms is {spec.fence_after_ms}, but the job is not exclusive")
    if spec.exclusive and not 0 < spec.fence_after_ms <= MAX_FENCE_AFTER_MS:
        raise InvalidRequest(
            f"{job}: fence_after_ms is {spec.fence_after_ms}; it must be above 0 and at most {MAX_FENCE_AFTER_MS}"
        )


def validate_fence(spec: JobSpec, least_ms: int) -> None:
    """Check that a fence leaves room for lost heartbeats. Raise InvalidRequest.

    Args:
        spec: The job.
        least_ms: The minimum: with a shorter fence, a short network failure would end attempts.
    """
    if spec.exclusive and spec.fence_after_ms < least_ms:
        raise InvalidRequest(
            f"job {spec.job_id}: fence_after is {spec.fence_after_ms / 1000:g} s; it must be at least "
            f"{least_ms / 1000:g} s here, as workers are heard only so often"
        )


def _validate_entrypoint(job: str, spec: JobSpec) -> None:
    entrypoint = spec.entrypoint
    if isinstance(entrypoint, CommandEntrypoint):
        if not entrypoint.argv or not entrypoint.argv[0]:
            raise InvalidRequest(f"{job}: the command is empty; it needs at least the program to run")
        if any("\0" in word for word in entrypoint.argv):
            raise InvalidRequest(f"{job}: the command has a NUL character, which no argument can hold")
        if sum(len(word) for word in entrypoint.argv) > MAX_TEXT_LENGTH:
            raise InvalidRequest(f"{job}: the command is longer than {MAX_TEXT_LENGTH} characters; put data into files")
    else:
        check_digest(entrypoint.payload_digest)
    if spec.bundle_digest:
        check_digest(spec.bundle_digest)
    elif spec.runtime.working_dir:
        raise InvalidRequest(f"{job}: working_dir is {spec.runtime.working_dir!r}, but the job has no workspace")


def _validate_environment(job: str, spec: JobSpec) -> None:
    for name, value in spec.env_vars.items():
        if not _ENV_NAME.fullmatch(name):
            raise InvalidRequest(f"{job}: environment variable {name!r}; a name has A-Z a-z 0-9 _, no digit first")
        if "\0" in value:
            raise InvalidRequest(f"{job}: the value of environment variable {name} has a NUL character")
    size = sum(len(name) + len(value) for name, value in spec.env_vars.items())
    if size > MAX_TEXT_LENGTH:
        raise InvalidRequest(f"{job}: the environment variables have {size} characters; at most {MAX_TEXT_LENGTH}")
    for extra in spec.extras:
        if not _EXTRA.fullmatch(extra):
            raise InvalidRequest(f"{job}: extra {extra!r}; allowed are letters, digits and . _ - between them")
    for requirement in spec.pip_packages:
        if not _REQUIREMENT.match(requirement.strip()):
            raise InvalidRequest(
                f"{job}: pip package {requirement!r} is not a requirement; write e.g. 'numpy', 'numpy>=2' or 'x @ URL'"
            )


def validate_place(spec: JobSpec, workers: Sequence[WorkerCapacity], scale_groups: tuple[ScaleGroup, ...] = ()) -> None:
    """Check that a worker or scale group could ever run a job. Raise InvalidRequest.

    Args:
        spec: The job.
        workers: Id, capacity and attributes of every known worker.
        scale_groups: Hosts that the cluster may also start.
    """
    reason = impossible_reason(spec, workers, scale_groups)
    if reason is not None:
        raise InvalidRequest(f"job {spec.job_id} can never run: {reason}")
