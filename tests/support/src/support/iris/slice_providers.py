"""The kinds of providers: how each is made, restarted, and given a neighbour."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from iris.autoscale.gcp.api import GoogleApi
from iris.autoscale.gcp.ownership import Owner
from iris.autoscale.gcp.provider import GcpProvider
from iris.autoscale.manual.provider import ManualProvider
from iris.autoscale.manual.scripts import HostSettings
from iris.autoscale.manual.ssh import Ssh
from iris.autoscale.model import Answer
from iris.autoscale.port import SliceFound, SliceOrder, SliceProvider
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import CapacityType, GcpTemplate, ManualTemplate, ScaleGroup
from iris.local.fleet.provider import LocalProvider
from iris.local.fleet.slices import FakeHost
from iris.local.state import LocalPaths
from iris.local.worker_keeper import WorkerStart
from support.google.server import GoogleServer
from support.iris.ssh_hosts import SshHosts, fake_release, ssh_hosts
from support.rigging.clock import FakeClock


class Kind(Protocol):
    """A provider and the place where it makes slices."""

    groups: tuple[ScaleGroup, ScaleGroup]

    def provider(self, cluster: str) -> SliceProvider:
        """Return a provider for a cluster, as its next controller has."""
        ...

    def settle(self) -> None:
        """Let what was begun come to its end."""
        ...

    def close(self) -> None: ...


class LocalKind:
    """Processes of this machine that are played."""

    def __init__(self, root: Path) -> None:
        self.groups = (ScaleGroup("one", Resources(1000)), ScaleGroup("two", Resources(1000), hosts_per_slice=2))
        self._root = root
        self._pipes: list[int] = []

    def provider(self, cluster: str) -> SliceProvider:
        paths = LocalPaths(self._root / cluster)
        return LocalProvider(paths, self.groups, lambda _: None, start_host=self._start, end_host=lambda _: None)

    def settle(self) -> None:
        pass

    def close(self) -> None:
        for writer in self._pipes:
            os.close(writer)

    def _start(self, paths: LocalPaths, host: FakeHost) -> WorkerStart:
        del paths, host  # the provider describes a host before its process starts
        reader, writer = os.pipe()
        self._pipes.append(writer)
        return WorkerStart(reader, 0)


class GoogleKind:
    """The test server of Google's APIs: a TPU node and a virtual machine."""

    def __init__(self) -> None:
        tpu = Resources(device=Device("tpu", "v5litepod-16", 4))
        template = GcpTemplate(is_tpu=True)
        spot = CapacityType.SPOT
        self.groups = (
            ScaleGroup("tpu", tpu, 4, zone="us-east1-d", capacity_type=spot, template=template),
            ScaleGroup("cpu", Resources(), zone="us-west1-b", template=GcpTemplate(machine_type="n2-standard-8")),
        )
        self._clock = FakeClock()
        self._server = GoogleServer(self._clock.now, operation_s=5, boot_s=60, delete_s=30).__enter__()

    def provider(self, cluster: str) -> SliceProvider:
        owner = Owner("c", {"ours": "0123456789ab", "other": "ba9876543210"}[cluster])
        api = GoogleApi(self._server.address, deadline_s=20)
        return GcpProvider(api, owner, "p", self.groups, lambda order: f"start {order.name}")

    def settle(self) -> None:
        self._clock.advance(120)
        self._server.settle()

    def close(self) -> None:
        self._server.__exit__(None, None, None)


class ManualKind:
    """Debian's sshd with a worker that is played, on ports of loopback or on the hosts of a separate network."""

    def __init__(self, root: Path, make: Callable[[Path, int], AbstractContextManager[SshHosts]] = ssh_hosts) -> None:
        self._stack = ExitStack()
        self._hosts = self._stack.enter_context(make(root, 8))
        self._release = fake_release(root)
        addresses = self._hosts.addresses
        self.groups = (
            ScaleGroup("one", Resources(1000), template=ManualTemplate(addresses[:4])),
            ScaleGroup("two", Resources(1000), hosts_per_slice=2, template=ManualTemplate(addresses[4:])),
        )

    def provider(self, cluster: str) -> SliceProvider:
        ssh = Ssh(self._hosts.settings)
        return ManualProvider(ssh, f"c-{cluster}", self.groups, self._release, lambda: HostSettings("10.0.0.1:7077"))

    def settle(self) -> None:
        pass

    def close(self) -> None:
        self._stack.close()


class Place:
    """Runs a kind's calls; `restart` makes the next controller's provider."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._runner = asyncio.Runner()
        self.ours, self.other = kind.provider("ours"), kind.provider("other")

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def restart(self) -> None:
        self.run(self.ours.close())
        self.ours = self.kind.provider("ours")

    def create(self, name: str, number: int = 0, provider: SliceProvider | None = None) -> Answer:
        order = SliceOrder(name, self.kind.groups[number])
        answer: Answer = self.run((provider or self.ours).create(order))
        return answer

    def delete(self, name: str, number: int = 0) -> Answer:
        answer: Answer = self.run(self.ours.delete(name, self.kind.groups[number]))
        return answer

    def delete_without_group(self, name: str) -> Answer:
        """Delete a slice whose group the cluster file has lost."""
        group = replace(ScaleGroup(self.kind.groups[0].name, Resources()))
        answer: Answer = self.run(self.ours.delete(name, group))
        return answer

    def found(self, provider: SliceProvider | None = None) -> dict[str, SliceFound]:
        listing = self.run((provider or self.ours).list())
        assert not listing.unlisted_groups
        return dict(listing.found)

    def close(self) -> None:
        for provider in (self.ours, self.other):
            self.run(provider.close())
        self._runner.close()
        self.kind.close()
