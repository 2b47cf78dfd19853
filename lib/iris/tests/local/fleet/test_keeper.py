"""Slices that come and go with the jobs of a real controller; their hosts are played."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from fray.testing.waiting import eventually
from iris.controller.app import Address, ControllerConfig, serve
from iris.controller.context import Controller
from iris.domain.events import JobSubmitted, StopRequested
from iris.domain.ids import JobId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import ScaleGroup
from iris.local.fleet.host import describe_host, read_host
from iris.local.fleet.keeper import FleetKeeper
from iris.local.fleet.slices import FakeHost, Slice, plan_fleet
from iris.local.state import HostPaths, LocalPaths
from iris.local.worker_keeper import WorkerStart
from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.convert_job import resources_to_wire
from support.iris.scheduling import resources
from support.iris.worker import ScriptedWorker

V4 = Device("tpu", "v4-16", 4)
CPU = ScaleGroup("cpu", resources(4, 8), min_slices=1, max_slices=3)
TPU = ScaleGroup("tpu", resources(2, 16, device=V4), hosts_per_slice=2, max_slices=2)
NEVER = 3600.0


class Fleet:
    """A controller with its keeper, in a thread; its hosts are scripted workers that run nothing."""

    def __init__(self, root: Path, *, max_hosts: int = 8, deaf: bool = False, **settings: float) -> None:
        self.paths = LocalPaths(root)
        self.paths.make()
        self.hosts: dict[str, ScriptedWorker] = {}
        self.ready = threading.Event()
        self.troubles: list[str] = []
        self.words = "no such disk\n" if deaf else ""
        self._plan = plan_fleet([CPU, TPU], max_hosts)
        self._settings = {"idle_seconds": NEVER, "crowded_seconds": NEVER, "look_seconds": 0.02, **settings}
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
        self.keeper = keeper = FleetKeeper(
            self.paths, self._plan, self.ready.set, self.troubles.append,
            start_host=self._start_host, end_host=self._end_host, **self._settings,
        )  # fmt: skip

        def listens(address: Address) -> None:
            self.address = address
            keeper.begin()
            self._started.set_result((address, found[0]))

        def attach(controller: Controller) -> None:
            found.append(controller)
            keeper.attach(controller)

        config = ControllerConfig(self.paths.root, scale_groups=self._plan.groups, disk_reserve_bytes=0)
        trouble = lambda: keeper.trouble  # noqa: E731
        await serve(config, listens, self._stop, keeper.on_worker, keeper.close, trouble, attach)

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
    running = fleet(idle_seconds=0.2)
    gang(running, "/u/gang")
    eventually(lambda: {"tpu-0-w0", "tpu-0-w1"} <= running.connected(), "its slice joins")
    eventually(lambda: sum(len(worker.starts) for worker in running.hosts.values()) == 2, "it is placed")
    running.stop("/u/gang")
    eventually(lambda: running.known() == {"cpu-0-w0"}, "the slice has gone, and is forgotten; the minimum stays")
    assert [path.name for path in running.paths.hosts.iterdir()] == ["cpu-0-w0"], "its directories are gone, too"

    gang(running, "/u/again")
    eventually(lambda: {"tpu-0-w0", "tpu-0-w1"} <= running.connected(), "the name is used again")
    eventually(lambda: running.controller.view.jobs["/u/again"].state.word == "running"
               or any(start.attempt_id.startswith("/u/again") for w in running.hosts.values() for start in w.starts),
               "it runs there")  # fmt: skip


def test_what_is_idle_goes_for_what_waits(fleet):
    running = fleet(max_hosts=3, crowded_seconds=0.1)
    gang(running, "/u/one")
    eventually(lambda: sum(len(worker.starts) for worker in running.hosts.values()) == 2, "it is placed")
    running.stop("/u/one")
    running.submit("/u/large", resources(4), replicas=3)
    eventually(lambda: {"cpu-1-w0", "cpu-2-w0"} <= running.connected(), "the gang's slice made room")
    assert "tpu-0-w0" not in running.connected()


def test_a_host_that_does_not_start_is_told(fleet):
    running = fleet(deaf=True)
    eventually(lambda: "cpu-0-w0: no such disk" in running.troubles, "its words are told")
    assert not running.ready.is_set()


def test_it_is_ready_when_the_first_slices_have_joined_and_of_former_ones_takes_up_those_of_groups_that_are_there(
    fleet, tmp_path
):
    paths = LocalPaths(tmp_path / "state")
    for host in (*Slice(ScaleGroup("gone", resources(1)), 0).hosts, *Slice(TPU, 1).hosts):
        describe_host(paths.host(host.name), host)
    running = fleet()
    assert running.ready.wait(10)
    eventually(lambda: running.connected() == {"cpu-0-w0", "tpu-1-w0", "tpu-1-w1"}, "the former slice is taken up")


def test_what_a_host_is_told_comes_back_and_a_damaged_description_is_no_host(tmp_path):
    for host in (*Slice(CPU, 2).hosts, *Slice(TPU, 2).hosts):
        files = HostPaths(tmp_path / host.name)
        describe_host(files, host)
        assert read_host(files) == host
    for content in ("", "{}", "[]", '{"capacity": {"cpu": 1}, "attributes": {}}', '{"capacity": 1}'):
        files.description.write_text(content)
        assert read_host(files) is None
