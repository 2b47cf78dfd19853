"""Builds the autoscaler of a controller whose cluster file says how machines are made."""

from collections.abc import Callable
from typing import Final

from iris.autoscale.book import SliceRows
from iris.autoscale.fleet import Fleet
from iris.autoscale.port import SliceOrder
from iris.autoscale.runtime import Autoscaler
from iris.controller.access.credentials import Credentials
from iris.controller.config.controller_config import ControllerConfig
from iris.domain.scale_groups import CapacityType, GcpTemplate, ScaleGroup
from rigging.clock import unix_ms
from rigging.errors import InvalidRequest

MakeAutoscaler = Callable[[SliceRows, Credentials], Autoscaler]
_QUEUE_MS: Final = 7 * 86_400_000
"""How long a reserved slice may queue before it boots."""


def google_autoscaler(config: ControllerConfig, startup_script: Callable[[SliceOrder], str]) -> MakeAutoscaler | None:
    """Return what makes the autoscaler for the scale groups at Google; None if there are none. Blocks.

    Names of slices begin with the cluster's label, because clusters may share a project.

    Args:
        config: The controller's settings.
        startup_script: Returns the startup script of a slice's hosts.

    Raises:
        InvalidRequest: The cluster has no name, or the packages for Google are missing.
    """
    groups = tuple(group for group in config.scale_groups if isinstance(group.template, GcpTemplate))
    if not groups:
        return None
    try:
        from iris.autoscale.gcp.api import google_api
        from iris.autoscale.gcp.ownership import Owner, cluster_id
        from iris.autoscale.gcp.provider import GcpProvider
    except ImportError as error:
        raise InvalidRequest(f"machines at Google need more packages ({error}): install marin-iris[gcp]") from None
    label = config.platform.label_prefix or config.cluster_name
    if not label:
        raise InvalidRequest("machines at Google bear the cluster's name: set `name` or platform.label_prefix")
    owner = Owner(label, cluster_id(config.remote_state_dir or str(config.state_dir)))

    def make(rows: SliceRows, credentials: Credentials) -> Autoscaler:
        def join_token(name: str, group: ScaleGroup) -> str:
            lifetime_ms = int(config.autoscale.boot_deadline_s * 1000)
            if group.capacity_type is CapacityType.RESERVED:
                lifetime_ms += _QUEUE_MS
            return credentials.create_for_slice(name, group.hosts_per_slice, lifetime_ms)

        provider = GcpProvider(google_api(), owner, config.platform.project_id, groups, startup_script)
        fleet = Fleet(groups, config.autoscale, f"{label}-", int(owner.id, 36), join_token=join_token)
        return Autoscaler(provider, rows, fleet, unix_ms)

    return make
