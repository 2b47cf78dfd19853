"""How a worker is put together, what ends it and what it then lets go; guardian, agent and supervisor are played."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iris.domain.constraints import DISK_SIZE_ATTRIBUTE, LIMITS_ATTRIBUTE
from iris.domain.resources import Resources
from iris.rpc.controller_address import ControllerAddress
from iris.worker import app
from iris.worker.app import WorkerConfig, run_worker
from iris.worker.attempts.rooms import Rooms
from iris.worker.connection.agent import AgentEnd
from iris.worker.connection.session import WorkerIdentity
from iris.worker.host.preemption import Platform
from iris.worker.isolation.plan import IsolationMode
from iris.worker.limits.plan import LimitsMode
from iris.worker.paths import WorkPaths
from iris.worker.prepare.task_env import ACTOR_HOST_VARIABLE
from rigging.errors import Denied

SIZE = Resources(cpu_millis=4000, memory_bytes=2**30, disk_bytes=2**30)


class Guardian:
    isolation = IsolationMode.OVERLAY
    limits = "soft: cpu"
    pid = 7

    def __init__(self, number: int, told: list[str]) -> None:
        self.guardian_id = f"guardian{number}"
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._told = told

    def held(self) -> list[Any]:
        return []

    def join(self, spec: Any, listener: Any) -> None: ...

    async def finish(self) -> None:
        self._told.append(f"{self.guardian_id} finish")

    def close(self) -> None:
        self._told.append(f"{self.guardian_id} close")


class Played:
    """A worker's parts. `serve` is what its agent does, with the number of the guardian that it has then."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config = WorkerConfig(root / "work", "w1", SIZE, {"zone": "a"}, stop_grace_s=0.25, containers="off")
        self.told: list[str] = []
        self.guardians: list[Guardian] = []
        self.hidden: list[int] = []
        self.identities: list[WorkerIdentity] = []
        self.attached: dict[str, Any] = {}
        self.given: dict[str, Any] = {}
        self.serve: Callable[[], Awaitable[AgentEnd]] = asyncio.Event().wait  # type: ignore[assignment]
        self.stop: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)
        self.leave: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)
        played = self

        async def attach(paths: Any, **options: Any) -> Guardian:
            played.attached = options
            played.guardians.append(Guardian(len(played.guardians), played.told))
            return played.guardians[-1]

        class Agent:
            def __init__(self, identity: WorkerIdentity, resolve: Any, orphan_timeout_s: float, offer: Any) -> None:
                played.identities.append(identity)
                played.given |= {"orphan_timeout_s": orphan_timeout_s, "offer": offer}

            def address(self) -> str:
                return ""

            async def upload(self, digest: str, data: bytes) -> None:
                played.told.append(f"upload {digest}")

            async def run(self, supervisor: Any) -> AgentEnd:
                try:
                    return await played.serve()
                except asyncio.CancelledError:
                    played.told.append("agent cancelled")
                    raise

            async def leave(self) -> None:
                played.told.append("agent leave")
                await played.leave()

            async def close(self) -> None:
                played.told.append("agent close")

        class Supervisor:
            live_attempts = ("/ann/a/0:0",)

            def __init__(self, paths: Any, runtime: Any, rooms: Rooms, **options: Any) -> None:
                played.given |= options
                rooms.find("/ann/a/0:0")

            def take_up_held(self) -> None: ...

            def exec_place(self, attempt_id: str) -> None: ...

            async def stop_all(self, reason: str, grace_ms: int, notice: str | None) -> None:
                played.told.append(f"stop: {reason}; {grace_ms} ms{f', {notice}' if notice else ''}")
                await played.stop()

        for name, part in (("attach", attach), ("Agent", Agent), ("Supervisor", Supervisor)):
            monkeypatch.setattr(app, name, part)
        monkeypatch.setattr(app, "hide_own_environment", lambda: self.hidden.append(len(self.guardians)))

    def run(self, **changes: Any) -> int:
        return run_worker(replace(self.config, **changes), lambda: ControllerAddress("c:1", "token"))

    def ends(self, end: AgentEnd) -> None:
        async def serve() -> AgentEnd:
            return end

        self.serve = serve

    def is_signalled(self, number: signal.Signals = signal.SIGTERM) -> None:
        async def serve() -> AgentEnd:
            self.leaves = asyncio.Event()
            os.kill(os.getpid(), number)
            await self.leaves.wait()
            return AgentEnd.LEFT

        async def leave() -> None:
            self.leaves.set()

        self.serve, self.leave = serve, leave


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(tmp_path, monkeypatch)


LET_GO = ["agent close", "guardian0 close"]


@pytest.mark.parametrize(
    ("end", "code"), [(AgentEnd.GOODBYE, 0), (AgentEnd.ORPHANED, 0), (AgentEnd.INCOMPATIBLE, 1), (AgentEnd.REFUSED, 1)]
)
def test_when_its_agent_ends_the_attempts_end_and_then_the_guardian(worker: Played, end: AgentEnd, code: int) -> None:
    """Another version is the only end that whoever started it has to look into."""
    worker.ends(end)
    assert worker.run() == code
    assert worker.told == [f"stop: worker w1 ended: {end}; 250 ms", "guardian0 finish", *LET_GO]


def test_a_signal_ends_the_attempts_and_their_ends_are_told_before_it_goes(worker: Played) -> None:
    worker.is_signalled()
    assert worker.run() == 0
    stopped, *rest = worker.told
    assert stopped == f"stop: worker w1 ended: {AgentEnd.LEFT}; 250 ms"
    assert rest == ["agent leave", "guardian0 finish", *LET_GO]


def test_ctrl_c_twice_leaves_at_once_and_says_what_stays(worker: Played, caplog: pytest.LogCaptureFixture) -> None:
    async def stop() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    caplog.set_level(logging.INFO)
    worker.is_signalled(signal.SIGINT)
    worker.stop = stop
    assert worker.run(stop_grace_s=30.0) == 130
    assert worker.told[1:] == ["agent cancelled", *LET_GO]
    assert "stopping its tasks within about 30 s: /ann/a/0:0; press Ctrl-C again to exit at once" in caplog.text
    assert "exited with tasks still running: /ann/a/0:0. The guardian (process 7) stops them" in caplog.text


@pytest.mark.parametrize("hangs_before", ["leave", "end of the session"])
def test_a_controller_that_does_not_listen_is_not_waited_for_for_ever(worker: Played, hangs_before: str) -> None:
    worker.is_signalled()
    worker.leave = asyncio.Event().wait if hangs_before == "leave" else lambda: asyncio.sleep(0)  # type: ignore[assignment]
    assert worker.run(leave_s=0.01) == 0
    assert worker.told[1:] == ["agent leave", "guardian0 finish", "agent cancelled", *LET_GO]


def test_without_its_guardian_it_is_another_instance(worker: Played) -> None:
    async def serve() -> AgentEnd:
        if len(worker.guardians) == 1:
            worker.guardians[0].lost.set_result(None)
            return await asyncio.Future[AgentEnd]()
        return AgentEnd.GOODBYE

    worker.serve = serve
    assert worker.run() == 0
    assert worker.told[:3] == ["agent cancelled", *LET_GO], "and stops nothing: its attempts are gone"
    assert [identity.instance_id for identity in worker.identities] == ["guardian0", "guardian1"]


def test_a_guardian_that_dies_meanwhile_holds_up_no_end(worker: Played) -> None:
    async def stop() -> None:
        worker.guardians[0].lost.set_result(None)
        try:
            await asyncio.Future[None]()
        finally:
            worker.told.append("gave up")

    worker.ends(AgentEnd.GOODBYE)
    worker.stop = stop
    assert worker.run() == 0
    assert worker.told[1:] == ["gave up", "guardian0 finish", *LET_GO]


def test_a_host_that_the_platform_takes_is_left_as_preempted(worker: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    class Host:
        preempted = True

        def wait_until_ended(self, key: str) -> None:
            if key != "maintenance-event":
                threading.Event().wait()

        def is_preempted(self) -> bool:
            return self.preempted

    async def serve() -> AgentEnd:
        worker.leaves = asyncio.Event()
        await worker.leaves.wait()
        return AgentEnd.LEFT

    monkeypatch.setattr(app, "GceHost", Host)
    worker.is_signalled()
    worker.serve = serve
    assert worker.run(platform=Platform.GCE) == 0
    assert worker.told[0] == "stop: worker w1 ended: the platform stops the host (maintenance); 250 ms, maintenance"
    # A signal may come first: then the platform is asked. Of an end of the worker's own it is not.
    monkeypatch.setattr(Host, "wait_until_ended", lambda self, key: threading.Event().wait())
    for platform, is_signal, preempted, said in (
        (Platform.GCE, True, True, True),
        (Platform.GCE, True, False, False),
        (Platform.GCE, False, True, False),
        (Platform.NONE, True, True, False),
    ):
        worker.told.clear()
        monkeypatch.setattr(Host, "preempted", preempted)
        if is_signal:
            worker.is_signalled()
        else:
            worker.ends(AgentEnd.GOODBYE)
        assert worker.run(platform=platform) == 0
        assert worker.told[0].endswith(", spot") == said


def test_its_parts_are_told_what_it_was_told(worker: Played) -> None:
    worker.ends(AgentEnd.GOODBYE)
    told = {"isolation": IsolationMode.COPY, "limits": LimitsMode.SOFT, "max_processes": 77}
    worker.run(guardian_linger_s=3.0, orphan_timeout_s=4.0, log_limit_bytes=5, **told)
    assert worker.attached == {"linger_s": 3.0, **told}
    assert (worker.given["orphan_timeout_s"], worker.given["log_limit_bytes"]) == (4.0, 5)
    assert worker.hidden == [0], "the guardian, from which the tasks come, would have its environment, too"


def test_what_it_offers_is_what_it_was_told_or_what_there_is(worker: Played) -> None:
    worker.ends(AgentEnd.GOODBYE)
    worker.run(attributes={"zone": "a", "hostname": "another"})
    told = worker.identities[0]
    assert (told.worker_id, told.capacity) == ("w1", SIZE)
    assert told.attributes["zone"] == "a"
    assert told.attributes["hostname"] == "another", "whoever runs it knows better than the host"
    assert (DISK_SIZE_ATTRIBUTE in told.attributes, told.attributes[LIMITS_ATTRIBUTE]) == (False, "soft: cpu")
    assert not worker.given["offer"].renew(0), "it stays as it was said"
    worker.run(capacity=None)
    found = worker.identities[1]
    assert found.capacity.cpu_millis >= 1
    assert found.attributes[DISK_SIZE_ATTRIBUTE].isdecimal()
    assert worker.given["offer"].capacity == found.capacity


def test_one_at_a_time_has_the_directory(worker: Played, capsys: pytest.CaptureFixture[str]) -> None:
    async def serve() -> AgentEnd:
        second.append(await asyncio.to_thread(worker.run))
        (worker.config.work_dir / lock).write_bytes(b"")
        second.append(await asyncio.to_thread(worker.run))
        return AgentEnd.GOODBYE

    second: list[int] = []
    lock = WorkPaths(worker.config.work_dir).lock.name
    (worker.config.work_dir).mkdir()
    (worker.config.work_dir / lock).write_text("12345678 of one that was killed")
    worker.serve = serve
    assert worker.run() == 0
    assert second == [0, 0]
    root = worker.config.work_dir
    assert capsys.readouterr().out.splitlines() == [
        f"worker is already running: process {os.getpid()} owns {root}",
        f"worker is already running: process unknown owns {root}",
    ]
    assert len(worker.guardians) == 1
    worker.ends(AgentEnd.GOODBYE)
    assert worker.run() == 0
    assert len(worker.guardians) == 2, "the lock goes with its holder"


@pytest.mark.parametrize("own", ["", "10.1.2.3"])
def test_tasks_are_told_the_address_of_their_host(worker: Played, monkeypatch: pytest.MonkeyPatch, own: str) -> None:
    monkeypatch.setenv(ACTOR_HOST_VARIABLE, own)
    monkeypatch.setattr(app, "source_address", lambda address: f"towards {address}")
    found: list[str] = []

    def environment(paths: Any, worker_id: str, base: Any, own_address: Callable[[str], str]) -> Any:
        found.append(own_address("c:1"))

    monkeypatch.setattr(app, "TaskEnvironment", environment)
    worker.ends(AgentEnd.GOODBYE)
    worker.run()
    assert found == [own or "towards c:1"]


def test_a_work_directory_that_others_can_write_to_is_refused(worker: Played) -> None:
    worker.config.work_dir.mkdir()
    worker.config.work_dir.chmod(0o777)
    with pytest.raises(Denied, match="work has mode 777, so others can write to it: name a new directory in it"):
        worker.run()
    assert worker.guardians == []
