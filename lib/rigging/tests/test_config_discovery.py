from pathlib import Path

import pytest

from rigging.config_discovery import find_configs, find_project_root, list_cluster_configs, resolve_cluster_config
from rigging.errors import NotFound


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home, root = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    write(root / "pyproject.toml", "[tool.uv.workspace]\nmembers = []\n")
    write(root / "lib" / "a" / "pyproject.toml", "[project]\nname = 'a'\n")
    (root / "lib" / "a" / "src").mkdir()
    monkeypatch.chdir(root / "lib" / "a" / "src")
    return root


def test_the_workspace_wins_over_its_member(project: Path) -> None:
    assert find_project_root() == project
    assert find_project_root(project / "lib" / "a" / "src") == project


def test_a_plain_project_wins_over_the_repository_around_it(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    inner = tmp_path / "x" / "y"
    inner.mkdir(parents=True)
    assert find_project_root(inner) == tmp_path
    write(tmp_path / "x" / "pyproject.toml", "not [ toml")
    assert find_project_root(inner) == tmp_path / "x"
    assert find_project_root(write(inner / "script.py")) == tmp_path / "x"


def test_outside_any_project(tmp_path: Path) -> None:
    assert find_project_root(tmp_path) is None
    assert find_configs(["infra"], start=tmp_path) == {}


def test_configs_by_name_earlier_directory_wins(project: Path) -> None:
    first = write(project / "infra" / "clusters" / "tpu.yaml")
    write(project / "lib" / "iris" / "config" / "tpu.yaml")
    second = write(project / "lib" / "iris" / "config" / "local.yml")
    third = write(Path.home() / ".config" / "marin" / "clusters" / "mine.yaml")
    write(project / "infra" / "clusters" / "README.md")
    assert list_cluster_configs() == {"tpu": first, "local": second, "mine": third}
    assert resolve_cluster_config("tpu") == first
    assert resolve_cluster_config("local.yaml") == second


def test_what_has_a_folder_or_a_suffix_is_a_path_and_what_has_neither_is_a_name(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = write(project / "infra" / "clusters" / "tpu.yaml")
    mine = write(Path.home() / "folder" / "mine")
    here = tmp_path / "here"
    other, local = write(here / "tpu", "no config: whatever is called so in this directory"), write(here / "local.yaml")
    monkeypatch.chdir(here)
    assert resolve_cluster_config("tpu", start=project) == named
    assert resolve_cluster_config("local.yaml") == local
    assert resolve_cluster_config("~/folder/mine") == mine
    assert resolve_cluster_config(local) == local
    for path in (other, "./tpu", "../here/tpu"):
        assert resolve_cluster_config(path).samefile(other), "whatever it ends with"
    for path in ("elsewhere/tpu.yaml", "elsewhere/tpu"):
        with pytest.raises(
            NotFound, match=rf"no cluster config file '{path}'; did you mean 'tpu'.*known clusters: tpu"
        ):
            resolve_cluster_config(path, start=project)
    with pytest.raises(NotFound, match="no cluster named 'tpu2'"):
        resolve_cluster_config("tpu2", start=project)


def test_unknown_cluster_lists_the_known_ones(project: Path) -> None:
    with pytest.raises(NotFound, match="known clusters: none"):
        resolve_cluster_config("x")
    for name in ("us-central2", "europe"):
        write(project / "infra" / "clusters" / f"{name}.yaml")
    words = "no cluster named 'us-central1'; did you mean 'us-central2'.; known clusters: europe, us-central2$"
    with pytest.raises(NotFound, match=words):
        resolve_cluster_config("us-central1")
