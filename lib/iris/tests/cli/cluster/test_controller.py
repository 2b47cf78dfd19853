import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import ANY, call, create_autospec

import click
import pytest

from iris.cli.cluster.controller import parse_time, storage_lines
from iris.client import Checkpoint, ClusterStatus
from iris.local import standalone
from iris.local.standalone import Restored
from support.iris.cli import Client, Iris

NOW_MS = 1_700_000_000_000
STATUS = ClusterStatus("1.2", 2, 77, "/state", NOW_MS - 61_000, 0, 5, 6)
STORED = replace(STATUS, remote_state_dir="gs://b/s", durability="remote", generation=4)
REMOTE = replace(STORED, last_snapshot_at_ms=NOW_MS - 1000)


@pytest.fixture
def client() -> Client:
    client = Client()
    client.now_ms, client.cluster = NOW_MS, STATUS
    client.operator.checkpoint.return_value = Checkpoint("gs://b/s", 4, 123, NOW_MS + 5)
    return client


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What works on a state directory."""
    found = create_autospec(standalone)
    for name in ("restore_state", "serve_standalone"):
        monkeypatch.setattr(standalone, name, getattr(found, name))
    return found


def test_serving_says_where_and_hands_on_what_was_given(iris: Iris, controller: Any, tmp_path: Path) -> None:
    controller.serve_standalone.side_effect = lambda config, **given: given["on_ready"]("127.0.0.1:7", Path("/s/token"))
    said = "the controller serves on 127.0.0.1:7; your token is in /s/token\n"
    assert iris("cluster", "controller", "serve") == (0, "127.0.0.1:7\n", said)
    config = tmp_path / "c.yaml"
    config.write_text("")
    given = ("--state-dir", str(tmp_path), "--port", "0", "--remote-state-dir", "", "--durability", "local")
    iris("--config", str(config), "cluster", "controller", "serve", *given, "--insecure")
    nothing = {
        "state_dir": None,
        "port": None,
        "host": None,
        "remote_state_dir": None,
        "durability": None,
        "partition_patience_s": None,
    }
    said_of = {"state_dir": tmp_path, "port": 0, "remote_state_dir": "", "durability": "local", "insecure": True}
    assert controller.serve_standalone.mock_calls == [
        call(None, **nothing, insecure=False, on_ready=ANY),
        call(config, **{**nothing, **said_of}, on_ready=ANY),
    ]
    for port in ("-1", "65536"):
        assert iris("cluster", "controller", "serve", "--port", port)[0] == 2


def test_restoring_to_a_time(iris: Iris, controller: Any) -> None:
    def restore(*words: str) -> tuple[int, str, str]:
        return iris("cluster", "controller", "restore", *words)

    aside = Restored(Path("/s"), "gs://b/s", 17, Path("/s/aside"))
    controller.restore_state.side_effect = [replace(aside, moved_to=None), aside]
    said = "/s has the state of gs://b/s as of commit 17\n"
    assert restore("--at", str(NOW_MS / 1000)) == (0, "", said)
    moved = f"the previous database is in /s/aside\niris: {said}"
    assert restore("--remote-state-dir", "there", "--state-dir", "/s") == (0, "", moved)
    code, _, said = restore("--at", str(NOW_MS / 1000 + 0.01))
    assert (code, "the time is in the future" in said) == (2, True)
    assert controller.restore_state.mock_calls == [
        call(None, state_dir=None, remote_state_dir=None, at_ms=NOW_MS),
        call(None, state_dir=Path("/s"), remote_state_dir="there", at_ms=None),
    ]


def test_a_checkpoint_says_what_is_safe(iris: Iris, client: Client) -> None:
    code, out, _ = iris("cluster", "controller", "checkpoint")
    at = datetime.fromtimestamp((NOW_MS + 5) / 1000).astimezone().isoformat(timespec="milliseconds")
    assert (code, out) == (0, f"commit 123 of {at} is in gs://b/s\n")
    assert ".005" in at
    record = {"remote_state_dir": "gs://b/s", "generation": 4, "sequence": 123, "at_ms": NOW_MS + 5}
    assert json.loads(iris("cluster", "controller", "checkpoint", "--json")[1]) == record


def test_the_status_of_a_controller(iris: Iris, client: Client) -> None:
    assert iris("cluster", "controller", "status")[1].splitlines() == [
        "controller: 127.0.0.1:1 (iris 1.2, process 77, up 1 min 1 s)",
        "state:      /state",
        "remote:     none; the state is on this machine alone",
    ]
    found = json.loads(iris("cluster", "controller", "status", "--json")[1])
    assert (found["address"], found["state_dir"]) == ("127.0.0.1:1", "/state")
    client.cluster = REMOTE
    assert iris("cluster", "controller", "status")[1].splitlines()[2:] == storage_lines(REMOTE, NOW_MS)


def test_what_is_said_of_where_the_state_is() -> None:
    at = time.strftime("%H:%M:%S", time.localtime(NOW_MS / 1000 - 1))
    assert storage_lines(STATUS, NOW_MS) == []
    assert storage_lines(replace(STATUS, disk_warning="4 MB left"), NOW_MS) == ["disk:       4 MB left"]
    assert storage_lines(REMOTE, NOW_MS) == [
        f"remote:     gs://b/s (durability remote, up to date, last snapshot {at}, generation 4)"
    ]
    late = replace(REMOTE, unreplicated_commits=3, last_snapshot_at_ms=0, disk_warning="4 MB left")
    assert storage_lines(late, NOW_MS) == [
        "disk:       4 MB left",
        "remote:     gs://b/s (durability remote, 3 commits behind, no snapshot yet, generation 4)",
    ]


def test_times_are_seconds_or_iso_with_and_without_an_offset() -> None:
    assert parse_time("12.3456") == 12346
    assert parse_time("2026-11-21T07:30:00+01:00") == 1000 * int(datetime(2026, 11, 21, 6, 30, tzinfo=UTC).timestamp())
    local = datetime(2026, 11, 21, 7, 30, 0, 250_000).astimezone()
    assert parse_time("2026-11-21T07:30:00.25") == round(local.timestamp() * 1000)
    for wrong in ("yesterday", "inf", "nan", "2026-13-01"):
        with pytest.raises(click.UsageError, match=r"write e.g. .*, or Unix seconds"):
            parse_time(wrong)
