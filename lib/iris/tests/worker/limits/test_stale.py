"""Groups of killed guardians are removed, and nobody else's; directories play them."""

import os
from pathlib import Path

import pytest

from iris.worker.limits.stale import is_alive, lock_group, remove_stale

DEAD, LIVING = "iris-0123abcd-4711", "iris-0123abcd-4712"


def group(parent: Path, name: str = DEAD) -> Path:
    """One with a group of an attempt. As in the kernel, its files are no obstacle to its removal: there are none."""
    (parent / name / "1").mkdir(parents=True)
    return parent / name


def clear(parent: Path) -> list[str]:
    remove_stale(str(parent), lambda pid: pid == 4712)
    return sorted(path.name for path in parent.iterdir())


def test_those_of_the_dead_go_and_those_of_the_living_and_of_others_stay(tmp_path: Path) -> None:
    for name in (DEAD, "iris-89abcdef-4711"):
        group(tmp_path, name)
    assert remove_stale(str(tmp_path), lambda _: False) == 2
    assert clear(tmp_path) == []
    names = [LIVING, "iris-others", f"{DEAD}-more", f"x{DEAD}", "user"]
    for name in names:
        group(tmp_path, name)
    assert clear(tmp_path) == sorted(names)
    assert all((tmp_path / name / "1").is_dir() for name in names)
    assert remove_stale(str(tmp_path / "none")) == 0
    assert is_alive(os.getpid())


def test_one_with_a_process_stays_with_all_that_is_in_it(tmp_path: Path) -> None:
    place = group(tmp_path)
    (place / "1" / "cgroup.procs").write_text("99\n")
    (place / "2").mkdir()
    assert clear(tmp_path) == [DEAD]
    assert sorted(path.name for path in place.iterdir()) == ["1", "2"]


def test_one_that_is_locked_is_in_use_whatever_its_number_says(tmp_path: Path) -> None:
    """A guardian in another namespace of processes has a number that says nothing here."""
    descriptor = lock_group(str(group(tmp_path)))
    assert descriptor is not None
    assert clear(tmp_path) == [DEAD]
    os.close(descriptor)
    assert clear(tmp_path) == []
    assert lock_group(str(tmp_path / "none")) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_one_of_another_user_stays(tmp_path: Path) -> None:
    os.chown(group(tmp_path), 65534, 65534)
    assert clear(tmp_path) == [DEAD]
