"""A controller beyond loopback: certificates made by themselves, tokens that pin them, plaintext only when told."""

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
from iris.local.standalone import serve_standalone
from iris.store.replicate.remote import RemoteState
from iris.tls.certificates import read_authority
from iris.tls.pins import parse_token
from rigging.errors import InvalidRequest


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ControllerConfig]:
    """The configs that were served; each controller answers and then waits for its signal."""
    found: list[ControllerConfig] = []

    async def play(config: ControllerConfig, on_ready: Callable[[Address], None], stop: asyncio.Event) -> None:
        found.append(config)
        on_ready(Address(config.host, 4711))
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), 20)

    monkeypatch.setattr(standalone, "serve", play)
    monkeypatch.setattr(standalone, "configure_logging", lambda level: None)
    monkeypatch.setattr(standalone, "hide_own_environment", lambda storage: None)
    return found


def run(state_dir: Path, config: Path | None = None, **given: Any) -> str:
    """Serve once; the digest that the admin's token pins."""
    told: list[Path] = []
    serve_standalone(
        config, state_dir=state_dir, port=4000, durability=None, on_ready=lambda _, place: told.append(place),
        **{"remote_state_dir": None, **given},
    )  # fmt: skip
    return parse_token(told[0].read_text()).ca_sha256


def test_beyond_loopback_there_is_tls_by_the_same_certificates_each_time(
    served: list[ControllerConfig], tmp_path: Path
) -> None:
    pins = {run(tmp_path, host="0.0.0.0") for _ in range(2)}
    assert {config.ca_sha256 for config in served} == pins
    assert len(pins) == 1
    assert served[0].tls == served[1].tls is not None


def test_on_loopback_there_is_none(served: list[ControllerConfig], tmp_path: Path) -> None:
    assert run(tmp_path) == run(tmp_path, host="127.0.0.2") == ""
    assert [config.tls for config in served] == [None, None]
    assert not (tmp_path / "tls").exists()


def test_in_the_clear_only_when_told_and_said_each_time(
    served: list[ControllerConfig], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("controller: {host: 0.0.0.0, insecure: true, worker_lost_after: 8}\n")
    assert run(tmp_path, host="0.0.0.0", insecure=True) == run(tmp_path, file) == ""
    assert caplog.text.count("serving on 0.0.0.0 without encryption (--insecure)") == 2
    assert (served[1].host, served[1].worker_timeout_s, served[1].heartbeat_interval_s) == ("0.0.0.0", 8, 2)
    file.write_text("controller: {worker_lost_after: 1}\n")
    with pytest.raises(InvalidRequest, match=r"worker_lost_after.*from 2 to 86400"):
        run(tmp_path, file)


def test_a_controller_that_lost_its_disk_has_the_same_authority(served: list[ControllerConfig], tmp_path: Path) -> None:
    state, remote = tmp_path / "state", tmp_path / "remote"
    first = run(state, host="0.0.0.0", remote_state_dir=str(remote))
    RemoteState(str(remote)).put_authority(read_authority(state))  # as the controller does once it leads
    shutil.rmtree(state)
    assert run(state, host="0.0.0.0", remote_state_dir=str(remote)) == first
