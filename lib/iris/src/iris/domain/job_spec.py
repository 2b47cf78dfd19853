"""The description of a job: the one that the client makes, the controller keeps and the rules decide by."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Final

from iris.domain.constraints import Constraint
from iris.domain.ids import JobId
from iris.domain.resources import NOTHING, Resources
from iris.domain.runtime import DEFAULT_RUNTIME, TaskRuntime
from iris.domain.states import PriorityBand


@dataclass(frozen=True, slots=True)
class CommandEntrypoint:
    """Run this command line; argv[0] is looked up in the task's PATH."""

    argv: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.argv)


@dataclass(frozen=True, slots=True)
class CallableEntrypoint:
    """Call what the blob `payload_digest` (SHA-256 hex) holds; `display_name` is for people."""

    payload_digest: str
    display_name: str = ""

    def __str__(self) -> str:
        return self.display_name or f"callable {self.payload_digest[:12]}"


Entrypoint = CommandEntrypoint | CallableEntrypoint


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job as asked for; never changes.

    Args:
        resources: Of one task.
        bundle_digest: Empty: no workspace.
        timeout_ms: From the first task's start; 0: none.
        scheduling_timeout_ms: From submission to the first assignment; 0: none.
        coscheduling_group_by: Attribute whose value all tasks' workers must share; empty: not a gang.
        max_task_failures: Tasks that may fail for good before the job fails; they stay failed, the others go on.
        reserve: The accelerators are held while the job lives, and not attached to its tasks.
        exclusive: No task ever has two live attempts, even when a host is out of reach: docs/durability.md.
        fence_after_ms: Of an exclusive job: its attempts end so long after their host's last contact.
        description: For people.
        retry_window_ms: Only failures of the last so many ms count against max_retries_failure; 0: all.
        retry_delay_ms: Wait about so long before the first retry after a failure, and twice as long each further time.
        health_cmd: A line for the shell, run where each task is, every `health_interval_ms`; one that takes longer than
            `health_timeout_ms` has failed, and `health_retries` failures in a row end the attempt. Empty: none.
        stall_timeout_ms: An attempt that reports no progress for so long is ended; 0: never.
        notify_url: Told of the job's end; a secret but for its host (`iris.domain.webhooks`). Empty: none.
        enforced: The limits that its tasks are held to, of LIMIT_WORDS with commas between them; empty: none.
        limits_mode: One of LIMIT_MODES that the submitter chose; empty: none was chosen.
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


LIMIT_MODES: Final = ("enforced", "soft")
"""Tasks are ended beyond their limits, or only placed by them."""

MEMORY_WARNING: Final = "memory-warning"
"""A task that uses more memory than it is placed by is told so, and not ended."""

LIMIT_WORDS: Final = ("memory", "disk", "cpu", MEMORY_WARNING)
"""The resources to which a job's tasks can be held."""

PLAIN_FIELDS: Final = tuple(item.name for item in fields(JobSpec) if item.type in (int, bool, str))
"""Fields that are a number, a flag or text: the wire and the rows have them as they are, under the same names."""

_ALL_BUT_NAME: Final = attrgetter(*(item.name for item in fields(JobSpec) if item.name != "job_id"))


def is_alike(one: JobSpec, other: JobSpec) -> bool:
    """Whether two jobs differ in their names at most, as most do that are submitted in a row."""
    return bool(_ALL_BUT_NAME(one) == _ALL_BUT_NAME(other))


def renamed(spec: JobSpec, job_id: JobId) -> JobSpec:
    """The same job under another name; its parts are shared."""
    return JobSpec(job_id, *_ALL_BUT_NAME(spec))


DEFAULT_FENCE_AFTER_MS: Final = 600_000
MAX_FENCE_AFTER_MS: Final = 30 * 86_400_000


def is_gang(spec: JobSpec) -> bool:
    """Whether the job's tasks must run together."""
    return bool(spec.coscheduling_group_by) and spec.replicas > 1


def waits_for_host(spec: JobSpec) -> bool:
    """Whether an attempt on a silent worker is not given up by the clock alone.

    An exclusive one may live until its fence; of a gang on accelerators the other hosts are of no use without that one.
    """
    return spec.exclusive or (is_gang(spec) and spec.resources.accelerator is not None)
