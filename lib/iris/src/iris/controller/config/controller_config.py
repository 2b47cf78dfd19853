"""Settings of a controller."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from iris.autoscale.rules import AutoscaleRules, Platform
from iris.controller.admission.limits_policy import LimitsPolicy
from iris.controller.logs.store import DEFAULT_LIMIT_BYTES
from iris.controller.notices.notifier import NoticeRules
from iris.controller.storage.disk_space import DEFAULT_RESERVE_BYTES
from iris.core.rules.contact import ContactRules
from iris.domain.entities import JobsPerUser, UserBudget
from iris.domain.scale_groups import ScaleGroup
from iris.domain.usage import Price
from iris.rpc.protocol import PROTOCOL_VERSION
from iris.store.replicate.replicator import Pace
from iris.tls.certificates import ServerIdentity
from rigging.errors import InvalidRequest

DAY_S: Final = 86_400.0
LATE_BEATS: Final = 2
"""Number of missed heartbeats after which a worker gets no new attempts."""


@dataclass(frozen=True, slots=True)
class Address:
    """The host and port on which a controller listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Durability(StrEnum):
    """Where a submit is stored before it is acknowledged."""

    LOCAL = "local"  # on the disk of the controller
    REMOTE = "remote"  # also in the remote state directory


LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Settings of one controller. Times are in seconds.

    Args:
        state_dir: The directory of the database, secret, blobs and logs, with mode 0700.
        port: 0 for any free port.
        idle_exit_s: Exit after this time without a live job or a client's call; 0 for never.
        heartbeat_interval_s: The heartbeat interval of both sides of a worker's session.
        partition_patience_s: How long workers that fell silent together (at least half of three or more) are not
            declared lost; 0 treats them like others.
        worker_timeout_s: A worker is lost after this long without a message. Its attempts are then retried, except
            exclusive ones and gangs on accelerators (docs/durability.md).
        fence_margin_s: Time beyond an exclusive attempt's `fence_after` for its silent host to kill it.
        stop_grace_s: Time between SIGTERM and SIGKILL of a stopped attempt.
        history_max_age_s: Jobs that ended this long ago are removed with their logs, like workers not seen for as long.
        history_max_jobs: Number of latest ended jobs to keep for each user. Older ones are removed after
            `history_min_age_s`.
        history_max_events: Number of events kept, newest first; each takes about 80 bytes. They are also removed at
            `history_max_age_s`.
        blob_grace_s: Time since its last use after which a blob without a job is removed.
        remote_state_dir: The remote state (docs/durability.md): any fsspec URL; empty for none.
        durability: Where a submit is stored before it is acknowledged. pace: The timing of writes to
            `remote_state_dir`.
        scale_groups: The hosts that the cluster may start. A request that fits neither them nor any worker is refused.
            Empty: only the existing workers count.
        platform: What makes the machines. autoscale: Settings of the autoscaler.
        limits: The policy on tasks' limits.
        user_budgets: Budgets to set at each start. Other users keep their budgets. jobs_per_user: Limits for each user.
        prices: Prices of scale groups and of variants of devices, for the ledger.
        notices: The receivers of notices of jobs' ends. cluster_name: The sender's name in notices.
        dashboard_port: Port of the pages on loopback, served while the controller runs; 0 starts them on demand.
        task_pages_domain: The domain below which each page of a task has a host name; "" for none.
        log_limit_bytes: The size limit of an attempt's log. Its beginning and its newest part are kept.
        disk_reserve_bytes: Disk space reserved for the database, twice: in a file that is released last, and as free
            space. On a small file system, at most a tenth each. 0 reserves nothing.
        protocol_version: The protocol version; tests set another to simulate another release.
        tls: Certificates of the server; None serves unencrypted.
        log_wait_s: How long an attempt's end waits for the rest of its log.
    """

    state_dir: Path
    host: str = LOOPBACK
    port: int = 0
    idle_exit_s: float = 0
    heartbeat_interval_s: float = 5
    worker_timeout_s: float = 60
    partition_patience_s: float = 300
    fence_margin_s: float = 10
    stop_grace_s: float = 5
    log_wait_s: float = 30
    history_max_age_s: float = 30 * DAY_S
    history_max_jobs: int = 10_000
    history_min_age_s: float = 3600
    history_max_events: int = 1_000_000
    blob_grace_s: float = DAY_S
    log_limit_bytes: int = DEFAULT_LIMIT_BYTES
    disk_reserve_bytes: int = DEFAULT_RESERVE_BYTES
    remote_state_dir: str = ""
    durability: Durability = Durability.LOCAL
    pace: Pace = field(default_factory=Pace)
    scale_groups: tuple[ScaleGroup, ...] = ()
    limits: LimitsPolicy = field(default_factory=LimitsPolicy)
    notices: NoticeRules = field(default_factory=NoticeRules)
    cluster_name: str = ""
    dashboard_port: int = 0
    task_pages_domain: str = ""
    user_budgets: tuple[UserBudget, ...] = ()
    jobs_per_user: JobsPerUser = field(default_factory=JobsPerUser)
    prices: tuple[tuple[str, Price], ...] = ()
    platform: Platform = field(default_factory=Platform)
    autoscale: AutoscaleRules = field(default_factory=AutoscaleRules)
    tls: ServerIdentity | None = None
    protocol_version: int = PROTOCOL_VERSION

    @property
    def ca_sha256(self) -> str:
        """Return the digest of the CA that tokens pin; empty without TLS."""
        return self.tls.ca_sha256 if self.tls is not None else ""

    def __post_init__(self) -> None:
        if self.durability is Durability.REMOTE and not self.remote_state_dir:
            raise InvalidRequest("durability is 'remote', but remote_state_dir is empty: set it, or choose 'local'")
        if self.heartbeat_interval_s <= 0 or self.worker_timeout_s <= self.heartbeat_interval_s:
            raise InvalidRequest(
                f"worker_timeout_s ({self.worker_timeout_s}) must be longer than heartbeat_interval_s "
                f"({self.heartbeat_interval_s}), which must be above 0"
            )
        if self.partition_patience_s < 0:
            raise InvalidRequest(f"partition_patience_s is {self.partition_patience_s}; it must be 0 or more")
        if self.fence_margin_s < 0:
            raise InvalidRequest(f"fence_margin_s is {self.fence_margin_s}; it must be 0 or more")

    @property
    def contact_rules(self) -> ContactRules:
        """Return the rules for silent workers."""
        late_s = min(LATE_BEATS * self.heartbeat_interval_s, self.worker_timeout_s)
        return ContactRules(
            late_after_ms=round(late_s * 1000),
            lost_after_ms=round(self.worker_timeout_s * 1000),
            fence_margin_ms=round(self.fence_margin_s * 1000),
            partition_patience_ms=round(self.partition_patience_s * 1000),
        )
