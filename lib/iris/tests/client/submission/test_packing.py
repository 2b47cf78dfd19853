"""What is sent of a workspace: its layout in the bundle, its lock, and what the user is told."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from iris.client.connection.connection import Connection
from iris.client.submission import packing
from iris.client.submission.bundle import Bundle
from iris.client.submission.packing import Layout, WorkspacePacker, lay_out
from iris.client.submission.project import LocalDependency, Project, read_project
from iris.domain.runtime import PackageSource
from rigging.errors import Conflict, InvalidRequest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "work/project"
    found.mkdir(parents=True)
    (found / "a.py").write_text("a")
    return found


def dependency(target: Path, name: str = "mylib") -> LocalDependency:
    return LocalDependency(name, f"../{target.name}", target, "pyproject.toml")


def test_a_workspace_by_itself_is_at_the_top(root: Path) -> None:
    assert lay_out(Project(root)) == Layout("", {})
    for name in ("uv.lock", "pyproject.toml", "requirements.txt", "other.txt"):
        (root / name).write_text("")
    names = ("uv.lock", "pyproject.toml", "requirements.txt")
    assert lay_out(Project(root)) == Layout("", {name: root / name for name in names})


def test_what_is_named_by_its_path_keeps_its_place_relative_to_the_workspace(root: Path) -> None:
    (root / "uv.lock").write_text("")
    lib, wheel = root.parent.parent / "lib/mylib", root.parent / "w/x.whl"
    lib.mkdir(parents=True)
    wheel.parent.mkdir()
    wheel.write_text("")
    found = lay_out(Project(root, dependencies=(dependency(lib), dependency(wheel))))
    assert found.project_dir == "work/project"
    assert found.beside == {"lib/mylib": lib, "work/w/x.whl": wheel, "work/project/uv.lock": root / "uv.lock"}


def test_a_folder_around_the_workspace_is_the_top_and_nothing_above_it_is(root: Path) -> None:
    """Else what is unpacked beside it on a worker would lie a level too deep, and `..` would mean another folder."""
    around = root.parent
    wheel = around / "x.whl"
    wheel.write_text("")
    assert lay_out(Project(root, dependencies=(dependency(around),))) == Layout("project", {"": around})
    assert lay_out(Project(root, dependencies=(dependency(wheel),))) == Layout("project", {"x.whl": wheel})


def test_what_lies_in_the_workspace_goes_along_even_where_git_ignores_it(root: Path) -> None:
    (root / "vendor").mkdir()
    (root / "w.whl").write_text("")
    found = lay_out(Project(root, dependencies=(dependency(root / "vendor"), dependency(root / "w.whl"))))
    assert found == Layout("", {"vendor": root / "vendor", "w.whl": root / "w.whl"})


def test_a_dependency_that_would_send_a_home_directory_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(root.parent))
    home = dependency(root.parent)
    with pytest.raises(InvalidRequest, match=r"^mylib in pyproject.toml is at '../work': .*your home directory"):
        lay_out(Project(root, dependencies=(home,)))


class Cluster:
    """Keeps what is packed, and sends as many blobs as it is told."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.sent = 3
        self.conflicts = 0
        self.files = 2
        self.warnings: tuple[str, ...] = ()
        self.locked: list[tuple[Any, ...]] = []

    def make_bundle(self, root: Path, **options: Any) -> Bundle:
        self.made.append({"root": root, **options})
        return Bundle("d", b"m", {}, 2048, self.warnings, self.files)

    def upload_bundle(self, connection: Any, bundle: Bundle) -> int:
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict("it changed")
        return self.sent

    def lock_project(self, *given: Any) -> Path:
        self.locked.append(given)
        return Path("/locks/x.lock")


Pack = Callable[..., WorkspacePacker]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster()
    for name in ("make_bundle", "upload_bundle", "lock_project"):
        monkeypatch.setattr(packing, name, getattr(found, name))
    monkeypatch.setattr(packing, "find_python", lambda wanted, path: f"python for {wanted} in {path}")
    return found


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def pack(cluster: Cluster, said: list[str], root: Path) -> Pack:
    def pack(warn: Callable[[str], None] = said.append) -> WorkspacePacker:
        return WorkspacePacker(
            cast(Connection, None), root, ("/py", "3.11.4"), warn=warn, notice=said.append,
            environ={"PATH": "/bin", "HOME": "/h"},
        )  # fmt: skip

    return pack


@pytest.mark.parametrize(
    ("files", "sent", "words"),
    [(2, 3, "sent 2 files, 2.0 KB from {}"), (1, 0, "sent 1 file, 2.0 KB (nothing new) from {}")],
)
def test_what_was_sent_is_told(
    cluster: Cluster, pack: Pack, said: list[str], root: Path, files: int, sent: int, words: str
) -> None:
    cluster.files, cluster.sent = files, sent
    packed = pack().send(Project(root))
    assert (packed.bundle.digest, packed.project_dir) == ("d", "")
    assert said == [words.format(root)]
    assert cluster.made == [{"root": root, "project_dir": "", "beside": {}, "snapshot": None}]
    assert cluster.locked == []


def test_a_file_that_changes_meanwhile_is_sent_from_a_copy(cluster: Cluster, pack: Pack, root: Path) -> None:
    cluster.conflicts = 1
    pack().send(Project(root))
    first, second = cluster.made
    assert first["snapshot"] is None
    assert second["snapshot"] is not None
    assert not second["snapshot"].exists(), "the copy is gone"
    cluster.conflicts = 2
    with pytest.raises(Conflict):
        pack().send(Project(root))


@pytest.mark.parametrize(
    ("requires", "python"),
    [("", "/py"), (">=3.11", "/py"), (">= 3.12, <4", "python for >=3.12,<4 in /bin")],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_project_without_a_lock_is_locked_with_a_python_that_fits(
    cluster: Cluster, pack: Pack, said: list[str], root: Path, requires: str, python: str, nested: bool
) -> None:
    lib = root.parent / "lib"
    lib.mkdir()
    project = Project(
        root, PackageSource.LOCK, requires_python=requires, dependencies=(dependency(lib),) if nested else ()
    )
    packed = pack().send(project)
    place = "project" if nested else ""
    [(locked, project_dir, beside, interpreter, environ)] = cluster.locked
    assert (locked, project_dir, interpreter) == (project, place, python)
    assert dict(beside) == ({"lib": lib} if nested else {})
    assert environ == {"PATH": "/bin", "HOME": "/h"}
    assert cluster.made[0]["beside"][f"{place}/uv.lock" if nested else "uv.lock"] == Path("/locks/x.lock")
    assert (cluster.made[0]["project_dir"], packed.project_dir) == (place, place)
    assert said[0].startswith("no uv.lock: pyproject.toml was locked for this job")


def test_a_project_that_is_locked_or_needs_none_is_not(cluster: Cluster, pack: Pack, root: Path) -> None:
    pack().send(Project(root, PackageSource.LOCK, locked=True))
    pack().send(Project(root, PackageSource.REQUIREMENTS))
    assert cluster.locked == []


@pytest.mark.parametrize(("count", "shown"), [(0, 0), (20, 20), (21, 21), (25, 21)])
def test_many_warnings_are_summed_up(cluster: Cluster, pack: Pack, root: Path, count: int, shown: int) -> None:
    warned: list[str] = []
    cluster.warnings = tuple(f"file {number}" for number in range(count))
    pack(warned.append).send(Project(root))
    assert len(warned) == shown
    assert warned[:20] == list(cluster.warnings[:20])
    if count > 20:
        assert warned[20] == f"and {count - 20} more files are left out for such reasons"


def test_what_takes_long_is_told_while_it_lasts(
    cluster: Cluster, pack: Pack, said: list[str], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[Any] = []

    class Timer:
        def __init__(self, seconds: float, notice: Callable[[str], None], words: list[str]) -> None:
            self.seconds, self.words, self.state = seconds, words, "new"
            timers.append(self)

        def start(self) -> None:
            self.state = "started"

        def cancel(self) -> None:
            assert self.state == "started"
            self.state = "cancelled"

    monkeypatch.setattr(packing.threading, "Timer", Timer)
    pack().send(Project(root))
    cluster.conflicts = 2
    with contextlib.suppress(Conflict):
        pack().send(Project(root))
    assert [(timer.seconds, timer.words, timer.state) for timer in timers] == [
        (2.0, [f"preparing the workspace {root}"], "cancelled")
    ] * 2


def test_a_workspace_that_never_is_one_is_refused_before_it_is_read(
    pack: Pack, cluster: Cluster, tmp_path: Path
) -> None:
    assert pack().read() == read_project(tmp_path / "work/project")
    packer = WorkspacePacker(
        cast(Connection, None), tmp_path, ("", ""), warn=print, notice=print, environ={"HOME": str(tmp_path)}
    )
    with pytest.raises(InvalidRequest, match="is your home directory"):
        packer.read()


def test_a_link_to_a_workspace_is_followed_and_called_by_its_name(
    cluster: Cluster, said: list[str], root: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(root)
    packer = WorkspacePacker(
        cast(Connection, None), tmp_path / "link", ("", ""), warn=print, notice=said.append, environ={}
    )
    assert packer.read().root == root
    packer.send(packer.read())
    assert said == [f"sent 2 files, 2.0 KB from {tmp_path / 'link'}"]
    assert cluster.made[0]["root"] == root
