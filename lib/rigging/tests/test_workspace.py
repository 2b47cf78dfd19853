"""Which files go along with a job, and which workspaces are refused."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from rigging.errors import InvalidRequest
from rigging.workspace import list_workspace


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "work space"
    root.mkdir()
    git(root, "init", "--quiet")
    return root


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=root, check=True)


def paths(root: Path) -> list[str]:
    return [file.path for file in list_workspace(root, environ={}).files]


def test_tracked_and_untracked_go_along_but_not_ignored_or_deleted(repository):
    for name in ("tracked.py", "gone.py", "new.py", "skip.log", "ümlaut \n.txt"):
        (repository / name).write_text(name)
    (repository / ".gitignore").write_text("*.log\n")
    git(repository, "add", "tracked.py", "gone.py")
    (repository / "gone.py").unlink()
    assert paths(repository) == sorted([".gitignore", "new.py", "tracked.py", "ümlaut \n.txt"])


def test_only_the_part_below_the_root_goes_along(repository):
    (repository / "sub").mkdir()
    (repository / "sub" / "a.py").write_text("")
    (repository / "b.py").write_text("")
    assert paths(repository / "sub") == ["a.py"]


def test_a_repository_inside_is_listed_by_its_own_rules(repository):
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    (inner / "x.py").write_text("")
    (inner / "y.log").write_text("")
    (inner / ".gitignore").write_text("*.log\n")
    assert paths(repository) == ["inner/.gitignore", "inner/x.py"]


def test_modes_and_symlinks_are_kept_and_links_that_leave_are_told(repository):
    (repository / "run.sh").write_text("#!/bin/sh\n")
    (repository / "run.sh").chmod(0o755)
    os.symlink("run.sh", repository / "link")
    os.symlink("../outside", repository / "away")
    os.symlink("/etc/hosts", repository / "absolute")
    listing = list_workspace(repository, environ={})
    assert {f.path: (f.executable, f.symlink_target) for f in listing.files} == {
        "run.sh": (True, None),
        "link": (False, "run.sh"),
    }
    assert sorted(warning.split()[1] for warning in listing.warnings) == ["absolute", "away"]


def test_without_git_the_usual_suspects_stay_behind(tmp_path):
    for name in ("a.py", "__pycache__/a.pyc", "env/pyvenv.cfg", "env/lib.py", "node_modules/x.js", "pkg/b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert paths(tmp_path) == ["a.py", "pkg/b.py"]


def test_a_workspace_too_large_is_refused_with_its_largest_paths_and_the_way_out(repository):
    (repository / "data").mkdir()
    for name, size in (("data/big.bin", 3 << 20), ("data/mid.bin", 1 << 20), ("small.py", 10)):
        with open(repository / name, "wb") as file:
            file.truncate(size)
    with pytest.raises(InvalidRequest) as refused:
        list_workspace(repository, environ={"MARIN_MAX_WORKSPACE_MB": "2"})
    text = str(refused.value)
    assert text.index("data/big.bin") < text.index("data/mid.bin")
    assert "3 MiB" in text
    assert ".gitignore" in text
    assert "MARIN_MAX_WORKSPACE_MB" in text
    assert list_workspace(repository, environ={"MARIN_MAX_WORKSPACE_MB": "5"}).files


@pytest.mark.parametrize("value", ["x", "0", "-3", "nan"])
def test_a_bad_limit_is_named(tmp_path, value):
    with pytest.raises(InvalidRequest, match="MARIN_MAX_WORKSPACE_MB"):
        list_workspace(tmp_path, environ={"MARIN_MAX_WORKSPACE_MB": value})


def test_files_that_look_like_secrets_stay_behind_unless_git_tracks_them(repository):
    for name in (".env", "app/.env.local", ".env.example", ".env.ci", "a.py", "id_rsa"):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text("")
    git(repository, "add", ".env.ci")
    listing = list_workspace(repository, environ={})
    assert [file.path for file in listing.files] == [".env.ci", ".env.example", "a.py", "id_rsa"]
    warned = {warning.split()[0]: "is left out" in warning for warning in listing.warnings}
    assert warned == {".env": True, "app/.env.local": True, ".env.ci": False, "id_rsa": False}


def test_a_workspace_that_is_no_directory_is_named(tmp_path):
    with pytest.raises(InvalidRequest, match="missing is not a directory"):
        list_workspace(tmp_path / "missing", environ={})


def test_a_plain_folder_goes_along_without_what_is_never_meant(tmp_path):
    for name in ("a.py", "data/x.csv", ".env", ".env.local", ".envrc", ".env.example", ".venv/lib.py", ".mypy_cache/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert paths(tmp_path) == [".env.example", "a.py", "data/x.csv"]


def test_what_is_no_file_is_named_and_nothing_hangs(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(tmp_path)  # a socket's path must be short
        listening.bind("sock")
        listing = list_workspace(tmp_path, environ={})
    assert [file.path for file in listing.files] == ["a.py"]
    assert sorted(warning.split()[0] for warning in listing.warnings) == ["pipe", "sock"]


def test_a_folder_that_the_repository_around_it_ignores_is_a_plain_folder(repository):
    (repository / ".gitignore").write_text("scratch/\n")
    (repository / "scratch").mkdir()
    (repository / "scratch" / "a.py").write_text("")
    assert paths(repository / "scratch") == ["a.py"]


def test_too_many_files_are_refused_with_the_folders_that_hold_them(tmp_path):
    for number in range(30):
        (tmp_path / f"d{number % 3}").mkdir(exist_ok=True)
        (tmp_path / f"d{number % 3}" / str(number)).write_text("")
    with pytest.raises(InvalidRequest, match=r"more than 20 files.*at most 20 files.*\n +\d+ files in d\d"):
        list_workspace(tmp_path, environ={}, max_files=20)
    assert len(list_workspace(tmp_path, environ={}, max_files=30).files) == 30


def test_the_search_for_the_largest_ends_when_it_takes_long(tmp_path):
    for number in range(10):
        with open(tmp_path / f"f{number}", "wb") as file:
            file.truncate(1 << 20)
    clock = iter(range(0, 1000, 1))
    with pytest.raises(InvalidRequest, match=r"more than \d MiB in more than \d files, at most 1 MiB"):
        list_workspace(tmp_path, environ={"MARIN_MAX_WORKSPACE_MB": "1"}, now=lambda: next(clock))
