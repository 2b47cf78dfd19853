"""What is sent of a workspace: its layout in the bundle, its lock, and what the user is told."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

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
        self.sent, self.files, self.conflicts = 3, 2, 0
        self.warnings: tuple[str, ...] = ()
        self.lock_project = Mock(return_value=Path("/locks/x.lock"))

    def make_bundle(self, root: Path, **options: Any) -> Bundle:
        self.made.append({"root": root, **options})
        return Bundle("d", b"m", {}, 2048, self.warnings, self.files)

    def upload_bundle(self, connection: Any, bundle: Bundle) -> int:
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict("it changed")
        return self.sent


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
    def pack(warn: Callable[[str], None] = said.append, at: Path = root, home: object = "/h") -> WorkspacePacker:
        environ = {"PATH": "/bin", "HOME": str(home)}
        python = ("/py", "3.11.4")
        return WorkspacePacker(cast(Connection, None), at, python, warn=warn, notice=said.append, environ=environ)

    return pack


@pytest.mark.parametrize(
    ("files", "sent", "words"),
    [(2, 3, "sent 2 files, 2 KiB from {}"), (1, 0, "sent 1 file, 2 KiB (nothing new) from {}")],
)
def test_what_was_sent_is_told(
    cluster: Cluster, pack: Pack, said: list[str], root: Path, files: int, sent: int, words: str
) -> None:
    cluster.files, cluster.sent = files, sent
    packed = pack().send(Project(root))
    assert (packed.bundle.digest, packed.project_dir) == ("d", "")
    assert said == [words.format(root)]
    assert cluster.made == [{"root": root, "project_dir": "", "beside": {}, "snapshot": None}]
    assert not cluster.lock_project.called


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
    ("requires", "python"), [("", "/py"), (">=3.11", "/py"), (">= 3.12, <4", "python for >=3.12,<4 in /bin")]
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
    locked, project_dir, beside, interpreter, environ = cluster.lock_project.call_args.args
    assert (locked, project_dir, interpreter) == (project, place, python)
    assert dict(beside) == ({"lib": lib} if nested else {})
    assert environ == {"PATH": "/bin", "HOME": "/h"}
    assert cluster.made[0]["beside"][f"{place}/uv.lock" if nested else "uv.lock"] == Path("/locks/x.lock")
    assert (cluster.made[0]["project_dir"], packed.project_dir) == (place, place)
    assert said[0].startswith("no uv.lock: pyproject.toml was locked for this job")


def test_a_project_that_is_locked_or_needs_none_is_not(cluster: Cluster, pack: Pack, root: Path) -> None:
    pack().send(Project(root, PackageSource.LOCK, locked=True))
    pack().send(Project(root, PackageSource.REQUIREMENTS))
    assert not cluster.lock_project.called


@pytest.mark.parametrize(("count", "more"), [(0, []), (20, []), (21, ["and 1 more files"]), (25, ["and 5 more files"])])
def test_many_warnings_are_summed_up(cluster: Cluster, pack: Pack, root: Path, count: int, more: list[str]) -> None:
    warned: list[str] = []
    cluster.warnings = tuple(f"file {number}" for number in range(count))
    pack(warned.append).send(Project(root))
    assert warned == [*cluster.warnings[:20], *(f"{words} were skipped for such reasons" for words in more)]


@pytest.mark.parametrize("conflicts", [0, 2])
def test_what_takes_long_is_told_while_it_lasts(
    cluster: Cluster, pack: Pack, root: Path, monkeypatch: pytest.MonkeyPatch, conflicts: int
) -> None:
    timer = Mock()
    monkeypatch.setattr(packing.threading, "Timer", timer)
    cluster.conflicts = conflicts
    with contextlib.suppress(Conflict):
        pack().send(Project(root))
    assert timer.call_args.args[0] == 2.0
    assert timer.call_args.args[2] == [f"preparing the workspace {root}"]
    assert [name for name, *_ in timer.return_value.method_calls] == ["start", "cancel"]


def test_a_workspace_that_never_is_one_is_refused_before_it_is_read(pack: Pack, root: Path, tmp_path: Path) -> None:
    assert pack().read() == read_project(root)
    with pytest.raises(InvalidRequest, match="is your home directory"):
        pack(at=tmp_path, home=tmp_path).read()


def test_a_link_to_a_workspace_is_followed_and_called_by_its_name(
    cluster: Cluster, pack: Pack, said: list[str], root: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(root)
    packer = pack(at=tmp_path / "link")
    assert packer.read().root == root
    packer.send(packer.read())
    assert said == [f"sent 2 files, 2 KiB from {tmp_path / 'link'}"]
    assert cluster.made[0]["root"] == root
