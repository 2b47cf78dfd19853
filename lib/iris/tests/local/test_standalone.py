import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iris.controller.app import Address, ControllerConfig
from iris.local import standalone
from iris.local.fresh_state import left_as_found
from iris.local.settings import LocalSettings, write_settings
from iris.local.standalone import Restored, restore_state, serve_standalone
from iris.local.state import LocalPaths
from iris.rpc.auth import PrincipalKind, load_or_create_secret, verify_token
from iris.store.db import lock
from iris.store.replicate.remote import RemoteState
from iris.store.replicate.rewind import Rewound
from iris.tls.certificates import read_authority
from iris.tls.pins import parse_token
from rigging.errors import Conflict, InvalidRequest, Unavailable


class Served:
    """The configs that were served; each controller answers and then waits for its signal."""

    def __init__(self) -> None:
        self.configs: list[ControllerConfig] = []
        self.fails: Callable[[ControllerConfig], None] | None = None

    async def serve(self, config: ControllerConfig, on_ready: Callable[[Address], None], stop: asyncio.Event) -> None:
        if self.fails is not None:
            self.fails(config)
        self.configs.append(config)
        on_ready(Address(config.host, 4711))
        os.kill(os.getpid(), (signal.SIGTERM, signal.SIGINT)[len(self.configs) % 2])
        await asyncio.wait_for(stop.wait(), 20)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    made = Served()
    monkeypatch.setattr(standalone, "serve", made.serve)
    monkeypatch.setattr(standalone, "configure_logging", lambda level: None)
    monkeypatch.setattr(standalone, "hide_own_environment", lambda storage: None)
    return made


def run(state_dir: Path, remote: Path | None = None, config: Path | None = None, **given: Any) -> tuple[str, Path]:
    """Serve once; the address, and the file with the admin's token."""
    told: list[tuple[str, Path]] = []
    serve_standalone(
        config, state_dir=state_dir, port=4000, remote_state_dir=None if remote is None else str(remote),
        durability=None, on_ready=lambda address, place: told.append((address, place)), **given,
    )  # fmt: skip
    return told[0]


def pin(*given: Any, **more: Any) -> str:
    """The digest that the admin's token pins."""
    return parse_token(run(*given, **more)[1].read_text()).ca_sha256


def test_it_serves_and_leaves_a_private_token(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "new/state"
    for _ in range(2):  # by SIGINT and by SIGTERM; the file of a former run is written anew
        address, place = run(state, tmp_path / "remote")
        assert (address, place) == ("127.0.0.1:4711", state / "user-token")
        assert verify_token(load_or_create_secret(state / "secret"), place.read_text()).kind is PrincipalKind.ADMIN
        assert place.stat().st_mode & 0o777 == 0o600
        place.chmod(0o644)
    assert state.stat().st_mode & 0o777 == 0o700
    assert {(config.state_dir, config.port, config.remote_state_dir) for config in served.configs} == {
        (state, 4000, str(tmp_path / "remote"))
    }
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


def test_a_place_that_takes_nothing_is_named(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match=r"cannot keep the state in .*/file/x \(--state-dir\): Not a directory"):
        run(tmp_path / "file/x")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # who runs the tests may be root
    with pytest.raises(InvalidRequest, match="Permission denied"):
        run(tmp_path)
    assert not served.configs


def test_one_that_never_served_leaves_nothing_half_made(served: Served, tmp_path: Path) -> None:
    def fail(config: ControllerConfig) -> None:
        (config.state_dir / "iris.db").write_bytes(b"half")
        (config.state_dir / "tls").mkdir()
        (config.state_dir / "tls" / "ca.pem").write_bytes(b"half")
        raise Unavailable("the port is taken")

    served.fails = fail
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


@pytest.mark.parametrize("why", ["another uses it", "clients know it"])
def test_what_others_may_use_stays(tmp_path: Path, why: str) -> None:
    state = tmp_path / "state"
    held: list[int] = []

    def lose() -> None:
        with left_as_found(state, lambda: why == "clients know it"):
            state.mkdir(exist_ok=True)
            if why == "another uses it":
                held.append(lock(state))
            (state / "iris.db").write_bytes(b"its own")
            raise Conflict("it was quicker")

    with pytest.raises(Conflict, match="it was quicker"):
        lose()
    assert (state / "iris.db").read_bytes() == b"its own"
    for descriptor in held:
        os.close(descriptor)


def test_a_state_is_restored_from_where_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def rewind(*given: Any) -> Rewound:
        asked.append(given[:3])
        return Rewound(7, tmp_path / "aside")

    monkeypatch.setattr(standalone, "rewind", rewind)
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "local"))
    (tmp_path / "local").mkdir()
    with pytest.raises(InvalidRequest, match="the source to restore from is missing"):
        restore_state(None, state_dir=None, remote_state_dir=None, at_ms=None)
    with pytest.raises(InvalidRequest, match="the source to restore from is missing"):
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


def test_beyond_loopback_there_is_tls_by_the_same_certificates_each_time(served: Served, tmp_path: Path) -> None:
    pins = {pin(tmp_path, host="0.0.0.0") for _ in range(2)}
    assert {config.ca_sha256 for config in served.configs} == pins
    assert len(pins) == 1
    assert served.configs[0].tls == served.configs[1].tls is not None
    own = tmp_path / "own"
    assert pin(own) == pin(own, host="127.0.0.2") == ""
    assert [config.tls for config in served.configs[2:]] == [None, None]
    assert not (own / "tls").exists()


def test_in_the_clear_only_when_told_so(served: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("controller: {host: 0.0.0.0, insecure: true, worker_lost_after: 8}\n")
    assert pin(tmp_path, host="0.0.0.0", insecure=True) == pin(tmp_path, config=file) == ""
    assert caplog.text.count("serving on 0.0.0.0 without encryption (--insecure)") == 2
    config = served.configs[1]
    assert (config.host, config.worker_timeout_s, config.heartbeat_interval_s) == ("0.0.0.0", 8, 2)
    file.write_text("controller: {worker_lost_after: 1}\n")
    with pytest.raises(InvalidRequest, match=r"worker_lost_after.*from 2 to 86400"):
        run(tmp_path, config=file)


def test_a_controller_that_lost_its_disk_has_the_same_authority(served: Served, tmp_path: Path) -> None:
    state, remote = tmp_path / "state", tmp_path / "remote"
    first = pin(state, remote, host="0.0.0.0")
    RemoteState(str(remote)).put_authority(read_authority(state))  # as the controller does once it leads
    shutil.rmtree(state)
    assert pin(state, remote, host="0.0.0.0") == first


GOOGLE = """
name: lab
platform: {{gcp: {{project_id: p}}}}
storage: {{remote_state_dir: "{remote}"}}
scale_groups:
  - {{name: cpus, cpu: 1, memory: 1GB, disk: 1GB, zone: z-b, slice_template: {{gcp: {{machine_type: n2}}}}}}
"""


@pytest.mark.parametrize(
    ("remote", "words"),
    [("", "machines at Google fetch iris from it"), ("gs://state/lab", "machines at Google cannot reach it: give")],
)
def test_machines_at_google_must_reach_the_release_and_the_controller(
    served: Served, tmp_path: Path, remote: str, words: str
) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(GOOGLE.format(remote=remote))
    with pytest.raises(InvalidRequest, match=words):
        run(tmp_path / "state", config=file)
    assert not (tmp_path / "state").exists()
