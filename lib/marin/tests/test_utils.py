"""Helpers that experiments import."""

import datetime
from pathlib import Path

import pytest

from marin import utils
from marin.utils import (
    fsspec_exists,
    fsspec_glob,
    fsspec_isdir,
    fsspec_mkdirs,
    fsspec_mtime,
    fsspec_size,
    gcs_file_exists,
    rebase_file_path,
    remove_tpu_lockfile_on_exit,
)
from rigging.errors import InvalidRequest


@pytest.fixture
def lockfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "libtpu_lockfile"
    monkeypatch.setattr(utils, "TPU_LOCKFILE", str(path))
    path.touch()
    return path


def test_the_lock_file_goes_in_each_form(lockfile: Path) -> None:
    @remove_tpu_lockfile_on_exit
    def bare(number: int) -> int:
        assert lockfile.exists()
        return number

    @remove_tpu_lockfile_on_exit()
    def called(number: int) -> int:
        assert lockfile.exists()
        return number

    for function in (bare, called, bare, called):
        lockfile.touch()
        assert function(3) == 3
        assert not lockfile.exists()
    assert bare.__name__ == "bare"

    lockfile.touch()
    with remove_tpu_lockfile_on_exit():
        assert lockfile.exists()
    assert not lockfile.exists()


def test_the_lock_file_goes_after_an_error_which_is_kept(lockfile: Path) -> None:
    with pytest.raises(KeyError, match="mine"), remove_tpu_lockfile_on_exit():
        raise KeyError("mine")
    assert not lockfile.exists()


def test_a_lock_file_that_stays_is_a_warning(lockfile: Path, caplog: pytest.LogCaptureFixture) -> None:
    lockfile.unlink()
    lockfile.mkdir()
    with remove_tpu_lockfile_on_exit():
        pass
    assert "look busy" in caplog.text


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_paths_of_a_filesystem(tmp_path: Path, scheme: str) -> None:
    root = f"{scheme}{tmp_path}"
    fsspec_mkdirs(f"{root}/a/b")
    fsspec_mkdirs(f"{root}/a/b")
    with pytest.raises(FileExistsError):
        fsspec_mkdirs(f"{root}/a/b", exist_ok=False)
    (tmp_path / "a" / "2.txt").write_text("two")
    (tmp_path / "a" / "1.txt").write_text("one")
    assert fsspec_isdir(f"{root}/a")
    assert not fsspec_isdir(f"{root}/a/1.txt")
    for exists in (fsspec_exists, gcs_file_exists):
        assert exists(f"{root}/a/1.txt")
        assert not exists(f"{root}/a/3.txt")
    assert fsspec_size(f"{root}/a/1.txt") == 3
    with pytest.raises(FileNotFoundError):
        fsspec_size(f"{root}/a/3.txt")
    assert fsspec_glob(f"{root}/a/*.txt") == [f"{root}/a/1.txt", f"{root}/a/2.txt"]
    age = datetime.datetime.now(datetime.UTC) - fsspec_mtime(f"{root}/a/1.txt")
    assert abs(age) < datetime.timedelta(minutes=5)


def test_rebasing() -> None:
    assert rebase_file_path("gs://in/d", "gs://in/d/x/y.jsonl.gz", "/out") == "/out/x/y.jsonl.gz"
    assert rebase_file_path("/in/", "/in/y.html", "/out/", ".md") == "/out/y.md"
    assert rebase_file_path("/in", "/in/y.jsonl.gz", "/out", ".parquet", ".jsonl.gz") == "/out/y.parquet"
    for arguments, reason in (
        (("/in", "/inside/y", "/out"), "is not below"),
        (("/in", "/in/y.txt", "/out", ".md", ".html"), "does not end in"),
        (("/in", "/in/y.txt", "/out", None, ".txt"), "needs a new_extension"),
    ):
        with pytest.raises(InvalidRequest, match=reason):
            rebase_file_path(*arguments)
