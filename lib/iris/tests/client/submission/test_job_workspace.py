import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iris.client.job_env import JobEnv
from iris.client.submission.job_workspace import JobWorkspace
from iris.domain.runtime import PackageSource, TaskRuntime
from rigging.errors import InvalidRequest

PARENT = JobEnv(
    "host:1", "/ann/j", "/ann/j/0", "/ann/j/0:0", "w", "/token",
    bundle_digest="d", runtime=TaskRuntime(python="3.9", packages=PackageSource.LOCK, working_dir="up"),
)  # fmt: skip


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def make(cluster: Any, told: list[str]) -> Callable[..., JobWorkspace]:
    def made(root: Path | None = None, parent: JobEnv | None = None, same_machine: bool = True) -> JobWorkspace:
        return JobWorkspace(
            cluster, root, parent,
            same_machine=same_machine, warn=told.append, notice=told.append, environ={"HOME": "/home/ann"},
        )  # fmt: skip

    return made


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project/sub").mkdir(parents=True)
    (tmp_path / "project/a.py").write_text("a")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "project"


def place(workspace: JobWorkspace, given: str | None = None, is_callable: bool = False) -> str:
    return workspace.runtime(is_callable=is_callable, working_dir=given, extras=()).working_dir


def test_all_jobs_of_a_client_share_what_was_sent_once(make: Any, root: Path, cluster: Any) -> None:
    """Files that are edited between two submits of one client do not make its jobs run on two programs."""
    workspace = make(root)
    assert workspace.bundle is None
    digest = workspace.bundle_digest()
    (root / "a.py").write_text("other")
    assert workspace.bundle_digest() == digest
    assert workspace.bundle is not None
    assert workspace.bundle.digest == digest
    assert len(cluster.looked_for) == 1
    assert make(root).bundle_digest() != digest


def test_without_a_workspace_nothing_is_sent(make: Any, cluster: Any) -> None:
    assert make().bundle_digest() == ""
    assert make().bundle is None
    assert make(parent=PARENT).bundle_digest() == "d"
    assert cluster.looked_for == []


@pytest.mark.parametrize("version", ["", "3.1\n"], ids=["one environment", "another Python for commands"])
def test_which_environment_is_used_is_told_once_although_commands_and_callables_use_it(
    make: Any, root: Path, told: list[str], version: str
) -> None:
    (root / ".python-version").write_text(version)
    workspace = make(root)
    for is_callable in (False, True, False, True):
        workspace.runtime(is_callable=is_callable, working_dir=None, extras=())
    asked = f"with Python 3.1, as {root / '.python-version'} requires: yours is"
    counts = [sum(words in line for line in told) for words in ("using your environment", asked)]
    assert counts == [1, bool(version)]


def test_a_project_whose_dependency_lies_beside_it_says_where_in_the_bundle_it_is(make: Any, root: Path) -> None:
    (root / "uv.lock").write_text(
        'version = 1\n[[package]]\nname = "mylib"\nversion = "1"\nsource = { directory = "../mylib" }\n'
    )
    (root / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "1"\n')
    (root.parent / "mylib").mkdir()
    (root.parent / "mylib/pyproject.toml").write_text("")
    runtime = make(root).runtime(is_callable=False, working_dir=None, extras=())
    assert runtime.project_dir == "project"


def test_extras_are_checked_for_every_job_not_for_the_first_alone(make: Any, root: Path) -> None:
    workspace = make(root)
    workspace.runtime(is_callable=False, working_dir=None, extras=())
    with pytest.raises(InvalidRequest, match="extra 'gpu'"):
        workspace.runtime(is_callable=False, working_dir=None, extras=("gpu",))


def test_commands_run_where_they_were_typed(make: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make(root)
    assert place(workspace) == "", "outside of the workspace"
    monkeypatch.chdir(root / "sub")
    assert place(workspace) == "sub", "where this process is now"
    assert place(workspace, "other") == "other"
    assert place(workspace, "") == ""
    with pytest.raises(InvalidRequest, match="working_dir"):
        place(workspace, "../x")
    monkeypatch.chdir(root)
    assert place(workspace) == ""


def test_a_process_whose_directory_was_removed_can_still_submit(make: Any, root: Path) -> None:
    (root / "gone").mkdir()
    os.chdir(root / "gone")
    (root / "gone").rmdir()
    assert place(make(root)) == ""


def test_a_directory_in_no_workspace_is_refused(make: Any, root: Path) -> None:
    with pytest.raises(InvalidRequest, match="working_dir 'sub': the job has no workspace"):
        place(make(), "sub")
    assert place(make(), "") == ""
    assert place(make()) == ""
    assert place(make(parent=PARENT), "sub") == "sub"
    assert place(make(parent=replace(PARENT, bundle_digest=""))) == "", "as there is no bundle to be in"


def test_a_job_of_a_job_runs_where_its_parent_is(make: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = replace(PARENT, workspace_dir=str(root))
    assert place(make(parent=inside)) == "up", "the parent has left its workspace: as the parent was started"
    assert place(make(parent=PARENT)) == "up", "nor is it known where that is"
    monkeypatch.chdir(root / "sub")
    assert place(make(parent=inside)) == "sub"
    assert place(make(root, parent=inside)) == "sub"


def test_a_job_of_a_job_has_its_parents_packages_and_a_callable_this_python(make: Any) -> None:
    workspace = make(parent=PARENT)
    command = workspace.runtime(is_callable=False, working_dir=None, extras=())
    assert command == PARENT.runtime
    there = workspace.runtime(is_callable=True, working_dir=None, extras=())
    here = ".".join(map(str, sys.version_info[:2]))
    assert there == replace(PARENT.runtime, python=here)
