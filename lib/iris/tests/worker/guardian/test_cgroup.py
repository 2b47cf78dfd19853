"""The guardian's own control group, with folders that stand in for the kernel's."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from iris.worker.strays import cgroup, leftovers

FILES = ("cgroup.kill", "cgroup.procs")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The group this process is in."""
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


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def enter(groups: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path | None]:
    """Enters a new group, which has these files, as the kernel would make them."""
    mkdir = Path.mkdir

    def enter(work: Path, files: tuple[str, ...] = FILES) -> Path | None:
        def making(self: Path, *args: object, **kwargs: object) -> None:
            mkdir(self)
            for name in files:
                (self / name).write_text("")

        with monkeypatch.context() as patch:
            patch.setattr(Path, "mkdir", making)
            return cgroup.enter(work, (groups.parent.parent / "none", groups.parent))

    return enter


@pytest.fixture
def path(enter: Callable[..., Path | None], work: Path) -> Path:
    """The group of a guardian of `work`."""
    found = enter(work)
    assert found is not None
    return found


def test_it_enters_a_group_of_its_own_that_the_next_one_will_find(
    groups: Path, work: Path, path: Path, tmp_path: Path, enter: Callable[..., Path | None]
) -> None:
    assert path.parent == groups
    assert path.name.endswith(f"-{os.getpid()}")
    assert (path / "cgroup.procs").read_text() == f"{os.getpid()}\n"
    assert (work / "guardian.cgroup").read_text() == f"{path}\n"
    assert enter(tmp_path) not in (path, None), "each work directory has its own"


def test_without_an_own_group_or_a_way_to_kill_one_none_is_made(
    groups: Path, work: Path, tmp_path: Path, enter: Callable[..., Path | None]
) -> None:
    assert enter(work, ()) is None
    assert [path.name for path in groups.iterdir()] == ["cgroup.procs"], "and none is left behind"
    (groups / "cgroup.procs").unlink()
    assert enter(tmp_path) is None
    assert cgroup.enter(tmp_path, ()) is None
    assert not (tmp_path / "guardian.cgroup").exists()


def test_leaving_it_ends_what_is_left_there_once_this_process_is_out(groups: Path, work: Path, path: Path) -> None:
    (groups / "cgroup.procs").rename(groups / "kept")
    (groups / "cgroup.procs").mkdir()
    cgroup.leave(path, work)
    assert (path / "cgroup.kill").read_text() == ""
    assert (work / "guardian.cgroup").exists()
    (groups / "cgroup.procs").rmdir()
    (groups / "kept").rename(groups / "cgroup.procs")
    cgroup.leave(path, work)
    assert (groups / "cgroup.procs").read_text() == f"{os.getpid()}\n"
    assert (path / "cgroup.kill").read_text() == "1\n"
    assert not (work / "guardian.cgroup").exists()


def test_a_guardian_that_begins_ends_the_group_and_the_processes_that_were_left(
    work: Path, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Either may know of some that the other does not: not all were born in the group, and not all have a mark."""
    left, removed = [4711, 4712], []
    monkeypatch.setattr(leftovers, "kill_leftovers", lambda work_dir: left if work_dir == work else [])
    monkeypatch.setattr(cgroup, "remove_group", lambda name: removed.append(Path(name)) or True)
    leftovers.end_leftovers(work)
    assert (path / "cgroup.kill").read_text() == "1\n"
    assert removed == [path], "the empty group goes, too"
    assert not (work / "guardian.cgroup").exists()
    assert "killed 2 leftover processes of an earlier guardian: [4711, 4712]" in caplog.text
    caplog.clear()
    left.clear()
    leftovers.end_leftovers(work)
    assert (caplog.text, len(removed)) == ("", 1), "there was nothing"


def test_a_group_of_something_else_is_never_ended(groups: Path, work: Path) -> None:
    other = groups / "someone"
    other.mkdir()
    (other / "cgroup.kill").write_text("")
    (work / "guardian.cgroup").write_text(f"{other}\n")
    cgroup.kill_recorded(work)
    assert (other / "cgroup.kill").read_text() == ""
    assert not (work / "guardian.cgroup").exists()
