"""Every change of a sealed directory is noticed, and a copy of a bundle is whole and can be written."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from iris.worker.isolation.seals import Seals, copy_tree


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    (made / "a" / "b").mkdir(parents=True)
    (made / "a" / "file").write_text("content")
    (made / "a" / "b" / "deep").write_text("deep")
    (made / "link").symlink_to("a/file")
    return made


# Others are in test_bundle_check, which finds them by the same look.
CHANGES: dict[str, Callable[[Path], object]] = {
    "written": lambda tree: (tree / "a" / "file").write_text("CONTENT"),
    "renamed": lambda tree: (tree / "a" / "file").rename(tree / "a" / "other"),
    "mode of a folder": lambda tree: (tree / "a" / "b").chmod(0o700),
    "mode of the whole": lambda tree: tree.chmod(0o700),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_breaks_the_seal(tree: Path, change: Callable[[Path], object]) -> None:
    seals = Seals()
    assert not seals.is_intact(tree), "what is not known counts as changed"
    seals.seal(tree)
    assert seals.is_intact(tree)
    (tree / "a" / "file").read_text()
    assert seals.is_intact(tree), "reading is no change"
    change(tree)
    assert not seals.is_intact(tree)
    seals.seal(tree)
    assert seals.is_intact(tree)


def test_what_is_gone_is_not_intact(tree: Path) -> None:
    seals = Seals()
    seals.seal(tree)
    tree.rename(tree.with_name("moved"))
    assert not seals.is_intact(tree)
    with pytest.raises(FileNotFoundError):
        seals.seal(tree)


def test_a_copy_has_all_of_it_and_its_owner_can_change_it(tree: Path, tmp_path: Path) -> None:
    script = tree / "a" / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o555)
    (tree / "a" / "file").chmod(0o444)
    (tree / "empty").touch()
    (tree / "large").write_bytes(data := os.urandom(5 * 2**20 + 3))
    os.utime(tree / "a" / "file", ns=(5, 1_000_000_007))
    copy_tree(tree, tmp_path / "copy")
    copy = tmp_path / "copy"
    assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*")) == [
        *("a", "a/b", "a/b/deep", "a/file", "a/run.sh", "empty", "large", "link"),
    ]
    assert (copy / "large").read_bytes() == data
    assert (copy / "a" / "file").read_text() == "content"
    assert (copy / "link").readlink() == Path("a/file")
    assert (copy / "a" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (copy / "a" / "file").stat().st_mode & 0o777 == 0o644
    assert (copy / "a" / "file").stat().st_mtime_ns == 1_000_000_007
    assert (copy / "a").stat().st_mode & 0o777 == 0o700
    (copy / "a" / "file").write_text("changed")
    assert (tree / "a" / "file").read_text() == "content"


def test_a_copy_that_fails_leaves_nothing(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "sendfile", full)
    with pytest.raises(OSError, match="No space left"):
        copy_tree(tree, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]
