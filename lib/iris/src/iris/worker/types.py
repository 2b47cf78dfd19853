"""The worker's own types for requests and observations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from iris.domain.resources import NOTHING, Resources
from iris.domain.runtime import DEFAULT_RUNTIME, PackageSource, TaskRuntime
from iris.domain.states import FailureKind, TaskState
from iris.domain.usage import Usage
from iris.worker.limits.plan import NO_LIMITS, LimitRequest
from iris.worker.watch.rules import NOT_WATCHED, WatchRules
from rigging.errors import MarinError


class PreparationFailed(MarinError, RuntimeError):
    """An attempt could not be prepared.

    Args:
        kind: The kind of failure.
        message: The reason, visible to everyone who can read the attempt's error.
        output: The complete output of the program that failed, for the attempt's log only.
    """

    def __init__(self, kind: FailureKind, message: str, output: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.output = output


@dataclass(frozen=True, slots=True)
class Launch:
    """The common part of all attempts of a job. Exactly one of `argv` and `payload_digest` is set."""

    job_id: str
    argv: tuple[str, ...] = ()
    payload_digest: str = ""
    extras: tuple[str, ...] = ()
    pip_packages: tuple[str, ...] = ()
    env_vars: Mapping[str, str] = field(default_factory=dict)
    bundle_digest: str = ""
    ports: tuple[str, ...] = ()
    replicas: int = 1
    token: str = ""
    has_accelerator: bool = False
    resources: Resources = NOTHING
    runtime: TaskRuntime = DEFAULT_RUNTIME
    exclusive: bool = False
    limits: LimitRequest = NO_LIMITS
    watch: WatchRules = NOT_WATCHED
    grace_ms: int = 0
    fence_after_ms: int = 0
    """For exclusive jobs: how long after the last contact with the controller the guardian kills the attempt."""

    @property
    def needs_preparation(self) -> bool:
        """Whether attempts need a fetch or a build before they can start."""
        return bool(
            self.bundle_digest
            or self.payload_digest
            or self.pip_packages
            or self.extras
            or self.runtime.packages is not PackageSource.UNSPECIFIED
        )


@dataclass(frozen=True, slots=True)
class Gang:
    """The members of a gang at its current start.

    Args:
        hosts: The address of each task's host, in order; empty for one that only its own host can reach.
        attempt: The attempt of task 0.
    """

    hosts: tuple[str, ...]
    attempt: int


@dataclass(frozen=True, slots=True)
class StartRequest:
    """One attempt to run.

    Args:
        prefilled: Whether to start it when another attempt on this worker ends, or when the controller requests it
            again without this flag.
        gang: The members of its gang; None for independent tasks.
    """

    attempt_id: str
    task_id: str
    task_index: int
    launch: Launch
    prefilled: bool = False
    gang: Gang | None = None


@dataclass(frozen=True, slots=True)
class StopRequest:
    """One attempt to stop: SIGTERM now, SIGKILL after `grace_ms`.

    Args:
        notice: Why it is preempted (`PreemptionReason`); empty if it is just stopped.
    """

    attempt_id: str
    grace_ms: int
    reason: str
    notice: str = ""


@dataclass(frozen=True, slots=True)
class DesiredChange:
    """A change of the desired set."""

    revision: int
    start: tuple[StartRequest, ...]
    stop: tuple[StopRequest, ...]
    forget: tuple[str, ...]
    withdraw: tuple[str, ...] = ()


class TaskResult(NamedTuple):
    """A reported return value: the packed value, or the blob that contains the value; both are empty for None."""

    packed: bytes = b""
    digest: str = ""


NO_RESULT: Final = TaskResult()


@dataclass(frozen=True, slots=True)
class Observation:
    """The worker's last observation of one attempt."""

    attempt_id: str
    state: TaskState
    at_ms: int
    exit_code: int = 0
    exit_signal: int = 0
    error: str = ""
    failure: FailureKind = FailureKind.UNSPECIFIED
    log_size: int = 0
    pid: int = 0
    started_at_ms: int = 0
    usage: Usage | None = None
    """The current usage; the total usage once the attempt has ended."""
    exception: bytes = b""
    """The exception of a failed callable: see `callable_main.pickle_exception`."""
    result: TaskResult = NO_RESULT
    """The return value of a successful callable."""
    waits_for: str = ""
    """A readable reason why the attempt has not started on this worker; empty if there is none."""
