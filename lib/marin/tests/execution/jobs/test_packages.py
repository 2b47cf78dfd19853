from pathlib import Path

import pytest

from marin.execution.jobs.packages import DependencyGroups, split_dependency_groups
from rigging.errors import InvalidRequest


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[project.optional-dependencies]\nroot_extra = []\n[tool.uv.workspace]\n")
    member = tmp_path / "lib" / "marin"
    member.mkdir(parents=True)
    (member / "pyproject.toml").write_text("[project.optional-dependencies]\nmember_extra = []\n")
    return tmp_path


def test_extras_of_root_and_member(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["root-extra", "google-cloud-logging", "Member-Extra", "xxhash>=3"]
    groups = split_dependency_groups(names, project)
    assert groups == DependencyGroups(["root_extra", "member_extra"], ["google-cloud-logging", "xxhash>=3"])
    assert split_dependency_groups(["x"], project / "nothing") == DependencyGroups([], ["x"])
    monkeypatch.chdir(project / "lib" / "marin")
    assert split_dependency_groups(names) == groups, "of the workspace around it"


def test_extras_of_this_project() -> None:
    groups = split_dependency_groups(["rl", "tokenize_train", "quality_dedup_consolidate", "google-cloud-logging"])
    assert groups.pip_packages == ["google-cloud-logging"]
    assert groups.extras == ["rl", "tokenize_train", "quality_dedup_consolidate"]


def test_outside_of_a_workspace_the_nearest_project_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "inner" / "deep"
    inner.mkdir(parents=True)
    for folder, extra in ((tmp_path, "outer_extra"), (inner.parent, "inner_extra")):
        (folder / "pyproject.toml").write_text(f"[project.optional-dependencies]\n{extra} = []\n")
    monkeypatch.chdir(inner)
    groups = split_dependency_groups(["inner_extra", "outer_extra"])
    assert groups == DependencyGroups(["inner_extra"], ["outer_extra"])
    assert split_dependency_groups([]) == DependencyGroups([], [])


def test_what_is_neither_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="'numpy pandas' is not a package for pip"):
        split_dependency_groups(["rl", "numpy pandas"])
