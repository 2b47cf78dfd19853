"""Machines of a controller that runs on its own: who makes them, and what new machines install."""

import asyncio
import secrets
from typing import Final

from iris.autoscale.book import SliceRows
from iris.autoscale.boot.release import has_releases, own_release, publish
from iris.autoscale.boot.script import check_reachable, worker_script
from iris.autoscale.fleet import Fleet
from iris.autoscale.manual.scripts import HostSettings
from iris.autoscale.port import SliceOrder, SliceProvider
from iris.autoscale.runtime import Autoscaler
from iris.autoscale.several import SeveralProviders
from iris.controller.access.credentials import Credentials
from iris.controller.app import Address
from iris.controller.config.controller_config import ControllerConfig
from iris.domain.scale_groups import CapacityType, GcpTemplate, ManualTemplate, ScaleGroup
from iris.local.services import TASK_USERS
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
    """Makes the slices of a cluster file's groups, at Google or of hosts by ssh.

    Args:
        config: The controller's settings.
        is_google: Whether Google makes them, and no test server on this machine.

    Raises:
        InvalidRequest: Machines could not reach the controller, or not fetch iris.
    """

    def __init__(self, config: ControllerConfig, *, is_google: bool = True) -> None:
        self._config = config
        self._groups = tuple(group for group in config.scale_groups if group.template is not None)
        self._at_google = tuple(group for group in self._groups if isinstance(group.template, GcpTemplate))
        self._host, self._port = config.host, config.port
        far = [host for group in self._groups for host in _hosts(group) if not is_loopback(host)]
        if far and is_loopback(config.host):
            raise InvalidRequest(
                f"the controller listens on {config.host}, where {far[0]} cannot reach it: give controller.host (or "
                "--host) 0.0.0.0"
            )
        if self._at_google:
            check_reachable(config.remote_state_dir)
            if is_google and is_loopback(config.host):
                raise InvalidRequest(
                    f"the controller listens on {config.host}, where machines at Google cannot reach it: give "
                    "controller.host (or --host) 0.0.0.0"
                )

    def on_address(self, address: Address) -> None:
        """Note where the controller listens."""
        self._port = address.port

    async def prepare(self) -> bool:
        """Store this release for new machines, and agree on the cluster's id. Return whether there is anything to make,
        or to end because its groups have left the cluster file.

        Raises:
            InvalidRequest: A startup script would be too long.
        """
        from iris.autoscale.gcp.ownership import Owner, cluster_id
        from iris.autoscale.manual.former import FormerHosts, targets_of

        config = self._config
        state = config.remote_state_dir or str(config.state_dir)
        self._former = FormerHosts(state)
        self._has_hosts = bool(targets_of(self._groups) or await asyncio.to_thread(self._former.load))
        self._is_at_google = bool(self._at_google) or (
            bool(config.platform.project_id and config.remote_state_dir)
            and await asyncio.to_thread(has_releases, state)
        )
        if not (self._has_hosts or self._is_at_google):
            return False
        if config.host in _ALL_ADDRESSES:
            self._host = await asyncio.to_thread(_own_host) or config.host
        self._release = await asyncio.to_thread(own_release)
        name = config.platform.label_prefix or config.cluster_name or "iris"
        self._owner = Owner(name, await asyncio.to_thread(cluster_id, state))
        await asyncio.to_thread(self._former.add, targets_of(self._groups))
        if self._at_google:
            self._stored = await asyncio.to_thread(publish, self._release, config.remote_state_dir)
        for group in self._at_google:
            self._script(SliceOrder("n" * 60, group, "t" * 200))
        return True

    def autoscaler(self, rows: SliceRows, credentials: Credentials) -> Autoscaler:
        """Return the autoscaler of a controller. Call `prepare` before it."""
        config = self._config

        def join_token(name: str, group: ScaleGroup) -> str:
            is_queued = group.capacity_type is CapacityType.RESERVED
            lifetime_ms = _QUEUED_LIFETIME_MS if is_queued else int(config.autoscale.boot_deadline_s * 1000)
            return credentials.create_for_slice(name, group.hosts_per_slice, lifetime_ms)

        fleet = Fleet(
            self._groups,
            config.autoscale,
            prefix=f"{self._owner.cluster}-",
            seed=secrets.randbits(32),
            join_token=join_token,
        )
        return Autoscaler(self._provider(), rows, fleet, unix_ms)

    def _provider(self) -> SliceProvider:
        if not self._has_hosts:
            return self._google()
        manual = self._manual()
        if not self._is_at_google:
            return manual
        google, at_google = self._google(), {group.name for group in self._at_google}
        of_group = {group.name: google if group.name in at_google else manual for group in self._groups}
        return SeveralProviders(of_group, (google, manual))

    def _google(self) -> SliceProvider:
        from iris.autoscale.gcp.api import google_api
        from iris.autoscale.gcp.provider import GcpProvider

        return GcpProvider(google_api(), self._owner, self._config.platform.project_id, self._groups, self._script)

    def _manual(self) -> SliceProvider:
        from iris.autoscale.manual.provider import ManualProvider
        from iris.autoscale.manual.ssh import Ssh

        ssh = Ssh(self._config.platform.ssh)
        return ManualProvider(ssh, self._owner.label, self._groups, self._release, self._host_settings, self._former)

    def _host_settings(self) -> HostSettings:
        near = is_loopback(self._config.host)
        return HostSettings(
            str(Address(self._host, self._port)), insecure=self._insecure,
            platform=self._config.platform, task_users="" if near else TASK_USERS,
        )  # fmt: skip

    @property
    def _insecure(self) -> bool:
        return self._config.tls is None and not is_loopback(self._config.host)

    def _script(self, order: SliceOrder) -> str:
        address = str(Address(self._host, self._port))
        return worker_script(order, self._stored, address, self._config.platform, insecure=self._insecure)


def _hosts(group: ScaleGroup) -> tuple[str, ...]:
    return group.template.hosts if isinstance(group.template, ManualTemplate) else ()


def _own_host() -> str:
    """Return this host's address for machines of the same network. Blocks."""
    return own_ip() or source_address(_ANYWHERE).strip("[]")
