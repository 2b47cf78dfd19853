"""Slices that come and go with the jobs of a real controller; their hosts are played."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fray.testing.waiting import eventually
from iris.autoscale.fleet import Fleet as Scaled
from iris.autoscale.runtime import Autoscaler
from iris.controller.app import Address, ControllerConfig, serve
from iris.controller.context import Controller
from iris.domain.events import JobSubmitted, StopRequested
from iris.domain.ids import JobId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import ScaleGroup
from iris.local.fleet.host import describe_host, read_host
from iris.local.fleet.provider import LocalProvider, local_rules, local_worker_id
from iris.local.fleet.slices import FakeHost, Slice
from iris.local.state import HostPaths, LocalPaths
from iris.local.worker_keeper import WorkerStart
from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.convert_job import resources_to_wire
from rigging.clock import unix_ms
from support.iris.scheduling import resources
from support.iris.worker import ScriptedWorker

V4 = Device("tpu", "v4-16", 4)
CPU = ScaleGroup("cpu", resources(4, 8), min_slices=1, max_slices=3)
TPU = ScaleGroup("tpu", resources(2, 16, device=V4), hosts_per_slice=2, max_slices=2)
NEVER = 3600.0


class Fleet:
    """A controller with its slices, in a thread; their hosts are scripted workers that run nothing."""

    def __init__(self, root: Path, *, max_hosts: int = 8, deaf: bool = False, **settings: float) -> None:
        self.paths = LocalPaths(root)
        self.paths.make()
        self.hosts: dict[str, ScriptedWorker] = {}
        self.troubles: list[str] = []
        self.words = "no such disk\n" if deaf else ""
        self._rules = replace(
            local_rules(max_hosts), **{"idle_s": NEVER, "crowded_s": NEVER, "look_s": 0.05, **settings}
        )
        self._started: Future[tuple[Address, Controller]] = Future()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.address, self.controller = self._started.result(20)

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._main())

    async def _main(self) -> None:
        found: list[Controller] = []
        provider = LocalProvider(
            self.paths, (CPU, TPU), self.troubles.append, start_host=self._start_host, end_host=self._end_host
        )
        fleet = Scaled((CPU, TPU), self._rules, worker_id=local_worker_id)

        def listens(address: Address) -> None:
            self.address = address
            self._started.set_result((address, found[0]))

        await serve(
            ControllerConfig(self.paths.root, scale_groups=(CPU, TPU), disk_reserve_bytes=0),
            listens, self._stop, provider.on_worker,
            worker_trouble=lambda: provider.trouble, on_controller=found.append,
            autoscaler=lambda rows, _: Autoscaler(provider, rows, fleet, unix_ms),
        )  # fmt: skip

    def _start_host(self, paths: LocalPaths, host: FakeHost) -> WorkerStart:
        describe_host(paths.host(host.name), host)
        reader, writer = os.pipe()
        if self.words:
            os.write(writer, self.words.encode())
            os.close(writer)
            return WorkerStart(reader, 0)
        token = make_token(load_or_create_secret(paths.root / "secret"), PrincipalKind.WORKER, host.worker_id)
        capacity = resources_to_wire(host.capacity)
        attributes = dict(host.attributes)
        worker = ScriptedWorker(self.address, token, host.worker_id, capacity=capacity, attributes=attributes)
        worker.writer = writer  # type: ignore[attr-defined]  # the pipe of a process that lives
        self.hosts[host.name] = worker
        return WorkerStart(reader, 0)

    def _end_host(self, files: HostPaths) -> None:
        worker = self.hosts.pop(files.name, None)
        if worker is not None:
            worker.disconnect()
            os.close(worker.writer)  # type: ignore[attr-defined]

    def submit(self, name: str, need: Resources, **fields: Any) -> None:
        spec = JobSpec(JobId(name), CommandEntrypoint(("true",)), need, **fields)
        self._do(JobSubmitted(spec, ""))

    def stop(self, name: str) -> None:
        self._do(StopRequested(JobId(name), "enough"))
        for worker in list(self.hosts.values()):
            for start in worker.starts:
                if start.attempt_id.startswith(f"{name}/"):
                    worker.observe(start.attempt_id, 6)  # killed

    def _do(self, event: Any) -> None:
        asyncio.run_coroutine_threadsafe(self.controller.engine.submit(event), self._loop).result(20)

    def connected(self) -> set[str]:
        workers = list(self.controller.view.workers.values())
        return {worker.worker_id.removesuffix("@local") for worker in workers if worker.connected}

    def known(self) -> set[str]:
        return {worker_id.removesuffix("@local") for worker_id in list(self.controller.view.workers)}

    def reason(self, name: str) -> str:
        return self.controller.pending_reason(JobId(name))

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(20)
        for name in list(self.hosts):
            self._end_host(self.paths.host(name))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Any]:
    made: list[Fleet] = []

    def make(**settings: Any) -> Fleet:
        made.append(Fleet(tmp_path / "state", **settings))
        return made[-1]

    yield make
    for item in made:
        item.close()


def gang(running: Fleet, name: str, replicas: int = 2) -> None:
    running.submit(name, resources(1, device=V4), replicas=replicas, coscheduling_group_by="tpu-name")


@pytest.mark.process
def test_a_waiting_gang_gets_its_slice_which_goes_when_it_is_idle(fleet):
    running = fleet(idle_s=0.2)
    gang(running, "/u/gang")
    eventually(lambda: {"tpu-0-w0", "tpu-0-w1"} <= running.connected(), "its slice joins")
    eventually(lambda: sum(len(worker.starts) for worker in running.hosts.values()) == 2, "it is placed")
    running.stop("/u/gang")
    eventually(lambda: running.known() == {"cpu-0-w0"}, "the slice has gone, and is forgotten; the minimum stays")
    assert [path.name for path in running.paths.hosts.iterdir()] == ["cpu-0-w0"], "its directories are gone, too"
    gang(running, "/u/again")
    eventually(lambda: {"tpu-1-w0", "tpu-1-w1"} <= running.connected(), "another slice comes")


def test_what_is_idle_goes_for_what_waits(fleet):
    running = fleet(max_hosts=3, crowded_s=0.1)
    gang(running, "/u/one")
    eventually(lambda: sum(len(worker.starts) for worker in running.hosts.values()) == 2, "it is placed")
    running.submit("/u/large", resources(4), replicas=3)
    eventually(lambda: "3 of at most 3 hosts run here (--max-hosts)" in running.reason("/u/large"), "it says so")
    running.stop("/u/one")
    eventually(lambda: {"cpu-1-w0", "cpu-2-w0"} <= running.connected(), "the gang's slice made room")
    assert "tpu-0-w0" not in running.connected()


def test_a_host_that_does_not_start_is_told(fleet):
    running = fleet(deaf=True)
    eventually(lambda: "cpu-0-w0: no such disk" in running.troubles, "its words are told")


def test_former_slices_are_taken_up_and_those_of_groups_that_are_gone_end(fleet, tmp_path):
    paths = LocalPaths(tmp_path / "state")
    for host in (*Slice(ScaleGroup("gone", resources(1)), "gone-0").hosts, *Slice(TPU, "tpu-1").hosts):
        describe_host(paths.host(host.name), host)
    running = fleet()
    eventually(lambda: running.connected() == {"cpu-0-w0", "tpu-1-w0", "tpu-1-w1"}, "the former slice is taken up")
    eventually(lambda: not paths.host("gone-0-w0").worker_dir.exists(), "the other one is removed")


def test_what_a_host_is_told_comes_back_and_a_damaged_description_is_no_host(tmp_path):
    for host in (*Slice(CPU, "cpu-2").hosts, *Slice(TPU, "tpu-2").hosts):
        files = HostPaths(tmp_path / host.name)
        describe_host(files, host)
        assert read_host(files) == host
    for content in ("", "{}", "[]", '{"capacity": {"cpu": 1}, "attributes": {}}', '{"capacity": 1}'):
        files.description.write_text(content)
        assert read_host(files) is None
