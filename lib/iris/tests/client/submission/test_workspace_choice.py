"""Which folder goes along, where in it a command runs, and which folders never do."""

import subprocess
from pathlib import Path

import pytest

from iris.client.submission.workspace_choice import check_workspace_root, find_workspace, working_dir
from rigging.errors import InvalidRequest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


def test_a_plain_folder_is_its_own_workspace(home):
    folder = home / "exp" / "deep"
    folder.mkdir(parents=True)
    assert find_workspace(folder, environ={"HOME": str(home)}) == folder


@pytest.mark.parametrize("mark", ["pyproject.toml", ".git/HEAD"])
def test_a_project_or_repository_is_found_from_below(home, mark):
    (home / "proj" / mark).parent.mkdir(parents=True)
    (home / "proj" / mark).write_text("")
    below = home / "proj" / "a" / "b"
    below.mkdir(parents=True)
    assert find_workspace(below, environ={"HOME": str(home)}) == home / "proj"


@pytest.mark.parametrize("mark", ["pyproject.toml", ".git/HEAD"])
def test_what_lies_about_in_the_home_directory_does_not_make_it_the_project(home, mark):
    (home / mark).parent.mkdir(exist_ok=True)
    (home / mark).write_text("")
    (home / "exp").mkdir()
    assert find_workspace(home / "exp", environ={"HOME": str(home)}) == home / "exp"


@pytest.mark.parametrize("folder", ["/", "/tmp", "/usr", "/home", "/proc/self", "/dev"])
def test_folders_of_the_system_are_refused_with_the_ways_out(folder):
    if not Path(folder).is_dir():
        pytest.skip(f"no {folder} here")
    with pytest.raises(InvalidRequest, match=f"workspace {folder} is .*--workspace DIR.*--no-workspace"):
        check_workspace_root(Path(folder))


def test_home_what_is_above_it_and_the_temporary_directory_are_refused_but_not_what_is_below(home, tmp_path):
    for refused, words in ((home, "your home directory"), (tmp_path, "above your home directory")):
        with pytest.raises(InvalidRequest, match=words):
            check_workspace_root(refused, environ={"HOME": str(home)})
    (tmp_path / "pyproject.toml").write_text("")  # a project in which a build has its home
    check_workspace_root(tmp_path, environ={"HOME": str(home)})
    below = home / "scratch"
    below.mkdir()
    with pytest.raises(InvalidRequest, match="temporary files"):
        check_workspace_root(below, environ={"HOME": str(home), "TMPDIR": str(below)})
    check_workspace_root(below, environ={"HOME": str(home)})
    link = tmp_path / "link"
    link.symlink_to(home)
    with pytest.raises(InvalidRequest, match="your home directory"):
        check_workspace_root(link, environ={"HOME": str(home)})


def test_the_place_in_the_workspace_is_relative_also_through_links(tmp_path):
    root = tmp_path / "proj"
    (root / "a" / "b").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(root)
    assert working_dir(root / "a" / "b", root) == "a/b"
    assert working_dir(root, root) == ""
    assert working_dir(tmp_path, root) == ""
    assert working_dir(root / "a", link) == "a"


def test_git_subfolders_run_where_they_were_typed(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path / "repo")], check=True)
    (tmp_path / "repo" / "sub").mkdir()
    root = find_workspace(tmp_path / "repo" / "sub", environ={"HOME": "/nowhere"})
    assert (root, working_dir(tmp_path / "repo" / "sub", root)) == (tmp_path / "repo", "sub")
