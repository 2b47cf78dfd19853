"""What a host allows is found out by trying; what it does not is said, with the reason."""

import os
import subprocess
from pathlib import Path

import pytest

from iris.worker.limits.plan import LimitRequest, LimitsMode
from iris.worker.limits.probe import HostFiles, close_limits, open_limits
from support.iris.control_groups import make_v1, make_v2


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def host(tmp_path: Path, own: str, mounts: str) -> HostFiles:
    for name, text in (("own", own), ("mounts", mounts), ("pid_max", "4000\n")):
        (tmp_path / name).write_text(text)
    return HostFiles(tmp_path / "own", tmp_path / "mounts", (tmp_path / "pid_max",))


@pytest.fixture
def files(tmp_path: Path) -> HostFiles:
    """A host with two trees of version 1."""
    mounts = ""
    for number, name in enumerate(("memory", "pids")):
        make_v1(str(tmp_path / name))
        mounts += f"31 25 0:2{number} / {tmp_path}/{name} rw - cgroup cgroup rw,{name}\n"
    return host(tmp_path, "4:memory:/\n5:pids:/\n", mounts)


def test_trees_of_version_1_are_used_and_what_they_lack_is_said(tmp_path: Path, work: Path, files: HostFiles) -> None:
    (tmp_path / "pids" / "pids.max").write_text("2000\n")
    ability = open_limits(work, LimitsMode.AUTO, files=files, make=make_v1)
    assert ability.groups is not None
    assert ability.groups.controllers == {"memory", "pids"}
    assert (ability.why_soft("memory"), str(ability)) == ("", "soft: cpu")
    assert ability.why_soft("cpu") == "no tree of control groups has the controller"
    assert ability.processes == 1500, "three quarters of what the host, or the own group, allows"


def test_a_tree_that_cannot_be_written_is_not_used(work: Path, files: HostFiles) -> None:
    def refuse(path: str) -> None:
        if "/memory/" in path:
            raise PermissionError(13, "Permission denied")
        make_v1(path)

    ability = open_limits(work, LimitsMode.AUTO, files=files, make=refuse)
    assert ability.groups is not None
    assert ability.groups.controllers == {"pids"}
    assert "memory: Permission denied" in ability.why_soft("memory")


def test_a_host_without_groups(tmp_path: Path, work: Path) -> None:
    ability = open_limits(work, LimitsMode.AUTO, files=host(tmp_path, "", ""))
    assert ability.groups is None
    assert ability.why_soft("memory") == "no control groups are mounted"
    ability = open_limits(work, LimitsMode.AUTO, files=HostFiles(tmp_path / "none", tmp_path / "none", ()))
    assert "does not list its control groups" in ability.why_soft("memory")
    assert ability.processes > 0


def test_nothing_is_made_where_limits_are_soft_or_off(work: Path, files: HostFiles) -> None:
    soft = open_limits(work, LimitsMode.SOFT, processes=7, files=files)
    assert (soft.groups, soft.processes, str(soft)) == (None, 7, "soft: memory, processes, cpu")
    assert soft.why_soft("processes") == "soft limits are configured"
    off = open_limits(work, LimitsMode.OFF, processes=7, files=files)
    assert (off.groups, off.processes, off.missing, str(off)) == (None, 0, (), "off")


def host_v2(tmp_path: Path, control: str = "", procs: str = "") -> tuple[HostFiles, Path]:
    """A service's group, in which the guardian has made one for itself."""
    tree = tmp_path / "tree"
    make_v2(str(tree))
    make_v2(str(tree / "unit"))
    make_v2(str(tree / "unit" / "own"))
    (tree / "unit" / "cgroup.subtree_control").write_text(control)
    (tree / "unit" / "cgroup.procs").write_text(procs)
    mounts = f"30 23 0:26 / {tree} rw - cgroup2 cgroup2 rw\n"
    return host(tmp_path, "0::/unit\n", mounts), tree / "unit" / "own"


def test_version_2_gets_its_controllers_enabled_and_the_guardian_goes_below(tmp_path: Path, work: Path) -> None:
    files, own = host_v2(tmp_path)
    ability = open_limits(work, LimitsMode.AUTO, own, files=files, make=make_v2)
    assert ability.groups is not None
    assert ability.groups.controllers == {"memory", "pids", "cpu"}
    assert (own.parent / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (own / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (own / "guardian" / "cgroup.procs").read_text().strip() in (str(os.getpid()), "0" + str(os.getpid())[1:])
    group = ability.groups.take(LimitRequest(memory_bytes=5))
    ability.groups.hold(group)
    assert (own / group.name / "memory.max").read_text() == "5ax", "written over what was there"


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's own group is its own to divide")
def test_processes_of_others_are_not_moved_about_in_a_group_that_is_not_the_workers(tmp_path: Path, work: Path) -> None:
    files, own = host_v2(tmp_path, procs="1\n2\n")
    ability = open_limits(work, LimitsMode.AUTO, own, files=files, make=make_v2)
    assert ability.groups is None
    assert "Delegate=yes" in ability.why_soft("memory")
    assert not (own.parent / "iris-others").exists()


def test_controllers_that_are_enabled_are_used_as_they_are(tmp_path: Path, work: Path) -> None:
    files, own = host_v2(tmp_path, control="cpu memory pids", procs="")
    assert open_limits(work, LimitsMode.AUTO, own, files=files, make=make_v2).groups is not None
    assert (own.parent / "cgroup.subtree_control").read_text() == "cpu memory pids"


@pytest.mark.process
def test_groups_that_a_guardian_left_behind_are_removed_by_the_next_one(work: Path) -> None:
    first = open_limits(work, LimitsMode.AUTO)
    if first.groups is None:
        pytest.skip(f"no groups can be made here: {first.missing}")
    kept = work / "guardian.groups"
    bases = kept.read_text().splitlines()
    group = first.groups.take(LimitRequest())
    left = subprocess.Popen(["sleep", "600"])
    Path(bases[0], group.name, "cgroup.procs").write_text(str(left.pid))
    # As if it had been killed: it removes nothing.
    assert all(Path(base, group.name).is_dir() for base in bases)
    kept.write_text(kept.read_text() + "/sys/fs/cgroup/of-somebody-else\n")
    try:
        open_limits(work, LimitsMode.OFF)
        assert left.wait(10) == -9, "what was in it is ended"
    finally:
        left.kill()
        open_limits(work, LimitsMode.OFF)
        for path in (path for base in bases for path in (Path(base, group.name), Path(base)) if path.is_dir()):
            path.rmdir()
        first.groups.close()


def test_it_leaves_nothing_behind_when_it_ends_in_order(work: Path) -> None:
    ability = open_limits(work, LimitsMode.AUTO)
    if ability.groups is None:
        pytest.skip(f"no groups can be made here: {ability.missing}")
    bases = (work / "guardian.groups").read_text().splitlines()
    group = ability.groups.take(LimitRequest(memory_bytes=1 << 30))
    with ability.groups.inside(group):
        pass
    ability.groups.hold(group)
    ability.groups.end(group)
    close_limits(work, ability)
    assert [base for base in bases if Path(base).exists()] == []
