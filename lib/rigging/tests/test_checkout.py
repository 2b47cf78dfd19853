import os
import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rigging.project import code_state
from rigging.project.checkout import git_commit
from rigging.project.code_state import CODE_VARIABLE, MOST_BYTES, RECORD_VARIABLE, CodeState, read_code_state

pytestmark = pytest.mark.process

# As they are before a test takes git from PATH.
GIT = shutil.which("git") or "git"
PATH = os.environ["PATH"]


@pytest.fixture(autouse=True)
def _no_settings_of_git(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    # Whoever runs the tests may sign commits, or trust every directory.
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture(params=["files", "git"])
def answered_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Who can say the commit: only the files, as git is not installed, or only git, as its search has a ceiling."""
    if request.param == "files":
        monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    else:
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", "/nowhere")
    return str(request.param)


def git(directory: Path, *words: str) -> str:
    command = [GIT, "-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "protocol.file.allow=always", *words]
    environment = {**os.environ, "PATH": PATH}
    result = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def new_checkout(directory: Path) -> Path:
    (directory / "deep" / "down").mkdir(parents=True)
    git(directory, "init", "--quiet")
    git(directory, "commit", "--quiet", "--allow-empty", "-m", "first")
    return directory


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return new_checkout(tmp_path / "checkout")


@pytest.mark.usefixtures("answered_by")
def test_a_branch_loose_packed_and_both_and_a_detached_head(checkout: Path) -> None:
    first = git(checkout, "rev-parse", "HEAD")
    assert git_commit(str(checkout / "deep" / "down")) == first
    git(checkout, "pack-refs", "--all")
    assert git_commit(str(checkout)) == first
    git(checkout, "commit", "--quiet", "--allow-empty", "-m", "second")
    assert git_commit(str(checkout)) == git(checkout, "rev-parse", "HEAD") != first
    git(checkout, "checkout", "--quiet", "--detach", first)
    assert git_commit(str(checkout)) == first


@pytest.mark.usefixtures("answered_by")
def test_a_linked_worktree_has_a_commit_of_its_own(checkout: Path) -> None:
    first = git(checkout, "rev-parse", "HEAD")
    git(checkout, "commit", "--quiet", "--allow-empty", "-m", "second")
    worktree = checkout.parent / "other"
    git(checkout, "worktree", "add", "--quiet", "-b", "other", "../other", first)
    assert git_commit(str(worktree)) == first
    git(checkout, "pack-refs", "--all")
    assert git_commit(str(worktree)) == first
    assert git_commit(str(checkout)) == git(checkout, "rev-parse", "HEAD") != first
    git(worktree, "checkout", "--quiet", "--detach")
    assert git_commit(str(worktree)) == first


@pytest.mark.usefixtures("answered_by")
def test_a_submodule_has_a_commit_of_its_own(checkout: Path, tmp_path: Path) -> None:
    library = new_checkout(tmp_path / "library")
    git(library, "commit", "--quiet", "--allow-empty", "-m", "the library's own")
    git(checkout, "submodule", "--quiet", "add", str(library), "library")
    commit = git(library, "rev-parse", "HEAD")
    assert commit != git(checkout, "rev-parse", "HEAD")
    assert git_commit(str(checkout / "library")) == commit
    git(checkout / "library", "checkout", "--quiet", "--detach", "HEAD~1")
    assert git_commit(str(checkout / "library")) == git(library, "rev-parse", "HEAD~1")


def test_anothers_checkout_has_a_commit_though_git_refuses(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Such as a checkout mounted in a container.
    commit = git(checkout, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(subprocess.CalledProcessError):
        git(checkout, "rev-parse", "HEAD")
    assert git_commit(str(checkout)) == commit


def test_git_is_asked_where_the_files_do_not_say_it_plainly(checkout: Path) -> None:
    branch = git(checkout, "symbolic-ref", "HEAD")
    git(checkout, "symbolic-ref", "refs/heads/alias", branch)
    git(checkout, "symbolic-ref", "HEAD", "refs/heads/alias")
    assert git_commit(str(checkout)) == git(checkout, "rev-parse", "HEAD")


def test_a_checkout_named_by_a_variable(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = new_checkout(tmp_path / "other")
    git(other, "commit", "--quiet", "--allow-empty", "-m", "second")
    commit = git(other, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert git_commit(str(checkout)) == commit


@pytest.mark.usefixtures("answered_by")
def test_without_a_commit_there_is_none(tmp_path: Path) -> None:
    assert git_commit(str(tmp_path)) is None
    assert git_commit(str(tmp_path / "missing")) is None
    git(tmp_path, "init", "--quiet")
    assert git_commit(str(tmp_path)) is None


def test_the_code_state_tells_what_no_commit_has(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "run.py").write_text("rate = 1\n")
    (checkout / "an old name.py").write_text("kept = 1\n" * 9)
    (checkout / ".gitignore").write_text("ignored.py\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "files")
    clean = read_code_state(str(checkout / "deep"), {})
    commit, branch = git(checkout, "rev-parse", "HEAD"), git(checkout, "branch", "--show-current")
    assert clean == CodeState(commit, branch, dirty=False)

    (checkout / "run.py").write_text("rate = 2\nHF_TOKEN = 'hf_abcDEF123456'\n")
    git(checkout, "mv", "an old name.py", "deep/a [new] name.py")
    for name in ("new.py", "ignored.py", ".env.py", "notes.txt"):
        (checkout / name).write_text("password = 'opensesame1'\n")
    (checkout / "big.py").write_text("x" * (MOST_BYTES + 1))
    dirty = read_code_state(str(checkout), {})
    assert (dirty.commit, dirty.branch, dirty.dirty, dirty.problem) == (commit, branch, True, None)
    assert "-rate = 1\n+rate = 2\n" in dirty.diff
    assert "rename from an old name.py\nrename to deep/a [new] name.py\n" in dirty.diff
    assert "abcDEF" not in dirty.diff
    assert dirty.untracked == {"new.py": "password = '[REDACTED]'\n"}
    [left_out] = dirty.left_out
    assert left_out.startswith("big.py: 1048577 bytes")
    digests = read_code_state(str(checkout), {RECORD_VARIABLE: "0"})
    assert (digests.digest, digests.diff, digests.untracked) == (dirty.digest, "", {})
    with monkeypatch.context() as names_are_too_long:
        names_are_too_long.setattr(code_state, "_CHUNK", 9)
        assert read_code_state(str(checkout), {}) == dirty

    # In a job, which has no checkout, or one of something else.
    handed = {CODE_VARIABLE: dirty.handed()}
    assert read_code_state(str(tmp_path), handed) == read_code_state(str(checkout / "deep"), handed)
    assert read_code_state(str(tmp_path), handed).untracked == dirty.untracked
    noise = "".join(random.Random(1).choices("0123456789abcdef", k=200_000))
    large = read_code_state(str(tmp_path), {CODE_VARIABLE: replace(dirty, diff=noise).handed()})
    assert (large.diff, large.digest) == ("", dirty.digest)
    assert "too long to send" in large.left_out[-1]
    (checkout / "new.py").write_text("password = 'opensesame2'\n")
    assert read_code_state(str(checkout), {}).digest != dirty.digest, "what is redacted counts"


def test_a_code_state_that_cannot_be_read_says_why(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_code_state(str(tmp_path), {CODE_VARIABLE: "damaged"}) == CodeState(problem="no git checkout")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    refused = read_code_state(str(checkout), {})
    assert refused.commit is not None
    assert refused.dirty is None
    assert "git: status failed: fatal: detected dubious ownership" in str(refused.problem)
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    assert str(read_code_state(str(checkout), {}).problem).startswith("git: ")
    # A git that hangs is left after a while.
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{PATH}")
    monkeypatch.setattr(code_state, "GIT_SECONDS", 0.05)
    assert read_code_state(str(checkout), {}).problem == "git: status took longer than 0.05 s"
