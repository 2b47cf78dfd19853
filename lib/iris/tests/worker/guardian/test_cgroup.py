"""The guardian's own control group, with folders that stand in for the kernel's."""

import os
from pathlib import Path

import pytest

from iris.worker.guardian import cgroup, leftovers


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The group this process is in; new ones have the files that the kernel would make."""
    mount = tmp_path / "cgroup"
    own = mount / "box"
    own.mkdir(parents=True)
    (mount / "cgroup.controllers").write_text("")
    (own / "cgroup.procs").write_text("")
    read = Path.read_text

    def read_text(self: Path, *args: object, **kwargs: object) -> str:
        return "1:name=systemd:/x\n0::/box\n" if str(self) == "/proc/self/cgroup" else read(self)

    monkeypatch.setattr(Path, "read_text", read_text)
    return own


def enter(groups: Path, work: Path) -> Path | None:
    return cgroup.enter(work, (groups.parent.parent / "none", groups.parent))


def give_files(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let every new group have these files, as the kernel does."""
    mkdir = Path.mkdir

    def making(self: Path, *args: object, **kwargs: object) -> None:
        mkdir(self)
        for name in names:
            (self / name).write_text("")

    monkeypatch.setattr(Path, "mkdir", making)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


def test_it_enters_a_group_of_its_own_that_the_next_one_will_find(
    groups: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_files(monkeypatch, "cgroup.kill", "cgroup.procs")
    path = enter(groups, work)
    assert path is not None
    assert path.parent == groups
    assert path.name.endswith(f"-{os.getpid()}")
    assert (path / "cgroup.procs").read_text() == f"{os.getpid()}\n"
    assert (work / "guardian.cgroup").read_text() == f"{path}\n"


def test_two_work_directories_have_groups_of_different_names(
    groups: Path, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_files(monkeypatch, "cgroup.kill", "cgroup.procs")
    other = tmp_path / "other"
    os.mkdir(other)
    assert enter(groups, work) != enter(groups, other)


def test_without_a_way_to_kill_a_group_none_is_made(groups: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_files(monkeypatch)
    assert enter(groups, work) is None
    assert [path.name for path in groups.iterdir()] == ["cgroup.procs"], "and none is left behind"


def test_where_this_process_has_no_group_none_is_made(
    groups: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (groups / "cgroup.procs").unlink()
    assert enter(groups, work) is None
    assert cgroup.enter(work, ()) is None
    assert list(work.iterdir()) == []


def test_leaving_it_ends_what_is_left_there(groups: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_files(monkeypatch, "cgroup.kill", "cgroup.procs")
    path = enter(groups, work)
    assert path is not None
    cgroup.leave(path, work)
    assert (groups / "cgroup.procs").read_text() == f"{os.getpid()}\n", "it moves out first, or it would end itself"
    assert (path / "cgroup.kill").read_text() == "1\n"
    assert not (work / "guardian.cgroup").exists()


def test_one_that_cannot_leave_kills_nothing(groups: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_files(monkeypatch, "cgroup.kill", "cgroup.procs")
    path = enter(groups, work)
    assert path is not None
    (groups / "cgroup.procs").unlink()
    (groups / "cgroup.procs").mkdir()
    cgroup.leave(path, work)
    assert (path / "cgroup.kill").read_text() == ""
    assert (work / "guardian.cgroup").exists()


def test_what_a_former_guardian_left_is_ended(groups: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cgroup.kill_recorded(work)  # nothing was recorded
    give_files(monkeypatch, "cgroup.kill", "cgroup.procs")
    path = enter(groups, work)
    assert path is not None
    cgroup.kill_recorded(work)
    assert (path / "cgroup.kill").read_text() == "1\n"
    assert not (work / "guardian.cgroup").exists()


def test_a_guardian_that_begins_ends_the_group_and_the_processes_that_were_left(
    groups: Path, work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Either may know of some that the other does not: not all were born in the group, and not all have a mark."""
    left = [4711, 4712]
    monkeypatch.setattr(leftovers, "kill_leftovers", lambda work_dir: left if work_dir == work else [])
    give_files(monkeypatch, "cgroup.kill", "cgroup.procs")
    path = enter(groups, work)
    assert path is not None
    leftovers.end_leftovers(work)
    assert (path / "cgroup.kill").read_text() == "1\n"
    assert "killed 2 processes that a former guardian left behind: [4711, 4712]" in caplog.text
    caplog.clear()
    left.clear()
    leftovers.end_leftovers(work)
    assert caplog.text == "", "there was nothing"


def test_a_group_of_something_else_is_never_ended(groups: Path, work: Path) -> None:
    other = groups / "someone"
    other.mkdir()
    (other / "cgroup.kill").write_text("")
    (work / "guardian.cgroup").write_text(f"{other}\n")
    cgroup.kill_recorded(work)
    assert (other / "cgroup.kill").read_text() == ""
    assert not (work / "guardian.cgroup").exists()


def test_an_empty_group_goes(groups: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel lets a group be removed with its files; here they are taken out first."""
    give_files(monkeypatch, "cgroup.kill", "cgroup.procs")
    path = enter(groups, work)
    assert path is not None
    removed: list[Path] = []
    monkeypatch.setattr(cgroup, "remove_group", lambda name: removed.append(Path(name)) or True)
    cgroup.kill_recorded(work)
    assert removed == [path]
