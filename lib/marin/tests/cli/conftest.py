"""A storage root with runs and outputs in the executor's format, and a function that runs commands on it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marin.cli.context import CliContext
from marin.cli.main import run
from support.marin.recorded_runs import Done, RecordedStorage


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedStorage:
    root = tmp_path / "prefix"
    root.mkdir()
    monkeypatch.setenv("MARIN_PREFIX", str(root))
    return RecordedStorage(root)


@pytest.fixture
def marin(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def call(*words: str, context: CliContext | None = None) -> Done:
        capsys.readouterr()
        code = run(words, context)
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return call
