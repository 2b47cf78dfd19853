"""Helpers that experiments import."""

import datetime
from pathlib import Path

import pytest

from marin.utils import (
    fsspec_exists,
    fsspec_glob,
    fsspec_isdir,
    fsspec_mkdirs,
    fsspec_mtime,
    fsspec_size,
    gcs_file_exists,
    rebase_file_path,
)
from rigging.errors import InvalidRequest


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


def test_a_size_that_is_not_told_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sizeless:
        def size(self, path: str) -> None:
            return None

    monkeypatch.setattr("marin.utils.url_to_fs", lambda path: (Sizeless(), path))
    with pytest.raises(InvalidRequest, match=r"x://a: the .* filesystem does not report its size"):
        fsspec_size("x://a")
