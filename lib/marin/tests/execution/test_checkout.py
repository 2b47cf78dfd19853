"""The commit that is checked out, by the checkout's files or by git."""

import subprocess
from pathlib import Path

import pytest

from marin.execution.checkout import git_commit


@pytest.fixture(autouse=True)
def _no_variables_of_git(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_CEILING_DIRECTORIES"):
        monkeypatch.delenv(name, raising=False)


def git(directory: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    directory = tmp_path / "checkout"
    (directory / "deep" / "down").mkdir(parents=True)
    git(directory, "init", "--quiet")
    git(directory, "commit", "--quiet", "--allow-empty", "-m", "first")
    return directory


@pytest.mark.parametrize("starts_git", [False, True])
def test_every_kind_of_checkout(checkout: Path, monkeypatch: pytest.MonkeyPatch, starts_git: bool) -> None:
    if starts_git:
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", "/nowhere")
    else:
        monkeypatch.setattr("marin.execution.checkout._commit_by_git", lambda _: pytest.fail("git was started"))
    first = git(checkout, "rev-parse", "HEAD")
    assert git_commit(str(checkout / "deep" / "down")) == first
    git(checkout, "pack-refs", "--all")
    assert git_commit(str(checkout)) == first
    git(checkout, "commit", "--quiet", "--allow-empty", "-m", "second")
    second = git(checkout, "rev-parse", "HEAD")
    assert second != first
    assert git_commit(str(checkout)) == second
    git(checkout, "worktree", "add", "--quiet", "-b", "other", "../other", first)
    assert git_commit(str(checkout.parent / "other")) == first
    git(checkout, "checkout", "--quiet", "--detach", first)
    assert git_commit(str(checkout)) == first


def test_without_a_commit_there_is_none(tmp_path: Path) -> None:
    assert git_commit(str(tmp_path)) is None
    assert git_commit(str(tmp_path / "missing")) is None
    git(tmp_path, "init", "--quiet")
    assert git_commit(str(tmp_path)) is None
