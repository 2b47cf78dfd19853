"""Which folder goes along, where in it a command runs, and which folders never do."""

from pathlib import Path

import pytest

from iris.client.submission.workspace_choice import check_workspace_root, find_workspace, working_dir
from rigging.errors import InvalidRequest


@pytest.mark.parametrize("mark", ["pyproject.toml", ".git/HEAD", ""])
@pytest.mark.parametrize("at_home", [False, True])
def test_a_project_or_repository_is_found_from_below_but_not_in_the_home_directory(
    tmp_path: Path, mark: str, at_home: bool
) -> None:
    home, root = tmp_path / "home", tmp_path / "home" if at_home else tmp_path / "home/proj"
    below = root / "a/b"
    below.mkdir(parents=True)
    if mark:
        (root / mark).parent.mkdir(exist_ok=True)
        (root / mark).write_text("")
    expected = root if mark and not at_home else below
    assert find_workspace(below, environ={"HOME": str(home)}) == expected


def test_folders_that_are_no_project_are_refused_with_the_ways_out(tmp_path: Path) -> None:
    ways_out = "--workspace DIR.*--no-workspace"
    with pytest.raises(InvalidRequest, match=f"workspace /usr is .*{ways_out}"):
        check_workspace_root(Path("/usr"))
    for ask in (check_workspace_root, find_workspace):
        with pytest.raises(InvalidRequest, match=f"your home directory.*{ways_out}"):
            ask(tmp_path, environ={"HOME": str(tmp_path)})


def test_the_place_in_the_workspace_is_relative_also_through_links(tmp_path: Path) -> None:
    root, link = tmp_path / "proj", tmp_path / "link"
    (root / "a" / "b").mkdir(parents=True)
    link.symlink_to(root)
    places = [working_dir(here, root) for here in (root / "a" / "b", root, tmp_path)]
    assert places == ["a/b", "", ""]
    assert working_dir(root / "a", link) == "a"
