"""Settings of a controller."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from iris.controller.admission.limits_policy import LimitsPolicy
from iris.controller.logs.store import DEFAULT_LIMIT_BYTES
from iris.controller.notices.notifier import NoticeRules
from iris.controller.storage.disk_space import DEFAULT_RESERVE_BYTES
from iris.core.rules.contact import ContactRules
from iris.domain.entities import UserBudget
from iris.domain.scale_groups import ScaleGroup
from iris.rpc.protocol import PROTOCOL_VERSION
from iris.store.replicate.replicator import Pace
from iris.tls.certificates import ServerIdentity
from rigging.errors import InvalidRequest

DAY_S: Final = 86_400.0
LATE_BEATS: Final = 2
"""A worker that was not heard for so many heartbeats gets nothing new."""


@dataclass(frozen=True, slots=True)
class Address:
    """Host and port on which a controller listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Durability(StrEnum):
    """Where a submission has been written by the time it is acknowledged."""

    LOCAL = "local"  # on the disk of the controller
    REMOTE = "remote"  # also in the remote state directory


LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Settings of one controller; times in seconds.

    Args:
        state_dir: Database, secret, blobs and logs; made 0700.
        port: 0 takes any free one.
        idle_exit_s: Exit after this long without a live job or a client's call; 0: never.
        heartbeat_interval_s: Of both sides of a worker's session.
        partition_patience_s: So long no worker is lost that fell silent together with at least half of three or more;
            0: it is lost like others.
        worker_timeout_s: A worker that was not heard for this long is lost: its attempts are given up, but for
            exclusive ones and gangs on accelerators (docs/durability.md).
        fence_margin_s: Beyond the `fence_after` of an exclusive attempt on a silent worker, for its host to kill it.
        stop_grace_s: Between SIGTERM and SIGKILL of a stopped attempt.
        history_max_age_s: Jobs that ended so long ago are forgotten, with their logs; so are workers not seen since.
        history_max_jobs: So many ended jobs of each user are kept, the latest; older ones are forgotten once they
            ended `history_min_age_s` ago.
        blob_grace_s: Seconds since its last use after which a blob that no job names is removed.
        remote_state_dir: Where the state is kept off the machine (docs/durability.md): any fsspec URL; empty: nowhere.
        durability: What an acknowledged submit has survived. pace: Of what is written to `remote_state_dir`.
        scale_groups: What the cluster may have, booted or not; what none of it, and no worker, could ever run is
            refused. Empty: the workers that are there are all that is known.
        limits: Whether tasks are held to their limits, where their submitters do not say.
        user_budgets: Set at each start; users that are not named keep what they have.
        notices: Who is told of the ends of jobs, and who may be. cluster_name: Said to those who are told.
        dashboard_port: Of the pages, on loopback, served as long as the controller; 0: from when they are asked for.
        log_limit_bytes: So much of an attempt's log is kept: its beginning, and what is newest.
        disk_reserve_bytes: Kept free for the database, twice: as a file that is given up last, and beside it. Of a
            small file system no more than a tenth each. 0: nothing is, and nothing is refused.
        protocol_version: What it speaks; another than ours plays another release.
        tls: Certificates to serve with; None: connections are not encrypted.
        log_wait_s: How long the end of an attempt waits for the rest of its log.
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
    user_budgets: tuple[UserBudget, ...] = ()
    tls: ServerIdentity | None = None
    protocol_version: int = PROTOCOL_VERSION

    @property
    def ca_sha256(self) -> str:
        """Digest of the authority that tokens pin; empty without TLS."""
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
        """Rules for workers that are not heard."""
        late_s = min(LATE_BEATS * self.heartbeat_interval_s, self.worker_timeout_s)
        return ContactRules(
            late_after_ms=round(late_s * 1000),
            lost_after_ms=round(self.worker_timeout_s * 1000),
            fence_margin_ms=round(self.fence_margin_s * 1000),
            partition_patience_ms=round(self.partition_patience_s * 1000),
        )
