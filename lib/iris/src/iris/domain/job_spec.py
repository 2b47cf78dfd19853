"""The description of a job."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Final

from iris.domain.constraints import Constraint
from iris.domain.ids import JobId
from iris.domain.resources import NOTHING, Resources
from iris.domain.runtime import DEFAULT_RUNTIME, TaskRuntime
from iris.domain.states import PreemptionReason, PriorityBand


@dataclass(frozen=True, slots=True)
class CommandEntrypoint:
    """Run this command line. argv[0] is looked up in the task's PATH."""

    argv: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.argv)


@dataclass(frozen=True, slots=True)
class CallableEntrypoint:
    """Call the pickle in the blob `payload_digest` (SHA-256 hex). `display_name` is its readable name."""

    payload_digest: str
    display_name: str = ""

    def __str__(self) -> str:
        return self.display_name or f"callable {self.payload_digest[:12]}"


Entrypoint = CommandEntrypoint | CallableEntrypoint


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The request for a job, which never changes.

    Args:
        resources: The resources of one task.
        bundle_digest: The workspace; empty for none.
        timeout_ms: Time limit from the first task's start; 0 for none.
        scheduling_timeout_ms: Time limit from submission to the first assignment; 0 for none.
        coscheduling_group_by: The attribute whose value all tasks' workers must share; empty if it is not a gang.
        max_task_failures: Tasks that may fail for good before the job fails. They stay failed; the others continue.
        reserve: Reserve the accelerators while the job lives, without attaching them to its tasks.
        exclusive: No task ever has two live attempts, even when a host is unreachable: docs/durability.md.
        fence_after_ms: For an exclusive job: the host kills an attempt this long after its last contact with the
            controller.
        description: Its purpose.
        retry_window_ms: Only failures in the last `retry_window_ms` count against max_retries_failure; 0 counts all.
        retry_delay_ms: Approximate delay before the first retry after a failure; doubles with each further retry.
        health_cmd: A shell command that checks each task every `health_interval_ms`; empty for none. A check longer
            than `health_timeout_ms` fails, and `health_retries` consecutive failures end the attempt.
        stall_timeout_ms: An attempt fails after this long without reported progress; 0 for never.
        notify_url: The webhook for the job's end; empty for none. All but its host is secret (`iris.domain.webhooks`).
        enforced: The enforced limits of its tasks, from LIMIT_WORDS, separated by commas; empty for none.
        limits_mode: The submitter's choice from LIMIT_MODES; empty for none.
        start_at_ms: Unix ms before which no task starts; 0 for at once.
        max_running: Maximum number of its tasks that run at the same time; 0 for all.
        after: The jobs whose end it waits for: "/ann/a:ok,/ann/b:any" (see `awaited`); empty for none.
        grace_ms: Time between the notice of a preemption and SIGKILL; 0 for the default (see `grace_ms_of`).
    """

    job_id: JobId
    entrypoint: Entrypoint
    resources: Resources = NOTHING
    extras: tuple[str, ...] = ()
    pip_packages: tuple[str, ...] = ()
    env_vars: Mapping[str, str] = field(default_factory=dict)
    bundle_digest: str = ""
    replicas: int = 1
    max_retries_failure: int = 0
    max_retries_preemption: int = 1000
    max_task_failures: int = 0
    timeout_ms: int = 0
    scheduling_timeout_ms: int = 0
    constraints: tuple[Constraint, ...] = ()
    coscheduling_group_by: str = ""
    ports: tuple[str, ...] = ()
    band: PriorityBand = PriorityBand.INTERACTIVE
    reserve: bool = False
    exclusive: bool = False
    fence_after_ms: int = 0
    runtime: TaskRuntime = DEFAULT_RUNTIME
    description: str = ""
    enforced: str = ""
    notify_url: str = ""
    retry_window_ms: int = 0
    retry_delay_ms: int = 0
    health_cmd: str = ""
    health_interval_ms: int = 0
    health_timeout_ms: int = 0
    health_retries: int = 0
    stall_timeout_ms: int = 0
    limits_mode: str = ""
    start_at_ms: int = 0
    max_running: int = 0
    after: str = ""
    grace_ms: int = 0


DEFAULT_GRACE_MS: Final = 30_000
MAX_GRACE_MS: Final = 600_000
_PLATFORM_GRACE_MS: Final = {PreemptionReason.SPOT: 25_000, PreemptionReason.MAINTENANCE: 55_000}
"""Compute Engine gives 30 s to spot hosts and 60 s to others; five of them are for the last reports."""


def grace_ms_of(grace_ms: int, reason: PreemptionReason) -> int:
    """Return the time between a preemption's notice and SIGKILL: `JobSpec.grace_ms`, or less where the platform gives
    less.
    """
    return min(grace_ms or DEFAULT_GRACE_MS, _PLATFORM_GRACE_MS.get(reason, MAX_GRACE_MS))


LIMIT_MODES: Final = ("enforced", "soft")
"""The modes of limits: enforced, or used only for placement."""

AFTER_ANY: Final = "any"
"""The condition of `JobSpec.after` that any end meets."""

AFTER_CONDITIONS: Final = ("ok", AFTER_ANY)
"""The conditions of `JobSpec.after`: success, or any end."""


def awaited(after: str) -> dict[JobId, str]:
    """Return the condition of each job in `JobSpec.after` or `Job.waits`."""
    pairs = (item.rpartition(":") for item in after.split(",")) if after else ()
    return {JobId(name): condition for name, _, condition in pairs}


MEMORY_WARNING: Final = "memory-warning"
"""In this mode, a task that exceeds its assumed memory gets a warning, and continues."""

LIMIT_WORDS: Final = ("memory", "disk", "cpu", MEMORY_WARNING)
"""The resources that can be enforced for a job's tasks."""

PLAIN_FIELDS: Final = tuple(item.name for item in fields(JobSpec) if item.type in (int, bool, str))
"""Fields that are a number, a flag or text, with the same name and value on the wire and in the database."""

_ALL_BUT_NAME: Final = attrgetter(*(item.name for item in fields(JobSpec) if item.name != "job_id"))


def is_alike(one: JobSpec, other: JobSpec) -> bool:
    """Return whether two jobs differ at most in their names."""
    return bool(_ALL_BUT_NAME(one) == _ALL_BUT_NAME(other))


def renamed(spec: JobSpec, job_id: JobId) -> JobSpec:
    """Return the job under another name, sharing its parts."""
    return JobSpec(job_id, *_ALL_BUT_NAME(spec))


DEFAULT_FENCE_AFTER_MS: Final = 600_000
MAX_FENCE_AFTER_MS: Final = 30 * 86_400_000


def is_gang(spec: JobSpec) -> bool:
    """Whether the job's tasks must run together."""
    return bool(spec.coscheduling_group_by) and spec.replicas > 1


def waits_for_host(spec: JobSpec) -> bool:
    """Whether an attempt on a silent worker waits for its host instead of being lost at the timeout.

    An exclusive attempt may be alive until its fence expires. A gang on accelerators cannot continue without one host.
    """
    return spec.exclusive or (is_gang(spec) and spec.resources.accelerator is not None)
