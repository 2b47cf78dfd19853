"""`marin init`: the project that it makes runs and passes its own test, and nothing is overwritten."""

import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from iris.python_tools.uv import uv_program
from marin.cli.deciding.new_project import TEMPLATES, Installed, project_files, source_of
from marin.cli.main import run
from rigging.errors import InvalidRequest

FOLDER = {"url": "file:///home/ann/my%20marin", "dir_info": {"editable": True}}
WHEEL = {"url": "file:///wheels/marin-0.1.0-py3-none-any.whl", "archive_info": {}}
GIT = {"url": "https://example.org/marin", "vcs_info": {"vcs": "git", "commit_id": "0a1b"}, "subdirectory": "lib/marin"}


@pytest.mark.parametrize(
    ("direct_url", "source"),
    [
        (None, ""),
        (FOLDER, '{ path = "/home/ann/my marin", editable = true }'),
        (WHEEL, '{ path = "/wheels/marin-0.1.0-py3-none-any.whl" }'),
        (GIT, '{ git = "https://example.org/marin", rev = "0a1b", subdirectory = "lib/marin" }'),
        ({"url": "https://example.org/m.whl", "archive_info": {}}, '{ url = "https://example.org/m.whl" }'),
    ],
)
def test_marin_is_installed_as_it_was(direct_url: dict[str, Any] | None, source: str) -> None:
    libraries = [Installed("marin", "0.1.0", source_of(direct_url)), Installed("marin-iris", "0.1.0", "")]
    project = tomllib.loads(project_files("mine", "train", "", libraries)["pyproject.toml"])
    assert project["project"]["dependencies"] == ["marin[browser]==0.1.0", "numpy>=2"]
    sources = project["tool"]["uv"].get("sources", {})
    assert sources == ({"marin": tomllib.loads(f"x = {source}")["x"]} if source else {})


def test_a_folder_that_has_one_of_the_files_is_refused_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".gitignore").write_text("mine")
    assert run(["init", str(tmp_path)]) == 3
    assert f"{tmp_path} already has .gitignore" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [".gitignore"]


def test_a_project_needs_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("mine")
    for name, what in (("link", "a link to nothing"), ("file", "not a folder")):
        assert run(["init", str(tmp_path / name)]) == 3
        assert f"{tmp_path / name} is {what}; choose another folder" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


@pytest.mark.parametrize("name", ["experiments", ".vscode"])
def test_a_file_where_a_folder_belongs_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("nowhere")
    assert run(["init", str(tmp_path)]) == 3
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a b", "marin", "Marin_Fray"])
def test_a_name_that_no_project_may_have(name: str) -> None:
    libraries = [Installed("marin", "0.1.0"), Installed("marin-fray", "0.1.0")]
    with pytest.raises(InvalidRequest, match=f"project name '{name}'"):
        project_files(name, "first", "", libraries)


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("template", TEMPLATES)
def test_the_project_passes_its_test_and_runs(template: str, tmp_path: Path) -> None:
    place = tmp_path / "mine"
    assert run(["init", str(place), "--template", template]) == 0
    ours = ("VIRTUAL_ENV", "PYTHONPATH", "FRAY_CLIENT")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment["MARIN_PREFIX"] = str(tmp_path / "storage")
    for command in (["pytest", "-q"], ["python", "-m", "experiments.first"]):
        done = subprocess.run(
            [uv_program(), "run", *command], cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "run info" in done.stdout
