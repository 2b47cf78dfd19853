from pathlib import Path

import pytest

from iris.worker.isolation.layers import make_layer, remove_unused_layers


def used_once(directory: Path, name: str) -> Path:
    """A layer as the kernel leaves it after a mount with the option "volatile"; its upper directory."""
    upper, work = make_layer(str(directory / name))
    mark = Path(work, "work", "incompat", "volatile")
    mark.mkdir(parents=True)
    (mark / "dirty").touch()
    Path(work, "work").chmod(0)
    return Path(upper)


def test_layers_in_which_nothing_was_written_are_removed_at_once(tmp_path: Path) -> None:
    directory = tmp_path / "layers"
    directory.mkdir()
    used_once(directory, "bundle")
    used_once(directory, "environment")
    assert remove_unused_layers(str(directory))
    assert not directory.exists()
    assert remove_unused_layers(str(directory)), "there may be none"


@pytest.mark.parametrize("name", ["file", "folder/file"])
def test_what_was_written_is_left_for_a_slower_way(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "layers"
    directory.mkdir()
    written = used_once(directory, "bundle") / name
    written.parent.mkdir(exist_ok=True)
    written.touch()
    assert not remove_unused_layers(str(directory))
    assert directory.exists()


def test_what_the_worker_has_put_there_is_the_attempts_from_the_beginning(tmp_path: Path) -> None:
    (tmp_path / "bundle" / "empty").mkdir(parents=True)
    upper, work = make_layer(str(tmp_path / "bundle"))
    assert (upper, work) == (str(tmp_path / "bundle"), str(tmp_path / "bundle.work"))
    assert (Path(upper) / "empty").is_dir()
    again, other = make_layer(str(tmp_path / "bundle"))
    assert other == f"{again}.work"
    assert len({upper, work, again, other}) == 4, "a layer is not used for a second mount"
    assert Path(again).is_dir()
    assert Path(other).is_dir()
    assert list(Path(again).iterdir()) == [], "a start that was given up may have left something in the first"
