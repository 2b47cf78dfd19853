"""Serving and restoring a state directory by itself: what is told, what is refused before anything is touched."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iris.controller.app import Address, ControllerConfig
from iris.local import standalone
from iris.local.fresh_state import left_as_found
from iris.local.settings import LocalSettings, write_settings
from iris.local.standalone import Checked, Restored, restore_state, salvage_state, serve_standalone
from iris.local.state import LocalPaths
from iris.rpc.auth import PrincipalKind, load_or_create_secret, verify_token
from iris.store.db import lock
from iris.store.replicate.rewind import Rewound
from rigging.errors import Conflict, InvalidRequest, NotFound, Unavailable


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> list[ControllerConfig]:
    """The configs that were served; each controller answers and then waits for its signal."""
    served: list[ControllerConfig] = []

    async def play(config: ControllerConfig, on_ready: Callable[[Address], None], stop: asyncio.Event) -> None:
        served.append(config)
        on_ready(Address("127.0.0.1", 4711))
        os.kill(os.getpid(), (signal.SIGTERM, signal.SIGINT)[len(served) % 2])
        await asyncio.wait_for(stop.wait(), 20)

    monkeypatch.setattr(standalone, "serve", play)
    monkeypatch.setattr(standalone, "configure_logging", lambda level: None)
    monkeypatch.setattr(standalone, "hide_own_environment", lambda storage: None)
    return served


def run(state_dir: Path, remote_state_dir: str | None = None) -> list[tuple[str, Path]]:
    told: list[tuple[str, Path]] = []
    serve_standalone(
        None, state_dir=state_dir, port=4000, remote_state_dir=remote_state_dir, durability=None,
        on_ready=lambda address, place: told.append((address, place)),
    )  # fmt: skip
    return told


def test_it_serves_what_it_is_told_and_leaves_its_users_token_in_a_private_file(
    serve: list[ControllerConfig], tmp_path: Path
) -> None:
    state = tmp_path / "new/state"
    for _ in range(2):  # by SIGINT and by SIGTERM; the file of a former run is written anew
        [(address, place)] = run(state, str(tmp_path / "remote"))
        assert (address, place) == ("127.0.0.1:4711", state / "user-token")
        assert verify_token(load_or_create_secret(state / "secret"), place.read_text()).kind is PrincipalKind.ADMIN
        assert place.stat().st_mode & 0o777 == 0o600
        place.chmod(0o644)
    assert state.stat().st_mode & 0o777 == 0o700
    assert {(config.state_dir, config.port, config.remote_state_dir) for config in serve} == {
        (state, 4000, str(tmp_path / "remote"))
    }


def test_the_users_token_is_private_before_it_is_written(
    serve: list[ControllerConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    write = Path.write_text

    def note(path: Path, text: str) -> int:
        modes.append(path.stat().st_mode & 0o777)
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", note)
    (tmp_path / ".user-token").write_bytes(b"left by one that was killed")
    run(tmp_path)  # a directory that others may read
    assert modes == [0o600]
    assert (tmp_path / "user-token").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / ".user-token").exists()


def test_a_place_that_cannot_be_written_is_named(
    serve: list[ControllerConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match=r"cannot keep the state in .*/file/x \(--state-dir\): Not a directory"):
        run(tmp_path / "file/x")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # who runs the tests may be root
    with pytest.raises(InvalidRequest, match="Permission denied"):
        run(tmp_path)
    assert not serve


def test_one_that_never_served_leaves_nothing_half_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(config: ControllerConfig, tell: Any, stop: asyncio.Event) -> None:
        del tell, stop
        (config.state_dir / "iris.db").write_bytes(b"half")
        (config.state_dir / "tls").mkdir()
        (config.state_dir / "tls" / "ca.pem").write_bytes(b"half")
        raise Unavailable("the port is taken")

    monkeypatch.setattr(standalone, "serve", fail)
    monkeypatch.setattr(standalone, "configure_logging", lambda level: None)
    monkeypatch.setattr(standalone, "hide_own_environment", lambda storage: None)
    empty, used = tmp_path / "empty", tmp_path / "used"
    for place in (empty, used):
        place.mkdir()
    (used / "mine").write_text("")
    for place in (empty, used, tmp_path / "new"):
        with pytest.raises(Unavailable, match="the port is taken"):
            run(place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "used"]
    assert list(empty.iterdir()) == []
    assert sorted(path.name for path in used.iterdir()) == ["iris.db", "mine", "tls"], "what was there is not ours"


def test_what_another_controller_has_come_to_use_stays(tmp_path: Path) -> None:
    state = tmp_path / "state"
    held: list[int] = []

    def lose() -> None:
        with left_as_found(state, lambda: False):
            held.append(lock(state))
            (state / "iris.db").write_bytes(b"its own")
            raise Conflict("it was quicker")

    with pytest.raises(Conflict, match="it was quicker"):
        lose()
    assert (state / "iris.db").read_bytes() == b"its own"
    os.close(held[0])


def test_what_clients_may_know_stays(tmp_path: Path) -> None:
    def break_down() -> None:
        with left_as_found(tmp_path / "state", lambda: True):
            (tmp_path / "state").mkdir()
            raise Unavailable("the disk broke later")

    with pytest.raises(Unavailable):
        break_down()
    assert (tmp_path / "state").is_dir()


def test_only_a_directory_that_is_there_is_salvaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Path] = []
    monkeypatch.setattr(standalone, "salvage", lambda directory: done.append(directory) or "salvaged")
    monkeypatch.setattr(standalone, "damage_of", lambda directory: "its head is torn")
    with pytest.raises(NotFound, match=r"there is no state directory .*/none"):
        salvage_state(None, state_dir=tmp_path / "none", check_only=False)
    assert salvage_state(None, state_dir=tmp_path, check_only=True) == Checked(tmp_path, "its head is torn")
    assert not done
    result: Any = salvage_state(None, state_dir=tmp_path, check_only=False)
    assert result == "salvaged"
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    assert salvage_state(None, state_dir=None, check_only=True) == Checked(tmp_path, "its head is torn")
    assert done == [tmp_path]


def test_a_state_is_restored_from_where_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def rewind(*given: Any) -> Rewound:
        asked.append(given[:3])
        return Rewound(7, tmp_path / "aside")

    monkeypatch.setattr(standalone, "rewind", rewind)
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "local"))
    (tmp_path / "local").mkdir()
    with pytest.raises(InvalidRequest, match="restore from where"):
        restore_state(None, state_dir=None, remote_state_dir=None, at_ms=None)
    with pytest.raises(InvalidRequest, match="restore from where"):
        restore_state(None, state_dir=tmp_path, remote_state_dir=None, at_ms=None)
    assert not asked
    write_settings(LocalPaths(tmp_path / "local"), LocalSettings(remote_state_dir="memory://kept"))
    for state_dir, given, place, remote in (
        (None, None, tmp_path / "local", "memory://kept"),
        (None, "memory://other", tmp_path / "local", "memory://other"),
        (tmp_path, "memory://other", tmp_path, "memory://other"),
    ):
        found = restore_state(None, state_dir=state_dir, remote_state_dir=given, at_ms=5)
        assert found == Restored(place, remote, 7, tmp_path / "aside")
        assert asked.pop() == (remote, place, 5)
