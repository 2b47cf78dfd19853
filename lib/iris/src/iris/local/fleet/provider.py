"""The provider `local`: slices whose hosts are worker processes on this machine."""

import asyncio
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from iris.autoscale.model import Answer, Outcome
from iris.autoscale.port import Listing, Phase, SliceFound, SliceOrder
from iris.autoscale.rules import AutoscaleRules
from iris.domain.ids import WorkerId
from iris.domain.scale_groups import GROUP_ATTRIBUTE, ScaleGroup
from iris.local.fleet.host import StartHost, describe_host, read_host, start_host_process
from iris.local.fleet.slices import FakeHost, Slice, slice_of_host
from iris.local.state import HostPaths, LocalPaths, host_worker_id
from iris.local.stop import stop_host
from iris.local.worker_keeper import WorkerKeeper, WorkerStart
from iris.worker.host.removal import remove_tree

_DONE: Final = Answer(Outcome.DONE)


def local_rules(max_hosts: int) -> AutoscaleRules:
    """Return the settings of the autoscaler for this machine: processes start and end in seconds, and cost nothing."""
    return AutoscaleRules(
        look_s=1, idle_s=60, crowded_s=2, max_hosts=max_hosts, creates_per_minute=1000, creates_per_hour=100_000
    )


def local_worker_id(slice_name: str, number: int) -> WorkerId:
    """Return the worker id of a host of a local slice."""
    return WorkerId(host_worker_id(f"{slice_name}-w{number}"))


class LocalProvider:
    """Slices on this machine (`SliceProvider`). Runs in the controller's loop.

    A host exists while its directory does. Its process outlives the controller; the next one takes it up.

    Args:
        paths: The files of the local cluster.
        groups: The scale groups that can be started.
        on_trouble: Called with the reason if a host does not start, and with "" when all have started.
        start_host, end_host: Start and end the process of a host; called in a thread.
    """

    def __init__(
        self,
        paths: LocalPaths,
        groups: Iterable[ScaleGroup],
        on_trouble: Callable[[str], None],
        *,
        start_host: StartHost = start_host_process,
        end_host: Callable[[HostPaths], None] = stop_host,
    ) -> None:
        self._paths = paths
        self._groups = {group.name: group for group in groups}
        self._on_trouble = on_trouble
        self._start_host, self._end_host = start_host, end_host
        self._running: dict[str, tuple[str, dict[str, WorkerKeeper]]] = {}
        self._joined: set[str] = set()
        self._troubles: dict[str, str] = {}
        self._told = ""
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # a host starts or ends
        self._is_listed = self._is_closed = False

    async def create(self, order: SliceOrder) -> Answer:
        made = Slice(order.group, order.name)
        self._take_up(made)
        # Processes start in threads, later: the next controller must find the slice whose creation is answered.
        try:
            await asyncio.gather(*(asyncio.to_thread(self._describe, made, host) for host in made.hosts))
        except OSError as error:
            return Answer(Outcome.UNKNOWN, f"cannot write {error.filename or made.name}: {error.strerror or error}")
        return _DONE

    async def delete(self, name: str, group: ScaleGroup) -> Answer:
        del group
        keepers = self._running.pop(name, ("", {}))[1]
        for host, keeper in keepers.items():
            keeper.close()
            self._joined.discard(host)
            self._troubles.pop(host, None)
        self._tell()
        hosts = {files.name: files for files in self._paths.known_hosts() if slice_of_host(files.name) == name}
        hosts |= {host: self._paths.host(host) for host in keepers}  # one may start just now
        for files in hosts.values():
            files.description.unlink(missing_ok=True)  # a process that starts just now ends itself
        await asyncio.gather(*(asyncio.to_thread(self._end, files) for files in hosts.values()))
        return _DONE

    async def list(self) -> Listing:
        described = await asyncio.to_thread(self._described)
        if not self._is_listed:
            self._is_listed = True
            for name, group_name in described.items():
                group = self._groups.get(group_name)
                if group is not None:
                    self._take_up(Slice(group, name))
        running = {name: group_name for name, (group_name, _) in self._running.items()}
        return Listing({name: self._found(name, group) for name, group in (described | running).items()})

    async def close(self) -> None:
        """Stop replacing ended processes, because the controller exits."""
        self._is_closed = True
        for _, keepers in self._running.values():
            for keeper in keepers.values():
                keeper.close()

    def on_worker(self, worker_id: str) -> None:
        """Handle a host that has joined, or joined again."""
        for _, keepers in self._running.values():
            for host, keeper in keepers.items():
                if host_worker_id(host) == worker_id:
                    self._joined.add(host)
                    keeper.on_worker()

    @property
    def trouble(self) -> str:
        """Return why hosts do not start; "" if all have started."""
        return "; ".join(self._troubles.values())

    def _described(self) -> dict[str, str]:
        """Return the group of each slice that has directories; empty if it is being deleted."""
        found: dict[str, str] = {}
        for files in self._paths.known_hosts():
            name, host = slice_of_host(files.name), read_host(files)
            group = dict(host.attributes).get(GROUP_ATTRIBUTE, "") if host is not None else ""
            if name:
                found[name] = found.get(name) or group
        return found

    def _found(self, name: str, group: str) -> SliceFound:
        keepers = self._running.get(name, ("", {}))[1]
        if not keepers:
            return SliceFound(name, group, Phase.DELETING if group in self._groups or not group else Phase.READY)
        return SliceFound(name, group, Phase.READY if self._joined.issuperset(keepers) else Phase.CREATING)

    def _take_up(self, item: Slice) -> None:
        """Start the hosts of a slice that do not run, and keep them running."""
        if self._is_closed or item.name in self._running:
            return
        keepers = {host.name: self._keeper(item, host) for host in item.hosts}
        self._running[item.name] = (item.group.name, keepers)
        for keeper in keepers.values():
            keeper.start()

    def _keeper(self, item: Slice, host: FakeHost) -> WorkerKeeper:
        def told(trouble: str) -> None:
            self._troubles.pop(host.name, None)
            if trouble:
                self._troubles[host.name] = f"{host.name}: {trouble}"
            self._tell()

        return WorkerKeeper(self._paths.host(host.name), lambda: self._start(item, host), told)

    def _describe(self, item: Slice, host: FakeHost) -> None:
        with self._locks[host.name]:
            if item.name in self._running:  # else deleted meanwhile
                describe_host(self._paths.host(host.name), host)

    def _start(self, item: Slice, host: FakeHost) -> WorkerStart:
        with self._locks[host.name]:
            if item.name in self._running:
                return self._start_host(self._paths, host)
        reader, writer = os.pipe()  # deleted meanwhile: like a process that has ended
        os.close(writer)
        return WorkerStart(reader, 0)

    def _end(self, files: HostPaths) -> None:
        with self._locks[files.name]:
            self._end_host(files)
            remove_tree(str(files.worker_dir))

    def _tell(self) -> None:
        if self.trouble != self._told:
            self._told = self.trouble
            self._on_trouble(self._told)
