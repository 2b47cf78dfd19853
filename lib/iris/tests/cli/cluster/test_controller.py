"""`iris cluster controller ...`: what is handed on, and what is said of what was done."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from iris.cli.cluster.controller import parse_time, storage_lines
from iris.cli.context import CliContext
from iris.cli.main import run
from iris.client import Checkpoint, ClusterStatus
from iris.local import standalone
from iris.local.standalone import Checked, Restored
from iris.store.salvage.salvage import Salvaged

NOW_MS = 1_700_000_000_000
STATUS = ClusterStatus("1.2", 2, 77, "/state", NOW_MS - 61_000, 0, 5, 6)
REMOTE = replace(
    STATUS, remote_state_dir="gs://b/s", durability="remote", last_snapshot_at_ms=NOW_MS - 1000, generation=4
)

Iris = Callable[..., tuple[int, str, str]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was asked of the functions that work on a state directory."""
    found: list[tuple[Any, ...]] = []

    def restore(config: Path | None, **options: Any) -> Restored:
        found.append((config, options))
        moved = Path("/s/aside") if options["remote_state_dir"] == "there" else None
        return Restored(Path("/s"), "gs://b/s", 17, moved)

    def salvage(config: Path | None, *, state_dir: Path | None, check_only: bool) -> Any:
        found.append((config, state_dir, check_only))
        if check_only:
            return Checked(Path("/s"), "a page is torn" if state_dir else "")
        return Salvaged("a page is torn", {"jobs": 3, "tasks": 5}, ("job /a/b is lost", "so is /a/c"), Path("/aside"))

    def serve(config: Path | None, *, on_ready: Callable[[str, Path], None], **options: Any) -> None:
        found.append((config, options))
        on_ready("127.0.0.1:7", Path("/s/user-token"))

    monkeypatch.setattr(standalone, "restore_state", restore)
    monkeypatch.setattr(standalone, "salvage_state", salvage)
    monkeypatch.setattr(standalone, "serve_standalone", serve)
    return found


@pytest.fixture
def client() -> SimpleNamespace:
    operator = SimpleNamespace(checkpoint=lambda: Checkpoint("gs://b/s", 4, 123, NOW_MS + 5))
    found = SimpleNamespace(address="h:1", status=STATUS, operator=operator)
    found.cluster_status = lambda: found.status

    return found


class Context(CliContext):
    """Commands reach the test's cluster at the test's time."""

    def __init__(self, reached: SimpleNamespace) -> None:
        super().__init__()
        self._reached = reached

    @contextlib.contextmanager
    def client(self, workspace: Path | None = None) -> Iterator[Any]:
        yield self._reached

    def now_ms(self) -> int:
        return NOW_MS


@pytest.fixture
def iris(client: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> Iris:
    def command(*words: str, first: tuple[str, ...] = ()) -> tuple[int, str, str]:
        code = run([*first, "cluster", "controller", *words], Context(client))
        written = capsys.readouterr()
        return code, written.out, written.err

    return command


def test_serving_says_where_and_hands_on_what_was_given(
    iris: Iris, asked: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    nothing = {"state_dir": None, "port": None, "host": None, "remote_state_dir": None, "durability": None}
    code, out, said = iris("serve")
    assert (code, out) == (0, "127.0.0.1:7\n")
    assert "your token is in /s/user-token" in said
    config = tmp_path / "c.yaml"
    config.write_text("")
    given = ("--state-dir", str(tmp_path), "--port", "0", "--remote-state-dir", "", "--durability", "local")
    iris("serve", *given, "--insecure", first=("--config", str(config)))
    rest = {"durability": "local", "insecure": True}
    assert asked == [
        (None, {**nothing, "insecure": False}),
        (
            config,
            {**nothing, "state_dir": tmp_path, "port": 0, "remote_state_dir": "", **rest},
        ),
    ]
    for port in ("-1", "65536"):
        assert iris("serve", "--port", port)[0] == 2


def test_restoring_to_a_time(iris: Iris, asked: list[tuple[Any, ...]], client: SimpleNamespace) -> None:
    code, out, said = iris("restore", "--at", str(NOW_MS / 1000))
    assert (code, out) == (0, "")
    assert said == "iris: /s has the state of gs://b/s as of commit 17\n"
    said = iris("restore", "--remote-state-dir", "there", "--state-dir", "/s")[2]
    assert said.splitlines()[0] == "iris: the database that was there is in /s/aside"
    assert [entry[1] for entry in asked] == [
        {"state_dir": None, "remote_state_dir": None, "at_ms": NOW_MS},
        {"state_dir": Path("/s"), "remote_state_dir": "there", "at_ms": None},
    ]
    code, _, said = iris("restore", "--at", str(NOW_MS / 1000 + 0.01))
    assert code == 2
    assert "that time has not come yet" in said
    assert len(asked) == 2


def test_salvage_and_its_check(iris: Iris, asked: list[tuple[Any, ...]]) -> None:
    assert iris("salvage", "--check") == (0, "", "iris: nothing is wrong with it\n")
    code, _, said = iris("salvage", "--check", "--state-dir", "/s")
    assert (code, said) == (1, "iris: the database in /s is damaged: a page is torn\n")
    code, out, said = iris("salvage")
    assert (code, out) == (0, "")
    assert said.splitlines() == [
        "iris: the database was damaged (a page is torn); the damaged files are in /aside",
        "iris: job /a/b is lost",
        "iris: so is /a/c",
        "iris: the new database has 3 jobs, 5 tasks",
    ]
    assert asked == [(None, None, True), (None, Path("/s"), True), (None, None, False)]


def test_a_checkpoint_says_what_is_safe(iris: Iris, client: SimpleNamespace) -> None:
    code, out, _ = iris("checkpoint")
    at = datetime.fromtimestamp((NOW_MS + 5) / 1000).astimezone().isoformat(timespec="milliseconds")
    assert (code, out) == (0, f"commit 123 of {at} is in gs://b/s\n")
    assert ".005" in at
    assert json.loads(iris("checkpoint", "--json")[1]) == {
        "remote_state_dir": "gs://b/s",
        "generation": 4,
        "sequence": 123,
        "at_ms": NOW_MS + 5,
    }


def test_the_status_of_a_controller(iris: Iris, client: SimpleNamespace) -> None:
    assert iris("status")[1].splitlines() == [
        "controller: h:1 (iris 1.2, process 77, up 1 min 1 s)",
        "state:      /state",
        "remote:     none; the state is on this machine alone",
    ]
    found = json.loads(iris("status", "--json")[1])
    assert (found["address"], found["state_dir"]) == ("h:1", "/state")
    client.status = REMOTE
    lines = iris("status")[1].splitlines()
    assert lines[2:] == storage_lines(REMOTE, NOW_MS)


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
