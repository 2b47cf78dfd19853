import linecache
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.client.errors import JobFailedError
from iris.client.source_lines import error_with_source
from iris.client.types import JobStatus
from iris.cluster.types import JobState

CELL = "/tmp/ipykernel_1/7.py"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "script.py"
    path.write_text("def work():\n    raise ValueError(1)\n")
    os.utime(path, (1000, 1000))
    module = types.ModuleType("script_of_test")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "script_of_test", module)
    monkeypatch.setitem(linecache.cache, CELL, (9, None, ["x = 1\n", "work()\n"], CELL))
    yield path
    linecache.checkcache(str(path))


def failed(*frames: str, submitted_at_ms: int = 2_000_000) -> JobStatus:
    return JobStatus("/a/b", JobState.FAILED, "\n".join(("ValueError: 1", *frames)), submitted_at_ms=submitted_at_ms)


def frame(path: object, number: int = 2) -> str:
    return f'  File "{path}", line {number}, in work'


def test_what_the_worker_lacks_comes_from_loaded_files_and_cells(script: Path) -> None:
    there = frame("/worker/there.py"), "    had_it()"
    status = failed(frame(script), *there, frame(CELL))
    expected = ["ValueError: 1", frame(script), "    raise ValueError(1)", *there, frame(CELL), "    work()"]
    assert error_with_source(status) == "\n".join(expected)
    assert str(JobFailedError(status)).endswith("\n    work()")
    at_once = failed(frame(script), submitted_at_ms=1_000_000)
    assert error_with_source(at_once).endswith("    raise ValueError(1)"), "written and submitted in one moment"


def test_other_files_later_ones_and_other_text_stay_as_they_are(script: Path, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("secret = 1\nsecret = 2\n")
    for status in (
        failed(frame(tmp_path / "other.py")),
        failed(frame(script), submitted_at_ms=999_000),
        failed(frame(script, 99)),
        failed('File "x", line 1', ""),
        JobStatus("/a/b", JobState.KILLED),
    ):
        assert error_with_source(status) == status.error
    script.unlink()
    assert error_with_source(failed(frame(script))) == failed(frame(script)).error
