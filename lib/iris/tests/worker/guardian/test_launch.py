"""Where a guardian is found, what it is told of its environment, and the log of its starts."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from iris.worker.guardian.launch import GuardianPaths, build_of, guardian_environment, launch
from iris.worker.isolation.plan import IsolationMode
from iris.worker.limits.plan import LimitsMode


def test_nothing_that_may_be_a_secret_reaches_it() -> None:
    kept = {
        "PATH": "p",
        "HOME": "h",
        "LANG": "l",
        "TZ": "z",
        "TMPDIR": "t",
        "LC_ALL": "C",
        "PYTHONPATH": "x",
        "COVERAGE_RC": "c",
    }
    found = guardian_environment({**kept, "AWS_SECRET_ACCESS_KEY": "s", "MY_PATH": "m", "LC": "c"})
    assert found == kept


def test_its_files_are_in_the_work_directory(tmp_path: Path) -> None:
    paths = GuardianPaths(tmp_path)
    assert {paths.socket.parent, paths.lock.parent, paths.log.parent} == {tmp_path}
    assert len({paths.socket, paths.lock, paths.log}) == 3


def test_its_socket_has_a_short_name_however_deep_it_lies(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    (deep / "guardian.sock").write_text("here")
    with GuardianPaths(deep).short_name() as name:
        assert len(name) < 107
        assert Path(name).read_text() == "here"
    assert not Path(name).exists(), "the directory is open no longer than that"


def test_another_code_has_another_name(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a = 1")
    (tmp_path / "notes.txt").write_text("x")
    first = build_of(tmp_path)
    assert build_of(tmp_path) == first
    (tmp_path / "notes.txt").write_text("y")
    assert build_of(tmp_path) == first
    (tmp_path / "b.py").write_text("")
    (tmp_path / "a.py").write_text("a = 2")
    assert build_of(tmp_path) != first


class Started:
    def __init__(self, argv: list[str], **options: Any) -> None:
        self.argv, self.options = argv, options
        options["stdout"].write(b"a start\n")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", Started)


@pytest.mark.usefixtures("played")
def test_it_is_started_in_a_session_of_its_own_with_a_scrubbed_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    started: Any = launch(GuardianPaths(tmp_path), ("nice",), 12.5, IsolationMode.COPY, LimitsMode.SOFT, 77)
    assert started.argv[0] == "nice"
    assert started.argv[2:] == [
        *("-m", "iris.worker.guardian", "--work-dir", str(tmp_path), "--linger", "12.5", "--isolation", "copy"),
        *("--limits", "soft", "--max-processes", "77"),
    ]
    assert (started.options["start_new_session"], started.options["cwd"]) == (True, "/")
    assert started.options["stdin"] == subprocess.DEVNULL
    assert "AWS_SECRET_ACCESS_KEY" not in started.options["env"]
    assert "PATH" in started.options["env"]


@pytest.mark.usefixtures("played")
def test_its_log_grows_and_is_put_aside_when_it_is_large(tmp_path: Path) -> None:
    paths = GuardianPaths(tmp_path)
    for _ in range(2):
        launch(paths)
    assert paths.log.read_bytes() == b"a start\n" * 2
    assert paths.log.stat().st_mode & 0o777 == 0o600
    paths.log.write_bytes(b"x" * 1024 * 1024)
    launch(paths)
    assert paths.log.stat().st_size > 1024 * 1024
    launch(paths)
    assert paths.log.read_bytes() == b"a start\n"
    assert (tmp_path / "guardian.log.old").stat().st_size == 1024 * 1024 + 8
