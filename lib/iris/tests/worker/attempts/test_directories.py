import asyncio
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from iris.worker.attempts import directories
from iris.worker.attempts.directories import AttemptDirectories
from iris.worker.isolation.layers import make_layer
from iris.worker.isolation.plan import IsolationMode, Mount
from iris.worker.paths import WorkPaths
from iris.worker.prepare.task_env import PreparedEnvironment, worker_environment
from iris.worker.processes import StartFailed

NAME = "/u/job/0:0"


class Bench:
    def __init__(self, root: Path, mode: IsolationMode) -> None:
        self.paths = WorkPaths(root)
        self.paths.make()
        self.later: list[Callable[[], None]] = []
        self.compiled: list[tuple[Path, str]] = []
        self.directories = AttemptDirectories(self.paths, mode, self.later.append, self._compiled_of)
        self.bundle = self.paths.bundles / "b1"
        (self.bundle / "src").mkdir(parents=True)
        (self.bundle / "src" / "a.py").write_text("code")
        self.prepared = PreparedEnvironment(
            ("/env/bin", f"{self.bundle}/bin"), (f"{self.bundle}/src",), self.bundle, "/env"
        )

    def _compiled_of(self, tree: Path, python: str) -> str:
        self.compiled.append((tree, python))
        return f"compiled of {tree.name}"

    def remove_all(self) -> None:
        for work in self.later:
            work()

    def copied(self) -> PreparedEnvironment:
        return asyncio.run(self.directories.copy(NAME, self.prepared))


@pytest.fixture
def make(tmp_path: Path) -> Callable[[IsolationMode], Bench]:
    return lambda mode: Bench(tmp_path / "work", mode)


Make = Callable[[IsolationMode], Bench]


def test_without_a_workspace_it_begins_in_an_empty_directory_of_its_own(make: Make) -> None:
    bench = make(IsolationMode.OVERLAY)
    plain = worker_environment()
    place = bench.directories.make(NAME, plain, "ignored")
    assert list(Path(place).iterdir()) == []
    temporary = Path(bench.directories.temporary(NAME))
    assert list(temporary.iterdir()) == []
    assert temporary != Path(place)
    assert {Path(place).parent, temporary.parent} == {Path(bench.directories.slot(NAME))}
    assert bench.directories.mounts(NAME, plain) == (), "the worker's own environment cannot be written anyway"
    assert not bench.directories.needs_copy(plain)


@pytest.mark.parametrize("mode", IsolationMode)
def test_it_begins_where_it_was_submitted_from(make: Make, mode: IsolationMode) -> None:
    bench = make(mode)
    assert bench.directories.needs_copy(bench.prepared) == (mode is not IsolationMode.OVERLAY)
    prepared = bench.copied()
    assert (prepared == bench.prepared) == (mode is not IsolationMode.COPY)
    assert prepared.bundle_dir is not None
    assert bench.directories.make(NAME, prepared, "src") == f"{prepared.bundle_dir}/src"
    with pytest.raises(StartFailed, match=r"the working directory 'src/a\.py' is a file in the workspace"):
        bench.directories.make("/u/job/1:0", prepared, "src/a.py")
    with pytest.raises(StartFailed, match=r"'src/a\.py/deeper' is a file"):
        bench.directories.make("/u/job/2:0", prepared, "src/a.py/deeper")


def test_a_copy_takes_the_place_of_the_bundle_in_all_that_names_it(make: Make) -> None:
    bench = make(IsolationMode.COPY)
    prepared = bench.copied()
    copy = f"{bench.paths.layer(NAME)}/copy"
    assert prepared == PreparedEnvironment(("/env/bin", f"{copy}/bin"), (f"{copy}/src",), Path(copy), "/env")
    assert (Path(copy) / "src" / "a.py").read_text() == "code"
    assert bench.directories.mounts(NAME, prepared) == ()


@pytest.mark.parametrize(
    ("mode", "place"), [(IsolationMode.OVERLAY, "bundle"), (IsolationMode.BIND, "copy"), (IsolationMode.COPY, "copy")]
)
def test_an_empty_folder_that_was_not_sent_is_made_in_its_own_part(make: Make, mode: IsolationMode, place: str) -> None:
    bench = make(mode)
    prepared = bench.copied()
    assert bench.directories.make(NAME, prepared, "new/deep") == f"{prepared.bundle_dir}/new/deep"
    own = f"{bench.directories.slot(NAME)}/own" if mode is IsolationMode.OVERLAY else bench.paths.layer(NAME)
    assert (Path(own) / place / "new" / "deep").is_dir()
    assert not (bench.bundle / "new").exists(), "others do not see it"


@pytest.mark.parametrize("mode", IsolationMode)
def test_a_place_that_is_made_behind_a_link_of_the_bundle_is_the_attempts_own(make: Make, mode: IsolationMode) -> None:
    bench = make(mode)
    (bench.bundle / "link").symlink_to("src")
    prepared = bench.copied()
    assert bench.directories.make(NAME, prepared, "link/new") == f"{prepared.bundle_dir}/link/new"
    bench.directories.mounts(NAME, prepared)
    bench.directories.remove(NAME)
    assert sorted(os.listdir(bench.bundle / "src")) == ["a.py"]
    bench.remove_all()
    assert os.listdir(bench.paths.layers) == []


@pytest.mark.parametrize("mode", IsolationMode)
def test_no_place_is_made_outside_of_the_bundle(make: Make, mode: IsolationMode, tmp_path: Path) -> None:
    bench = make(mode)
    (bench.bundle / "link").symlink_to(tmp_path)
    with pytest.raises(
        StartFailed, match=r"the working directory .*/new does not exist on the host or in the workspace"
    ):
        bench.directories.make(NAME, bench.copied(), "link/new")
    assert not (tmp_path / "new").exists()


def test_with_layers_it_sees_what_was_compiled_over_its_bundle_and_environment(make: Make) -> None:
    bench = make(IsolationMode.OVERLAY)
    environment = bench.paths.envs / "e1"
    prepared = PreparedEnvironment(("/env/bin",), (), bench.bundle / "src", str(environment))
    bench.directories.make(NAME, prepared)
    layer = f"{bench.directories.slot(NAME)}/own"
    assert bench.directories.mounts(NAME, prepared) == (
        Mount(str(bench.bundle), str(bench.bundle), f"{layer}/bundle", "compiled of b1"),
        Mount(str(environment), str(environment), f"{layer}/environment", "compiled of e1"),
    )
    assert bench.compiled == [(bench.bundle, "/env/bin/python"), (environment, "/env/bin/python")]
    assert Path(layer).is_dir()
    bench.directories.mounts(NAME, prepared)  # the directory is there
    own = bench.directories.mounts(NAME, PreparedEnvironment(virtual_env="/env"))
    assert [mount.target for mount in own] == ["/env"], "that of a job without a bundle is kept apart, too"
    foreign = PreparedEnvironment(("/env/bin",), (), bench.bundle, "/env")
    assert [mount.over for mount in bench.directories.mounts(NAME, foreign)] == ["compiled of b1", ""]


class TestRemoval:
    def test_what_a_task_left_is_out_of_reach_at_once_and_unmounted_layers_go(self, make: Make) -> None:
        bench = make(IsolationMode.OVERLAY)
        place = Path(bench.directories.make(NAME, worker_environment()))
        (place / "file").write_text("x")
        bench.directories.mounts(NAME, bench.prepared)
        layer = Path(bench.directories.slot(NAME), "own")
        (layer / "bundle").mkdir()
        (layer / "bundle" / "written").write_text("x")
        bench.directories.remove(NAME)
        assert not (place / "file").exists()
        assert not layer.exists()
        assert len(list(bench.paths.trash.iterdir())) == len(bench.later) == 2
        bench.remove_all()
        assert list(bench.paths.trash.iterdir()) == []
        bench.directories.remove(NAME)  # nothing is there any more
        bench.directories.make(NAME, bench.prepared)
        bench.directories.mounts(NAME, bench.prepared)
        own, former = Path(bench.directories.slot(NAME), "own"), Path(bench.paths.layer(NAME))
        assert own.exists()
        (former / "bundle").mkdir(parents=True)
        (former / "bundle" / "written").touch()
        bench.directories.remove(NAME)
        assert not own.exists(), "another attempt gains nothing by them"
        assert not former.exists(), "where former releases had them"

    def test_one_that_had_nothing_of_its_own_may_begin_anew_with_a_copy(self, make: Make) -> None:
        """What it was made ready for is gone, and another environment was prepared."""
        bench = make(IsolationMode.BIND)
        plain = worker_environment()
        bench.directories.make(NAME, plain)
        assert bench.directories.mounts(NAME, plain) == ()
        bench.directories.remove(NAME)
        prepared = bench.copied()
        bench.directories.make(NAME, prepared)
        assert bench.directories.mounts(NAME, prepared)
        copy = Path(bench.paths.layer(NAME))
        assert copy.exists()
        bench.directories.remove(NAME)
        assert not copy.exists()

    def test_layers_in_which_nothing_was_written_are_given_to_the_next_with_the_same_mounts(self, make: Make) -> None:
        bench = make(IsolationMode.OVERLAY)

        def attempt(number: int, prepared: PreparedEnvironment) -> str:
            name = f"/u/job/{number}:0"
            bench.directories.make(name, prepared)
            layer = bench.directories.mounts(name, prepared)[0].layer
            if not os.path.exists(layer):
                for mount in bench.directories.mounts(name, prepared):
                    make_layer(mount.layer)
            bench.directories.remove(name)
            return layer

        first = attempt(0, bench.prepared)
        made = os.stat(first).st_ino
        assert attempt(1, replace(bench.prepared, virtual_env="/other")) != first
        assert (attempt(2, bench.prepared), os.stat(first).st_ino, bench.later) == (first, made, [])

    def test_what_cannot_be_moved_away_is_said_and_ends_nothing_else(
        self, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse(path: str, target: str) -> None:
            raise OSError(5, "Input/output error")

        bench = make(IsolationMode.OVERLAY)
        place = Path(bench.directories.make(NAME, worker_environment()))
        (place / "file").touch()
        slot = bench.directories.slot(NAME)
        monkeypatch.setattr(directories, "move_away", refuse)
        bench.directories.remove(NAME)
        assert bench.later == []
        assert f"{slot} cannot be removed: [Errno 5] Input/output error" in caplog.text
        bench.directories.make("/u/job/1:0", worker_environment())
        assert bench.directories.slot("/u/job/1:0") != slot, "what was left in it is nobody's"

    def test_a_new_worker_keeps_what_goes_on_and_removes_the_rest(self, make: Make) -> None:
        bench = make(IsolationMode.OVERLAY)
        other = "/u/job/1:0"
        for name in (NAME, other):
            bench.directories.make(name, worker_environment())
            bench.directories.mounts(name, bench.prepared)
        (bench.paths.trash / "old").mkdir()
        slots = [Path(bench.directories.slot(name)) for name in (NAME, other)]
        later = AttemptDirectories(bench.paths, IsolationMode.OVERLAY, bench.later.append)
        later.adopt(NAME, str(slots[0]))
        later.keep_only([NAME])
        bench.remove_all()
        assert [slot.exists() for slot in slots] == [True, False]
        assert (slots[0] / "own").exists(), "its layers are there, too"
        (slots[0] / "work" / "left").touch()
        later.remove(NAME)
        bench.remove_all()
        assert [os.listdir(place) for place in (bench.paths.slots, bench.paths.trash)] == [[]] * 2


@pytest.mark.parametrize("mode", [IsolationMode.BIND, IsolationMode.COPY])
async def test_a_copy_given_up_leaves_nothing(make: Make, mode: IsolationMode, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = make(mode)
    begun, go = threading.Event(), threading.Event()
    copy = directories.copy_tree

    def slowly(source: Path, target: Path) -> None:
        begun.set()
        assert go.wait(20)
        copy(source, target)

    monkeypatch.setattr(directories, "copy_tree", slowly)

    copying = asyncio.create_task(bench.directories.copy(NAME, bench.prepared))
    await asyncio.to_thread(begun.wait, 20)
    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying
    go.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert os.listdir(bench.paths.layers) == []


@pytest.mark.process
def test_no_modes_that_a_task_sets_keep_what_it_left(open_path: Path) -> None:
    outside, tree = open_path / "outside", open_path / "trash" / "tree"
    outside.mkdir(mode=0o750)
    (outside / "file").touch()
    locked = tree / "locked" / "inner"
    locked.mkdir(parents=True)
    (locked / "file").touch()
    (tree / "link").symlink_to(outside)
    if os.geteuid() == 0:
        subprocess.run(["chown", "-hR", "65534:65534", str(tree.parent)], check=True)
    for path in (locked, locked.parent, tree):
        path.chmod(0)
    # As `nobody` if this is root, for whom modes mean nothing.
    code = (
        "import os, sys; from iris.worker.attempts.directories import remove_tree\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "remove_tree(sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", code, str(tree)], timeout=60, check=True)
    assert os.listdir(tree.parent) == []
    assert stat.S_IMODE(outside.stat().st_mode) == 0o750, "what a link points to is not its own"
    assert os.listdir(outside) == ["file"]
