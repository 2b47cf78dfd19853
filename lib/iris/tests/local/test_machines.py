"""A cluster file that has lost its last scale group: slices that it made end at the controller's next start."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from iris.autoscale.boot.release import has_releases, own_release, publish
from iris.autoscale.gcp.api import google_api
from iris.autoscale.gcp.ownership import Owner, cluster_id
from iris.autoscale.gcp.provider import GcpProvider
from iris.autoscale.manual.former import FormerHosts, targets_of
from iris.autoscale.manual.provider import ManualProvider
from iris.autoscale.manual.scripts import HostSettings
from iris.autoscale.manual.ssh import Ssh
from iris.autoscale.model import Outcome
from iris.autoscale.port import SliceOrder, SliceProvider
from iris.autoscale.rules import GOOGLE_ENDPOINT, AutoscaleRules, Platform
from iris.controller.app import Address, serve
from iris.controller.config.controller_config import ControllerConfig
from iris.domain.resources import Resources
from iris.domain.scale_groups import GcpTemplate, ManualTemplate, ScaleGroup
from iris.local.machines import Machines
from support.google.server import GoogleServer
from support.iris.host_cluster import until
from support.iris.ssh_hosts import fake_release, ssh_hosts, why_not

_SOON = AutoscaleRules(look_s=0.1)


def begin_slice(provider: SliceProvider, group: ScaleGroup) -> None:
    async def begun() -> None:
        answer = await provider.create(SliceOrder("lab-0", group))
        assert answer.outcome is Outcome.DONE, answer.words
        await provider.close()

    asyncio.run(begun())


def serve_until(config: ControllerConfig, condition: Callable[[], bool]) -> None:
    """Run a controller with its autoscaler until a condition holds."""

    async def served() -> None:
        machines, stop = Machines(config, is_google=False), asyncio.Event()
        assert await machines.prepare()

        async def watch() -> None:
            try:
                await asyncio.to_thread(until, condition, "the slices of former groups end")
            finally:
                stop.set()

        tasks: list[asyncio.Task[None]] = []

        def on_ready(address: Address) -> None:
            machines.on_address(address)
            tasks.append(asyncio.create_task(watch()))

        await serve(config, on_ready, stop, autoscaler=machines.autoscaler)
        await tasks[0]

    asyncio.run(served())


@pytest.mark.process
def test_hosts_by_ssh_are_left(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    state = tmp_path / "state"
    owner = Owner("lab", cluster_id(str(state)))
    with ssh_hosts(tmp_path, 1) as hosts:
        (host,) = hosts.hosts
        group = ScaleGroup("one", Resources(), template=ManualTemplate(hosts.addresses))
        FormerHosts(str(state)).add(targets_of([group]))
        settings = HostSettings("127.0.0.1:1")
        release = fake_release(tmp_path)
        begin_slice(ManualProvider(Ssh(hosts.settings), owner.label, [group], release, lambda: settings), group)
        assert (host.files / "claim").exists()
        platform = Platform(ssh=hosts.settings)
        config = ControllerConfig(state, disk_reserve_bytes=0, cluster_name="lab", platform=platform, autoscale=_SOON)
        serve_until(config, lambda: not (host.files / "claim").exists())
        serve_until(config, lambda: not FormerHosts(str(state)).load())
        assert not asyncio.run(Machines(config).prepare()), "the next start has nothing to end"


def test_machines_at_google_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = tmp_path / "remote"
    config = ControllerConfig(
        tmp_path / "state", disk_reserve_bytes=0, remote_state_dir=str(remote), cluster_name="lab",
        platform=Platform(project_id="p"), autoscale=_SOON,
    )  # fmt: skip
    with GoogleServer() as google:
        monkeypatch.setenv(GOOGLE_ENDPOINT, google.address)
        assert not asyncio.run(Machines(config).prepare()), "it never had machines"
        assert not has_releases(str(remote))
        publish(own_release(), str(remote))
        group = ScaleGroup("one", Resources(), zone="us-west1-b", template=GcpTemplate(machine_type="n2-standard-8"))
        owner = Owner("lab", cluster_id(str(remote)))
        begin_slice(GcpProvider(google_api(), owner, "p", [group], lambda _: ""), group)
        assert google.cloud.instances
        serve_until(config, lambda: not google.cloud.instances)
