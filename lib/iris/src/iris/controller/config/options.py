"""Combines a cluster's config file and the command line into a controller's settings. The command line wins."""

from dataclasses import dataclass, replace
from pathlib import Path

from iris.controller.admission.limits_policy import WARN
from iris.controller.config.cluster_file import ClusterConfig, read_cluster_config
from iris.controller.config.controller_config import LOOPBACK, ControllerConfig, Durability
from iris.controller.notices.notifier import NoticeRules
from rigging.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Given:
    """Command-line options; None if not given."""

    state_dir: Path | None = None
    port: int | None = None
    idle_exit_s: float = 0
    remote_state_dir: str | None = None
    durability: str | None = None
    host: str | None = None
    partition_patience_s: int | None = None


def controller_config(path: Path | None, given: Given) -> ControllerConfig:
    """Return the combined settings. Raise InvalidRequest, naming the wrong or missing setting."""
    file = ClusterConfig() if path is None else read_cluster_config(path)
    state_dir = given.state_dir or (Path(file.state_dir) if file.state_dir else None)
    if state_dir is None:
        raise InvalidRequest("where is the state to be? Give --state-dir, or controller.state_dir in the config")
    try:
        durability = Durability(given.durability) if given.durability is not None else file.durability
    except ValueError:
        allowed = " or ".join(repr(item.value) for item in Durability)
        raise InvalidRequest(f"durability is {given.durability!r}; it must be {allowed}") from None
    host = given.host or file.host or LOOPBACK
    config = ControllerConfig(
        state_dir=state_dir.absolute(),
        host=host,
        # On this machine alone only its user submits, who could speak to any address anyway.
        notices=NoticeRules(file.notify_url, file.notify_allow, is_private=host == LOOPBACK),
        cluster_name=file.name or (path.stem if path is not None else ""),
        port=file.port if given.port is None else given.port,
        dashboard_port=file.dashboard_port,
        task_pages_domain=file.task_pages_domain,
        idle_exit_s=given.idle_exit_s,
        remote_state_dir=file.remote_state_dir if given.remote_state_dir is None else given.remote_state_dir,
        durability=durability,
        scale_groups=file.scale_groups,
        # On this machine alone who says nothing of memory may use all of it.
        limits=file.limits if host == LOOPBACK else replace(file.limits, unstated=file.limits.unstated or WARN),
        user_budgets=file.user_budgets,
        jobs_per_user=file.jobs_per_user,
        prices=file.prices,
        platform=file.platform,
        autoscale=file.autoscale,
        log_limit_bytes=file.log_limit_bytes,
        disk_reserve_bytes=file.disk_reserve_bytes,
    )
    patience_s = file.partition_patience_s if given.partition_patience_s is None else given.partition_patience_s
    return _contact(replace(config, partition_patience_s=patience_s), file.worker_timeout_s)


def _contact(config: ControllerConfig, lost_after_s: int) -> ControllerConfig:
    """Set the time until a silent worker is lost (0: the default), and heartbeats frequent enough to lose one."""
    if not lost_after_s:
        return config
    return replace(
        config,
        worker_timeout_s=lost_after_s,
        heartbeat_interval_s=min(config.heartbeat_interval_s, lost_after_s / 4),
        fence_margin_s=min(config.fence_margin_s, lost_after_s),
    )


def insecure_in(path: Path | None) -> bool:
    """Return whether a config file turns off encryption beyond loopback. Raise InvalidRequest."""
    return path is not None and read_cluster_config(path).insecure
