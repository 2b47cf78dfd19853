"""Where a guardian is found, what it is told of its environment, and the log of its starts."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from iris.worker.guardian.launch import GuardianPaths, build_of, guardian_environment, launch
from iris.worker.isolation.plan import IsolationMode
from iris.worker.limits.plan import LimitsMode


def test_nothing_that_may_be_a_secret_reaches_it() -> None:
    names = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "LC_ALL", "PYTHONPATH", "COVERAGE_RC")
    kept = dict.fromkeys(names, "x")
    found = guardian_environment({**kept, "AWS_SECRET_ACCESS_KEY": "s", "MY_PATH": "m", "LC": "c"})
    assert found == kept


def test_another_code_has_another_name(tmp_path: Path) -> None:
    builds = []
    for name, text in (("a.py", "a = 1"), ("notes.txt", "x"), ("b.py", ""), ("a.py", "a = 2")):
        (tmp_path / name).write_text(text)
        builds.append(build_of(tmp_path))
    assert builds[0] == builds[1] == builds[2] != builds[3], "what adds nothing to the code changes nothing"


class Started:
    def __init__(self, argv: list[str], **options: Any) -> None:
        self.argv, self.options = argv, options
        options["stdout"].write(b"a start\n")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", Started)


@pytest.mark.usefixtures("played")
def test_it_has_a_session_of_its_own_and_a_scrubbed_environment(tmp_path: Path) -> None:
    started: Any = launch(GuardianPaths(tmp_path), ("nice",), 12.5, IsolationMode.COPY, LimitsMode.SOFT, 77)
    assert started.argv[0] == "nice"
    assert started.argv[2:] == [
        *("-m", "iris.worker.guardian", "--work-dir", str(tmp_path), "--linger", "12.5", "--isolation", "copy"),
        *("--limits", "soft", "--max-processes", "77"),
    ]
    assert (started.options["start_new_session"], started.options["cwd"]) == (True, "/")
    assert started.options["stdin"] == subprocess.DEVNULL
    assert started.options["env"] == guardian_environment(os.environ)


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
