"""What tasks leave is removed whatever its depth and modes, and nothing that it only points to."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from iris.worker.host.removal import move_away, remove_tree


def test_a_file_a_link_and_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("file", "link", "dangling", "none"):
        remove_tree(str(tmp_path / name))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "kept"]


def test_a_tree_deeper_than_paths_may_be_long(tmp_path: Path) -> None:
    start = os.open(".", os.O_RDONLY)
    try:
        os.chdir(tmp_path)
        for _ in range(60):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
    finally:
        os.fchdir(start)
        os.close(start)
    remove_tree(str(tmp_path / ("d" * 200)))
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_is_logged_and_the_rest_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("busy", "other"):
        (tmp_path / "tree" / name).mkdir(parents=True)
    rename, rmdir, renamed = os.rename, os.rmdir, set()

    def noting(path: str, target: str, **where: Any) -> None:
        if path.endswith("busy"):
            renamed.add(target)
        rename(path, target, **where)

    def refusing(path: str) -> None:
        if path in renamed:
            raise OSError(16, "Device or resource busy")
        rmdir(path)

    monkeypatch.setattr(os, "rename", noting)
    monkeypatch.setattr(os, "rmdir", refusing)
    with caplog.at_level(logging.WARNING):
        remove_tree(str(tmp_path / "tree"))
    (left,) = tmp_path.iterdir()
    assert {str(left)} == renamed
    assert f"{left} cannot be removed: " in caplog.text


def test_what_may_not_be_moved_as_it_is_gets_the_rights_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may move anything, so the refusal is played."""
    (tmp_path / "closed").mkdir(mode=0)
    (tmp_path / "link").symlink_to("closed")
    rename = os.rename

    def strict(path: str, target: str, **where: Any) -> None:
        if os.path.islink(path) or not os.stat(path).st_mode & 0o200:
            raise PermissionError(13, "Permission denied")
        rename(path, target, **where)

    monkeypatch.setattr(os, "rename", strict)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(PermissionError):
        move_away(str(tmp_path / "link"), str(tmp_path / "moved"))
    assert (tmp_path / "closed").stat().st_mode & 0o777 == 0, "what a link points to is left alone"
    move_away(str(tmp_path / "closed"), str(tmp_path / "moved"))
    assert (tmp_path / "moved").stat().st_mode & 0o777 == 0o700


def test_a_link_that_takes_a_directorys_place_while_that_is_moved_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another task of the same user may still have the directory open."""
    (tmp_path / "tree" / "folder").mkdir(parents=True)
    (tmp_path / "others").mkdir(mode=0o755)
    (tmp_path / "others" / "file").touch()
    rename = os.rename

    def swapping(path: str, target: str, **where: Any) -> None:
        (tmp_path / "tree" / "folder").rmdir()
        (tmp_path / "tree" / "folder").symlink_to(tmp_path / "others")
        rename(path, target, **where)

    monkeypatch.setattr(os, "rename", swapping)
    remove_tree(str(tmp_path / "tree"))
    assert [path.name for path in tmp_path.iterdir()] == ["others"]
    assert (tmp_path / "others").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "others" / "file").exists()
