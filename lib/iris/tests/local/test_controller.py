"""What a local controller tells others of itself in cluster.json, played with a controller that only plays one."""

import asyncio
import contextlib
import dataclasses
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.testing.waiting import eventually
from iris.controller.app import Address, ControllerConfig
from iris.local import controller
from iris.local.controller import local_config, serve_local
from iris.local.settings import LocalSettings, write_settings
from iris.local.state import WORKER_ID, ClusterRecord, LocalPaths, held_lock, read_record, write_record
from iris.local.worker_keeper import WorkerStart
from iris.rpc.auth import PrincipalKind, load_or_create_secret, verify_token
from iris.rpc.protocol import PROTOCOL_VERSION
from iris.store.db import SchemaTooOld
from rigging.errors import Conflict, InvalidRequest, Unavailable

ADDRESS = Address("127.0.0.1", 4711)


class Played:
    """One controller: `play` is what it does; its callbacks are here meanwhile."""

    def __init__(self, paths: LocalPaths) -> None:
        self.paths = paths
        self.told: list[str] = []
        self.config: list[ControllerConfig] = []
        self.refuse: Exception | None = None
        self.play: Callable[[], Any] | None = None
        self.words = os.pipe()

    async def serve(
        self, config: ControllerConfig, listens: Any, stop: asyncio.Event, joined: Any, leaving: Any, trouble: Any
    ) -> None:
        self.config.append(config)
        self.joined, self.worker_trouble, self.stop = lambda: joined(WORKER_ID), trouble, stop
        if self.refuse is not None:
            refused, self.refuse = self.refuse, None
            raise refused
        listens(ADDRESS)
        if self.play is not None:
            await self.play()
        leaving()

    def run(self, play: Callable[[], Any] | None = None, idle_exit_s: float = 5.0, look_s: float = 0.01) -> None:
        self.play = play

        def ready() -> None:
            assert self.record.ready, "others read the file as soon as they hear of it"
            self.told.append("ready")

        serve_local(
            self.paths, idle_exit_s,
            first_worker=WorkerStart(os.dup(self.words[0]), 0), start_worker=lambda: pytest.fail("another worker"),
            on_listening=lambda: self.told.append("listening"), on_ready=ready, on_trouble=self.told.append,
            look_seconds=look_s, save_again_seconds=0.01,
        )  # fmt: skip

    @property
    def record(self) -> ClusterRecord:
        found = read_record(self.paths)
        assert found is not None
        return found


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    paths = LocalPaths(tmp_path)
    paths.worker_dir.mkdir()
    made = Played(paths)
    monkeypatch.setattr(controller, "serve", made.serve)
    monkeypatch.setattr(controller, "configure_logging", lambda level: None)
    yield made
    for descriptor in made.words:
        with contextlib.suppress(OSError):
            os.close(descriptor)


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(eventually, condition, "others can see it")


def test_the_record_tells_who_serves_where_and_gives_each_its_own_token(played: Played) -> None:
    async def play() -> None:
        record = played.record
        assert (record.pid, record.address) == (os.getpid(), "127.0.0.1:4711")
        assert (record.protocol_version, record.idle_exit_seconds, record.ready) == (PROTOCOL_VERSION, 5.0, False)
        secret = load_or_create_secret(played.paths.root / "secret")
        assert verify_token(secret, record.token).kind is PrincipalKind.ADMIN
        worker = verify_token(secret, record.worker_token)
        assert (worker.kind, worker.name) == (PrincipalKind.WORKER, WORKER_ID)

    played.run(play)
    assert played.told == ["listening"]
    assert not played.paths.record.exists(), "nobody is sent to a controller that has left"


def test_why_the_worker_does_not_start_is_in_the_record_until_it_does(played: Played) -> None:
    async def play() -> None:
        assert played.worker_trouble() == ""
        os.write(played.words[1], b"no room\n")
        os.close(played.words[1])
        await until(lambda: played.worker_trouble() != "")
        assert played.told[1:] == [f"no room (its log: {played.paths.worker_log})"]
        assert played.record.worker_trouble == played.worker_trouble() == played.told[1]
        with held_lock(played.paths.worker_lock, timeout=1):
            for _ in range(2):
                played.joined()
            assert (played.record.worker_trouble, played.record.ready) == ("", True)

    played.run(play)
    assert played.told[2:] == ["ready"], "once, however often its worker joins"


@pytest.mark.parametrize("damage", ["removed", "damaged", "another", "unreadable"])
def test_a_record_that_is_lost_is_written_again(played: Played, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    """Without it nobody finds a controller whose jobs run on."""
    written: list[ClusterRecord | None] = []

    def refuse(paths: LocalPaths) -> ClusterRecord | None:
        raise Unavailable("cannot read")

    async def play() -> None:
        record = played.record
        if damage == "unreadable":
            monkeypatch.setattr(controller, "read_record", refuse)
        for _ in range(2):  # it looks again and again
            if damage == "damaged":
                played.paths.record.write_text("{")
            elif damage == "another":
                write_record(played.paths, dataclasses.replace(record, address="127.0.0.1:1"))
            else:
                played.paths.record.unlink()
            await until(lambda: read_record(played.paths) == record)
            written.append(read_record(played.paths))

    played.run(play)
    assert len(written) == 2


def test_one_that_is_as_it_should_be_is_left_alone(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[ClusterRecord | None] = []
    monkeypatch.setattr(controller, "read_record", lambda paths: looks.append(read_record(paths)) or looks[-1])

    async def play() -> None:
        before = played.paths.record.stat()
        await until(lambda: len(looks) >= 4)
        assert played.paths.record.stat() == before

    played.run(play)


def test_on_a_full_disk_it_is_ready_as_soon_as_it_can_say_so(
    played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails = [True, True]

    def write(paths: LocalPaths, record: ClusterRecord) -> None:
        if record.ready and fails:
            fails.pop()
            raise OSError(28, "No space left on device")
        write_record(paths, record)

    monkeypatch.setattr(controller, "write_record", write)

    async def play() -> None:
        with held_lock(played.paths.worker_lock, timeout=1):
            played.joined()
            assert "ready" not in played.told
            await until(lambda: "ready" in played.told)

    played.run(play, look_s=100.0)
    assert f"cannot write {played.paths.record}: No space left on device" in caplog.text


@pytest.mark.parametrize(
    ("former", "refusal", "ports", "error"),
    [
        ("127.0.0.1:4000", "", [4000], ""),
        ("127.0.0.1:4000", "port 4000 is taken", [4000, 0], ""),
        ("a host without a port", "another controller uses the state directory", [0], "another controller"),
    ],
    ids=["free", "taken", "none"],
)
def test_it_comes_back_at_its_port(played: Played, former: str, refusal: str, ports: list[int], error: str) -> None:
    write_record(played.paths, ClusterRecord(1, former, "u", "w", PROTOCOL_VERSION, "0", 1, 0.0, True))
    played.refuse = Conflict(refusal) if refusal else None
    with pytest.raises(Conflict, match=error) if error else contextlib.nullcontext():
        played.run(idle_exit_s=7.0)
    assert [(config.port, config.idle_exit_s) for config in played.config] == [(port, 7.0) for port in ports]


def test_a_state_of_an_older_release_is_kept_aside(played: Played) -> None:
    database, log = played.paths.root / "iris.db", played.paths.root / "logs/ann/~0.0.log"
    database.write_bytes(b"older")
    log.parent.mkdir(parents=True)
    log.touch()
    played.refuse = SchemaTooOld("version 15")
    played.run()
    (aside,) = played.paths.root.glob("older-*")
    assert (aside / "iris.db").read_bytes() == b"older"
    assert (aside / "logs/ann/~0.0.log").exists()
    assert not log.exists()
    assert played.told == ["listening"]


def test_a_conflict_after_it_has_served_does_not_begin_a_second_life(played: Played) -> None:
    async def play() -> None:
        raise Conflict("deposed")

    write_record(played.paths, ClusterRecord(1, "127.0.0.1:4000", "u", "w", PROTOCOL_VERSION, "0", 1, 0.0, True))
    with pytest.raises(Conflict, match="deposed"):
        played.run(play)
    assert len(played.config) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_let_it_leave_in_order(played: Played, number: signal.Signals) -> None:
    async def play() -> None:
        assert not played.stop.is_set()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(played.stop.wait(), 20)

    played.run(play)
    assert played.stop.is_set()


def test_it_runs_as_the_cluster_was_last_told(tmp_path: Path) -> None:
    paths = LocalPaths(tmp_path)
    plain = local_config(paths, 4000, 3.0)
    assert (plain.state_dir, plain.port, plain.idle_exit_s, plain.remote_state_dir) == (tmp_path, 4000, 3.0, "")
    write_settings(paths, LocalSettings(remote_state_dir=str(tmp_path / "remote")))
    assert local_config(paths).remote_state_dir == str(tmp_path / "remote")
    write_settings(paths, LocalSettings(config=str(tmp_path / "gone.yaml")))
    with pytest.raises(InvalidRequest, match=r"gone\.yaml"):
        local_config(paths)
