"""Machines at Google for a controller that runs on its own: its provider, and what new machines install."""

import asyncio
import secrets
from typing import Final

from iris.autoscale.book import SliceRows
from iris.autoscale.boot.release import own_release, publish
from iris.autoscale.boot.script import check_reachable, worker_script
from iris.autoscale.fleet import Fleet
from iris.autoscale.port import SliceOrder
from iris.autoscale.runtime import Autoscaler
from iris.controller.access.credentials import Credentials
from iris.controller.app import Address
from iris.controller.config.controller_config import ControllerConfig
from iris.domain.scale_groups import CapacityType, GcpTemplate, ScaleGroup
from iris.tls.trust import is_loopback
from iris.worker.host.gce import own_ip
from iris.worker.host.probe import source_address
from rigging.clock import unix_ms
from rigging.errors import InvalidRequest

_QUEUED_LIFETIME_MS: Final = 30 * 86_400_000
"""Reserved slices may queue for days before they boot."""
_ANYWHERE: Final = "192.0.2.1:1"
_ALL_ADDRESSES: Final = ("", "0.0.0.0", "::")


class Machines:
    """Makes the slices of a cluster file's groups at Google.

    Args:
        config: The controller's settings.
        is_google: Whether Google makes them, and no test server on this machine.

    Raises:
        InvalidRequest: Machines could not reach the controller, or not fetch iris.
    """

    def __init__(self, config: ControllerConfig, *, is_google: bool = True) -> None:
        self._config = config
        self._groups = tuple(group for group in config.scale_groups if isinstance(group.template, GcpTemplate))
        self._host, self._port = config.host, config.port
        if self._groups:
            check_reachable(config.remote_state_dir)
            if is_google and is_loopback(config.host):
                raise InvalidRequest(
                    f"the controller listens on {config.host}, where machines at Google cannot reach it: give "
                    "controller.host (or --host) 0.0.0.0"
                )

    @property
    def has_groups(self) -> bool:
        """Whether the cluster file has groups whose slices are made."""
        return bool(self._groups)

    def on_address(self, address: Address) -> None:
        """Note where the controller listens."""
        self._port = address.port

    async def prepare(self) -> None:
        """Store this release for new machines, and agree on the cluster's id.

        Raises:
            InvalidRequest: A startup script would be too long.
        """
        from iris.autoscale.gcp.ownership import Owner, cluster_id

        config = self._config
        if config.host in _ALL_ADDRESSES:
            self._host = await asyncio.to_thread(_own_host) or config.host
        self._release = await asyncio.to_thread(lambda: publish(own_release(), config.remote_state_dir))
        name = config.platform.label_prefix or config.cluster_name or "iris"
        self._owner = Owner(name, await asyncio.to_thread(cluster_id, config.remote_state_dir))
        for group in self._groups:
            self._script(SliceOrder("n" * 60, group, "t" * 200))

    def autoscaler(self, rows: SliceRows, credentials: Credentials) -> Autoscaler:
        """Return the autoscaler of a controller. Call `prepare` before it."""
        from iris.autoscale.gcp.api import google_api
        from iris.autoscale.gcp.provider import GcpProvider

        config = self._config

        def join_token(name: str, group: ScaleGroup) -> str:
            is_queued = group.capacity_type is CapacityType.RESERVED
            lifetime_ms = _QUEUED_LIFETIME_MS if is_queued else int(config.autoscale.boot_deadline_s * 1000)
            return credentials.create_for_slice(name, group.hosts_per_slice, lifetime_ms)

        provider = GcpProvider(google_api(), self._owner, config.platform.project_id, self._groups, self._script)
        fleet = Fleet(
            self._groups,
            config.autoscale,
            prefix=f"{self._owner.cluster}-",
            seed=secrets.randbits(32),
            join_token=join_token,
        )
        return Autoscaler(provider, rows, fleet, unix_ms)

    def _script(self, order: SliceOrder) -> str:
        config = self._config
        insecure = config.tls is None and not is_loopback(config.host)
        return worker_script(
            order, self._release, str(Address(self._host, self._port)), config.platform, insecure=insecure
        )


def _own_host() -> str:
    """Return this host's address for machines of the same network. Blocks."""
    return own_ip() or source_address(_ANYWHERE).strip("[]")
