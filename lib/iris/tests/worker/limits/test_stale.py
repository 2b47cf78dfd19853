"""Groups of killed guardians are removed, and nobody else's; directories play them."""

import os
from pathlib import Path

import pytest

from iris.worker.limits.stale import is_alive, lock_group, remove_stale

DEAD, LIVING = 4711, 4712


def group(parent: Path, name: str, processes: str = "", below: str = "1") -> Path:
    """One with a group of an attempt. As in the kernel, its files are no obstacle to its removal: there are none."""
    (parent / name / below).mkdir(parents=True)
    if processes:
        (parent / name / below / "cgroup.procs").write_text(processes)
    return parent / name


def clear(parent: Path) -> list[str]:
    remove_stale(str(parent), lambda pid: pid == LIVING)
    return sorted(path.name for path in parent.iterdir())


def test_those_of_the_dead_go(tmp_path: Path) -> None:
    for name in ("0123abcd", "89abcdef"):
        group(tmp_path, f"iris-{name}-{DEAD}")
    assert remove_stale(str(tmp_path), lambda _: False) == 2
    assert list(tmp_path.iterdir()) == []


def test_those_of_the_living_and_of_others_stay(tmp_path: Path) -> None:
    names = [f"iris-0123abcd-{LIVING}", "iris-others", f"iris-0123abcd-{DEAD}-more", f"xiris-0123abcd-{DEAD}", "user"]
    for name in names:
        group(tmp_path, name)
    assert clear(tmp_path) == sorted(names)
    assert all((tmp_path / name / "1").is_dir() for name in names)


def test_one_with_a_process_stays_with_all_that_is_in_it(tmp_path: Path) -> None:
    place = group(tmp_path, f"iris-0123abcd-{DEAD}", processes="99\n")
    (place / "2").mkdir()
    assert clear(tmp_path) == [place.name]
    assert sorted(path.name for path in place.iterdir()) == ["1", "2"]


def test_one_that_is_locked_is_in_use_whatever_its_number_says(tmp_path: Path) -> None:
    """A guardian in another namespace of processes has a number that says nothing here."""
    place = group(tmp_path, f"iris-0123abcd-{DEAD}")
    descriptor = lock_group(str(place))
    assert descriptor is not None
    assert clear(tmp_path) == [place.name]
    os.close(descriptor)
    assert clear(tmp_path) == []


def test_one_of_another_user_stays(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    os.chown(group(tmp_path, f"iris-0123abcd-{DEAD}"), 65534, 65534)
    assert clear(tmp_path) == [f"iris-0123abcd-{DEAD}"]


def test_a_place_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert remove_stale(str(tmp_path / "none")) == 0
    assert is_alive(os.getpid())
    assert lock_group(str(tmp_path / "none")) is None
