from collections.abc import Callable
from typing import Any

import pytest

from rigging.mirror import fs as mirror_fs
from rigging.mirror.__main__ import main
from rigging.mirror.local_copies import drop, removals, undelete
from rigging.mirror.prefetch import mirror_plan
from rigging.prefixes.removed import tombstone

# The conftest.py gives what runs on S3 pytest.mark.process.

STORES = ("local", "memory", "gcs", "s3", "disk")
THERE = {"d/a": b"a", "d/e/b": b"bb", "d/e/c": b"ccc"}


@pytest.fixture(params=STORES)
def regions(request: pytest.FixtureRequest, make_regions: Any) -> Any:
    made = make_regions(request.param, "local")
    for path, data in THERE.items():
        made.put(1, path, data)
    yield made
    assert {path: made.has(1, path) for path in made.files(1)} == THERE, "other regions are never written"


REMOVALS: dict[str, Callable[[Any], Any]] = {
    "rm_file": lambda fs: fs.rm_file("d/e/b"),
    "rm": lambda fs: fs.rm("d/e/b"),
    "pattern": lambda fs: fs.rm("d/e/b*"),
    "list": lambda fs: fs.rm(["mirror://d/e/b"]),
    "mv": lambda fs: fs.mv("d/e/b", "moved"),
    "delete": lambda fs: fs.delete("d/e/b"),
}


@pytest.mark.parametrize("is_here", [False, True], ids=["elsewhere", "here too"])
@pytest.mark.parametrize("how", REMOVALS)
def test_a_removed_file_is_gone_for_every_question(make_regions: Any, how: str, is_here: bool) -> None:
    regions = make_regions("local", "local")
    fs = regions.fs
    for path, data in THERE.items():
        regions.put(1, path, data)
    if is_here:
        fs.cat_file("d/e/b")
    REMOVALS[how](fs)
    assert not fs.exists("d/e/b")
    assert not fs.isfile("d/e/b")
    assert fs.find("d") == ["d/a", "d/e/c"]
    assert fs.ls("d/e", detail=False) == ["d/e/c"]
    assert fs.glob("d/e/*") == ["d/e/c"]
    assert fs.du("d") == 4
    for read in (fs.info, fs.cat_file, fs.open, fs.rm_file, fs.rm, fs.modified):
        with pytest.raises(FileNotFoundError):
            read("d/e/b")
    assert [file.path for file in mirror_plan("d").files] == ["d/a", "d/e/c"]
    assert fs.cat("d", recursive=True).keys() == {"d/a", "d/e/c"}
    assert not fs.exists(tombstone("d/e/b")) or tombstone("d/e/b") not in fs.find("")
    assert regions.has(1, "d/e/b") == b"bb"


def test_removals_hold_on_every_kind_of_storage_and_writing_ends_them(regions: Any) -> None:
    fs = regions.fs
    fs.cat_file("d/a")
    fs.rm("d", recursive=True)
    assert not fs.exists("d")
    assert fs.find("d") == []
    assert "d" not in fs.ls("", detail=False)
    for ask in (fs.ls, lambda path: mirror_plan("d/a")):
        with pytest.raises(FileNotFoundError):
            ask("d")
    with fs.open("d/a", "xb") as stream:
        stream.write(b"new")
    assert fs.cat_file("d/a") == b"new"
    assert fs.find("d") == ["d/a"]
    assert fs.ls("d", detail=False) == ["d/a"]
    with fs.open("d/e/b", "wb") as stream:
        stream.write(b"other")
    assert {path: fs.cat_file(path) for path in fs.find("d")} == {"d/a": b"new", "d/e/b": b"other"}
    assert [removal.path for removal in removals("")] == ["d/e/c"]


def test_reading_a_removed_file_says_who_removed_it_when_and_what_brings_it_back(regions: Any) -> None:
    regions.fs.rm_file("d/a")
    with pytest.raises(FileNotFoundError) as told:
        regions.fs.cat_file("d/a")
    assert "removed here at 20" in str(told.value)
    assert "@" in str(told.value)
    assert "python -m rigging.mirror --undelete d/a" in str(told.value)
    regions.fs.pipe_file("d/a", b"again")
    assert regions.fs.cat_file("d/a") == b"again"


def test_what_is_nowhere_is_not_found_and_what_is_only_here_leaves_no_tombstone(regions: Any) -> None:
    for path in ("no", "no*", "d/no"):
        with pytest.raises(FileNotFoundError):
            regions.fs.rm(path)
    regions.fs.pipe_file("mine", b"")
    regions.fs.rm("mine")
    assert regions.files(0) == []


def test_a_directory_is_removed_recursively_only(make_regions: Any) -> None:
    regions = make_regions("local", "local")
    regions.put(1, "d/a", b"a")
    with pytest.raises(IsADirectoryError, match="recursive=True"):
        regions.fs.rm("d")
    assert regions.fs.exists("d/a")


def test_a_tree_that_is_mostly_elsewhere_is_refused_before_anything_is_removed(
    make_regions: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never as a file that is not there: callers such as zarr take that for done."""
    regions = make_regions("local", "local")
    monkeypatch.setattr(mirror_fs, "MOST_REMOVED_ELSEWHERE", 2)
    for number in range(3):
        regions.put(1, f"d/{number}", b"")
    with pytest.raises(
        PermissionError, match=r"3 files below it are only in other regions, more than the 2 .*one by one"
    ):
        regions.fs.rm("d", recursive=True)
    assert len(regions.fs.find("d")) == 3
    regions.fs.cat_file("d/0")
    regions.fs.rm("d", recursive=True)
    assert not regions.fs.exists("d"), "what is here as well does not count"


def test_a_damaged_tombstone_still_counts(make_regions: Any) -> None:
    regions = make_regions("local", "local")
    regions.put(1, "d", b"")
    regions.put(0, tombstone("d"), b"\xff{")
    assert not regions.fs.exists("d")
    with pytest.raises(FileNotFoundError, match="unknown time by somebody"):
        regions.fs.cat_file("d")


def test_the_command_lists_and_revokes_removals(regions: Any, capsys: pytest.CaptureFixture[str]) -> None:
    regions.fs.rm("d/e", recursive=True)
    assert main(["--undelete", "--dry-run", "d"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in listed] == ["d/e/b", "d/e/c", "2 files would be visible again"]
    assert main(["--undelete", "d/e/b"]) == 0
    assert regions.fs.find("d") == ["d/a", "d/e/b"]
    assert [removal.path for removal in undelete("mirror://d")] == ["d/e/c"]
    assert regions.fs.cat_file("d/e/c") == b"ccc"
    assert main(["--undelete", "d"]) == 2
    assert "nothing at or below d was removed" in capsys.readouterr().err


def test_copies_are_dropped_without_a_tombstone_and_the_only_ones_are_kept(
    regions: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    fs = regions.fs
    fs.cat_file("d/e/b")
    fs.pipe({"d/a": b"changed", "d/mine": b"mine"})
    assert main(["--drop", "d", "--dry-run"]) == 0
    assert "1 files would be dropped" in capsys.readouterr().out
    plan = drop("d")
    assert (plan.files, set(plan.kept)) == ({"d/e/b": 2}, {"d/a", "d/mine"})
    assert regions.files(0) == ["d/a", "d/mine"]
    assert fs.cat_file("d/e/b") == b"bb", "it is copied again"
    with pytest.raises(SystemExit):
        main(["--drop", "d", "--budget-gb", "3"])
    assert main(["--drop", "nothing"]) == 2
