"""From what the user asks for to a request: names, inherited environment, bundle, pickled callables."""

import contextlib
import logging
import math
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.client.bundle import blob_digest, upload_bundle, upload_messages
from iris.client.connection import Connection
from iris.client.errors import JobAlreadyExists
from iris.client.job_env import JobEnv
from iris.client.job_workspace import JobWorkspace
from iris.client.names import default_user
from iris.client.wire import JobRequest, submit_request
from iris.cluster.constraints import Constraint, validate_constraint
from iris.cluster.types import (
    CoschedulingConfig,
    Entrypoint,
    EnvironmentSpec,
    ExistingJobPolicy,
    JobName,
    PriorityBand,
    ResourceSpec,
)
from iris.domain.entities import MAX_FENCE_AFTER_MS
from iris.domain.resources import Device
from iris.domain.tpu import SLICE_ATTRIBUTE, slice_hosts, whole_slices
from iris.rpc import iris_pb2 as pb
from rigging.errors import AlreadyExists, Conflict, InvalidRequest

FORWARDED_PREFIX: Final = "MARIN_"
"""Variables that every job gets from its submitter, unless the job sets them: where data lives must not change."""

INLINE_PAYLOAD_BYTES: Final = 1024 * 1024
_INT32_MAX: Final = 2**31 - 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobLimits:
    """How often a job tries and how long, with the names of `IrisClient.submit`.

    Args:
        max_retries_failure: How often a task starts again after it failed.
        max_retries_preemption: How often it does after its worker was lost.
        timeout: Seconds from the first task's start, after which the job fails.
        scheduling_timeout: Seconds until the first task is placed, or the job fails.
        max_task_failures: Tasks that may fail for good before the job fails; not for gangs.
    """

    max_retries_failure: int
    max_retries_preemption: int
    timeout: float | None
    scheduling_timeout: float | None
    max_task_failures: int = 0


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a job is, with the names of `IrisClient.submit`.

    Args:
        entrypoint: What each task runs.
        name: Names the job among the live ones of its user (or of its parent job): no "/".
        user: Instead of the client's; not inside a job.
        resources: What each task needs.
        environment: Extra packages and variables. Inside a job whose workspace is used on, extras and pip packages
            that are not given are those of that job. Variables named MARIN_* are passed on from this process.
        replicas: Number of tasks; of a gang on TPU slices, rounded up to whole slices, with a warning.
        limits: Retries and times; see `JobLimits`.
        constraints: On the workers' attributes.
        coscheduling: Makes the tasks a gang.
        ports: Names of ports to allocate; a task finds them as IRIS_PORT_<NAME>.
        priority_band: "production", "interactive" or "batch".
        reserve: Hold the accelerators without attaching them to the tasks.
        exclusive: A task never has two live attempts, even when its host is out of reach: the host ends an attempt
            `fence_after` seconds after its last contact with the controller, and the next one waits for that.
        fence_after: Only with `exclusive`; None: 600 s.
        working_dir: Where in the workspace the tasks run, e.g. "sub/folder"; "" is its top. None: in the directory
            that is the current one here, when that is in the workspace, else at its top.
    """

    entrypoint: Entrypoint
    name: str
    user: str | None
    resources: ResourceSpec
    environment: EnvironmentSpec
    replicas: int
    limits: JobLimits
    constraints: Sequence[Constraint]
    coscheduling: CoschedulingConfig | None
    ports: Sequence[str]
    priority_band: PriorityBand | str | None
    reserve: bool = False
    exclusive: bool = False
    fence_after: float | None = None
    working_dir: str | None = None


class Submitter:
    """Submits for one client; the workspace is packed once, at the first submission."""

    def __init__(
        self,
        connection: Connection,
        workspace: Path | None,
        *,
        user: str | None = None,
        inside: JobEnv | None = None,
        warn: Callable[[str], None] | None = None,
        notice: Callable[[str], None] | None = None,
        inherit: bool = True,
        same_machine: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._connection = connection
        self._user = user
        self._inside = inside
        self._parent = inside if workspace is None and inherit else None
        self._warn = warn or logger.warning
        self._environ = os.environ if environ is None else environ
        self._workspace = JobWorkspace(
            connection,
            workspace,
            self._parent,
            same_machine=same_machine,
            warn=self._warn,
            notice=notice or logger.info,
            environ=self._environ,
        )

    def submit(self, plan: JobPlan, *, existing: ExistingJobPolicy | str, idempotency_key: str | None) -> str:
        """Send the job; returns its id. Errors as in `IrisClient.submit`."""
        policy = _policy(existing)
        for constraint in plan.constraints:
            validate_constraint(constraint)
        payload = pickle_callable(plan.entrypoint)
        request = self._request(plan, blob_digest(payload) if payload else "")
        inline = [payload] if 0 < len(payload) <= INLINE_PAYLOAD_BYTES else []
        if payload and not inline and self._connection.missing_blobs([request.payload_digest]):
            self._connection.upload_blobs(lambda: upload_messages([(request.payload_digest, payload)]))
        message = submit_request(
            request,
            idempotency_key=idempotency_key or uuid.uuid4().hex,
            inline_blobs=inline,
            existing=policy,
        )
        try:
            return self._send(message)
        except InvalidRequest:
            # What was uploaded before may have been removed, or damaged, on the controller since.
            if not self._upload_again(request.payload_digest, payload):
                raise
            return self._send(message)

    def _send(self, message: pb.SubmitJobRequest) -> str:
        try:
            reply = self._connection.run(lambda c: c.jobs.SubmitJob(message, timeout=c.timeout, metadata=c.metadata))
        except AlreadyExists as error:
            raise JobAlreadyExists(str(error)) from None
        return reply.job_id

    def _upload_again(self, payload_digest: str, payload: bytes) -> bool:
        """Send what the cluster lacks of the bundle and the payload; whether that was anything."""
        sent = 0
        if payload and self._connection.missing_blobs([payload_digest]):
            self._connection.upload_blobs(lambda: upload_messages([(payload_digest, payload)]))
            sent += 1
        if self._workspace.bundle is not None:
            with contextlib.suppress(Conflict):  # a file has changed since: the refusal says what is wrong
                sent += upload_bundle(self._connection, self._workspace.bundle)
        return sent > 0

    def _request(self, plan: JobPlan, payload_digest: str) -> JobRequest:
        """What is sent for a plan; its bundle is in the cluster when this returns."""
        limits = plan.limits
        return JobRequest(
            job_id=str(self.job_name(plan.name, plan.user)),
            entrypoint=plan.entrypoint,
            payload_digest=payload_digest,
            resources=plan.resources,
            environment=self.environment(plan.environment),
            bundle_digest=self.bundle_digest(),
            replicas=self._whole_slices(plan),
            max_retries_failure=_count(limits.max_retries_failure, "max_retries_failure"),
            max_retries_preemption=_count(limits.max_retries_preemption, "max_retries_preemption"),
            timeout_ms=_to_ms(limits.timeout, "timeout"),
            scheduling_timeout_ms=_to_ms(limits.scheduling_timeout, "scheduling_timeout"),
            constraints=plan.constraints,
            coscheduling=plan.coscheduling,
            ports=plan.ports,
            band=_band(plan.priority_band),
            max_task_failures=_count(limits.max_task_failures, "max_task_failures"),
            reserve=plan.reserve,
            exclusive=plan.exclusive,
            fence_after_ms=_fence_ms(plan),
            runtime=self._workspace.runtime(
                is_callable=not plan.entrypoint.argv, working_dir=plan.working_dir, extras=plan.environment.extras
            ),
        )

    def _whole_slices(self, plan: JobPlan) -> int:
        """The number of tasks; for a gang on TPU slices, that of whole slices."""
        replicas = _count(plan.replicas, "replicas", least=1)
        wanted, group = plan.resources.device, plan.coscheduling
        if wanted is None:
            return replicas
        device = Device(wanted.kind, wanted.variant, wanted.count, wanted.alternatives)
        hosts = slice_hosts(device)
        if group is None and hosts is not None and hosts > 1 and not plan.reserve:
            self._warn(
                f"{plan.name}: a slice of {device.variant} has {hosts} VMs, and each task gets one VM of any slice; "
                f"a gang (coscheduling by {SLICE_ATTRIBUTE!r}) gets whole slices"
            )
        if group is None or group.group_by != SLICE_ATTRIBUTE:
            return replicas
        whole = whole_slices(device, replicas)
        if whole != replicas:
            self._warn(f"{plan.name}: {replicas} tasks become {whole}, to fill whole slices of {device.variant}")
        return whole

    def job_name(self, name: str, user: str | None = None) -> JobName:
        """The full name: below the job this process runs in, or the user's."""
        if self._inside is None:
            return JobName.root(user or self._user or default_user(), name)
        parent = JobName.from_string(self._inside.job_id)
        if user is not None and user != parent.user:
            raise InvalidRequest(f"user {user!r}: a job submitted from inside {parent} belongs to {parent.user!r}")
        return parent.child(name)

    def prefix(self) -> str:
        """What the names of its jobs begin with, without the last "/"."""
        return self._inside.job_id if self._inside else f"/{self._user or default_user()}"

    def environment(self, wanted: EnvironmentSpec) -> EnvironmentSpec:
        """What the job gets: MARIN_* variables of this process, and inside a job that job's packages."""
        forwarded = {name: value for name, value in self._environ.items() if name.startswith(FORWARDED_PREFIX)}
        inherit = self._parent
        return EnvironmentSpec(
            pip_packages=tuple(wanted.pip_packages) or (inherit.pip_packages if inherit else ()),
            env_vars={**forwarded, **wanted.env_vars},
            extras=tuple(wanted.extras) or (inherit.extras if inherit else ()),
        )

    def bundle_digest(self) -> str:
        """The bundle of the workspace, sent to the cluster when it lacks it; empty without one."""
        return self._workspace.bundle_digest()


def pickle_callable(entrypoint: Entrypoint) -> bytes:
    """The cloudpickle of (fn, args, kwargs); empty for a command. Raises InvalidRequest when it cannot be pickled."""
    if entrypoint.fn is None:
        return entrypoint.pickled
    import pickle

    import cloudpickle

    try:
        payload: bytes = cloudpickle.dumps((entrypoint.fn, entrypoint.args, dict(entrypoint.kwargs)))
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidRequest(
            f"{entrypoint.display} cannot be sent to another process: {error}; "
            "pass plain values, and open files, locks and connections inside the function"
        ) from error
    return payload


def _count(value: int, name: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _INT32_MAX:
        raise InvalidRequest(f"{name} must be a whole number from {least} up, not {value!r}")
    return value


def _to_ms(seconds: float | None, name: str) -> int:
    if seconds is None:
        return 0
    if not seconds > 0 or math.isinf(seconds):
        raise InvalidRequest(f"{name} must be a number of seconds above 0, not {seconds!r} (None for no limit)")
    return max(1, round(seconds * 1000))


def _fence_ms(plan: JobPlan) -> int:
    if plan.fence_after is None:
        return 0
    if not plan.exclusive:
        raise InvalidRequest(f"fence_after is {plan.fence_after!r}, but the job is not exclusive: give exclusive, too")
    if not 0 < plan.fence_after <= MAX_FENCE_AFTER_MS / 1000:
        limit = f"{MAX_FENCE_AFTER_MS // 1000} s"
        raise InvalidRequest(f"fence_after must be seconds above 0, at most {limit}, not {plan.fence_after!r}")
    return max(1, round(plan.fence_after * 1000))


def _policy(existing: ExistingJobPolicy | str) -> ExistingJobPolicy:
    try:
        return ExistingJobPolicy(existing)
    except ValueError:
        allowed = ", ".join(policy.value for policy in ExistingJobPolicy)
        raise InvalidRequest(f"existing {existing!r} is not one of {allowed}") from None


def _band(band: PriorityBand | str | None) -> PriorityBand | None:
    if band is None or isinstance(band, PriorityBand):
        return band
    try:
        return PriorityBand[band.upper()]
    except KeyError:
        allowed = ", ".join(item.word for item in PriorityBand)
        raise InvalidRequest(f"priority band {band!r} is not one of {allowed}") from None
