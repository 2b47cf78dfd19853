"""From a cluster's config file and the command line to how a controller runs; the command line wins."""

from dataclasses import dataclass
from pathlib import Path

from iris.controller.config.cluster_file import ClusterConfig, read_cluster_config
from iris.controller.config.controller_config import LOOPBACK, ControllerConfig, Durability
from rigging.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Given:
    """Options given besides the config file; None: not given."""

    state_dir: Path | None = None
    port: int | None = None
    idle_exit_s: float = 0
    remote_state_dir: str | None = None
    durability: str | None = None
    host: str | None = None


def controller_config(path: Path | None, given: Given) -> ControllerConfig:
    """Put the two together. Raises InvalidRequest, naming what is wrong or lacking."""
    file = ClusterConfig() if path is None else read_cluster_config(path)
    state_dir = given.state_dir or (Path(file.state_dir) if file.state_dir else None)
    if state_dir is None:
        raise InvalidRequest("where is the state to be? Give --state-dir, or controller.state_dir in the config")
    try:
        durability = Durability(given.durability) if given.durability is not None else file.durability
    except ValueError:
        allowed = " or ".join(repr(item.value) for item in Durability)
        raise InvalidRequest(f"durability is {given.durability!r}; it must be {allowed}") from None
    return ControllerConfig(
        state_dir=state_dir,
        host=given.host or LOOPBACK,
        port=file.port if given.port is None else given.port,
        idle_exit_s=given.idle_exit_s,
        remote_state_dir=file.remote_state_dir if given.remote_state_dir is None else given.remote_state_dir,
        durability=durability,
        scale_groups=file.scale_groups,
        log_limit_bytes=file.log_limit_bytes,
        disk_reserve_bytes=file.disk_reserve_bytes,
    )
