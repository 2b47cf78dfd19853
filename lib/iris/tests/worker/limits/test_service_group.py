import os
from pathlib import Path

import pytest

from iris.worker.limits.plan import LimitsMode
from iris.worker.limits.probe import HostFiles, close_limits, open_limits
from iris.worker.limits.service_group import leave_service_group
from support.iris.control_groups import make_v2


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The group of a service, in a tree of version 2."""
    tree = tmp_path / "tree"
    make_v2(str(tree))
    make_v2(str(tree / "unit"))
    (tmp_path / "mounts").write_text(f"30 23 0:26 / {tree} rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "own").write_text("0::/unit\n")
    return tree / "unit"


def leave(tmp_path: Path) -> Path | None:
    return leave_service_group(tmp_path / "own", tmp_path / "mounts", make_v2)


def give(group: Path) -> None:
    """Mark a group as systemd does."""
    try:
        os.setxattr(group, "user.delegate", b"1")
    except OSError as error:
        pytest.skip(f"no attributes here: {error}")


def test_a_group_without_controllers_or_that_was_not_given_away_is_not_left(tmp_path: Path, unit: Path) -> None:
    assert leave(tmp_path) is None
    give(unit)
    (unit / "cgroup.controllers").write_text("\n")
    assert leave(tmp_path) is None
    assert not (unit / "worker").exists()


def test_the_worker_moves_below_and_its_tasks_get_groups_there(tmp_path: Path, unit: Path) -> None:
    give(unit)
    assert leave(tmp_path) == unit / "worker"
    assert (unit / "worker" / "cgroup.procs").read_text() == f"{os.getpid()}\n"
    (tmp_path / "own").write_text("0::/unit/worker\n")
    assert leave(tmp_path) is None, "once is enough"
    own = unit / "worker" / "iris-guardian"
    make_v2(str(own))
    work, limit = tmp_path / "work", tmp_path / "limit"
    work.mkdir()
    limit.write_text("1000\n")
    files = HostFiles(tmp_path / "own", tmp_path / "mounts", (limit,))
    ability = open_limits(work, LimitsMode.AUTO, own, files=files, make=make_v2)
    assert ability.groups is not None
    assert ability.groups.controllers == {"memory", "pids", "cpu"}
    assert (unit / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (unit / "worker" / "iris-others" / "cgroup.procs").read_text() == f"{os.getpid()}\n", "they go aside"
    close_limits(work, ability)


def test_a_leaf_that_is_closed_moves_nobody(tmp_path: Path, unit: Path, caplog: pytest.LogCaptureFixture) -> None:
    give(unit)
    (unit / "worker").mkdir()  # without the files of a group
    (unit / "worker" / "cgroup.procs").mkdir()
    assert leave(tmp_path) is None
    assert "limits are soft" in caplog.text
    assert leave_service_group(tmp_path / "none", tmp_path / "none") is None, "a host without /proc"
