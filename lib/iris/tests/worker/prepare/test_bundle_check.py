"""An unpacked bundle that was changed at rest is made as it was sent before a task uses it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from iris.rpc.generated import iris_pb2 as pb
from iris.worker.isolation.seals import tree_state
from iris.worker.paths import WorkPaths
from iris.worker.prepare.bundle import BundleStore
from iris.worker.prepare.bundle_check import SoundTrees
from support.iris.blobs import PlayedBlobs

SENT = {"a.txt": b"data2", "pkg/m.py": b"V = 1", "pkg/big": b"0123456789", "empty": b"", "run.sh": b"#!/bin/sh"}


def test_what_is_forgotten_was_not_seen(tmp_path: Path) -> None:
    sound = SoundTrees(1.0, lambda: 100.0)
    sound.found_right(tmp_path, tree_state(tmp_path))
    assert (sound.was_just_seen(tmp_path), sound.is_unchanged(tmp_path)) == (True, True)
    (tmp_path / "new").write_text("")
    assert not sound.is_unchanged(tmp_path)
    assert not sound.was_just_seen(tmp_path), "a change that was seen counts at once"


class Bench:
    def __init__(self, root: Path) -> None:
        self.paths = WorkPaths(root)
        self.paths.make()
        self.source = PlayedBlobs()
        files = [
            self.source.add_parts(
                name, *(data[start : start + 5] for start in range(0, len(data), 5)), executable=name == "run.sh"
            )
            for name, data in sorted(SENT.items())
        ]
        link = pb.BundleFile(path="link", symlink_target="pkg/m.py")
        self.digest = self.source.add_bundle(*files, link, directories=("logs",))
        self.now = 0.0
        self.tree = self.paths.bundles / self.digest

    def worker(self) -> BundleStore:
        """A new worker process, with nothing in memory."""
        return BundleStore(self.paths, self.source, 0.0, sound=SoundTrees(1.0, lambda: self.now))

    def is_as_sent(self) -> bool:
        files = {name: self.tree / name for name in SENT}
        return (
            all(path.is_file() and path.read_bytes() == SENT[name] for name, path in files.items())
            and sorted(os.listdir(self.tree)) == ["a.txt", "empty", "link", "logs", "pkg", "run.sh"]
            and sorted(os.listdir(self.tree / "pkg")) == ["big", "m.py"]
            and os.readlink(self.tree / "link") == "pkg/m.py"
            and (self.tree / "run.sh").stat().st_mode & 0o777 == 0o755
            and (self.tree / "a.txt").stat().st_mode & 0o777 == 0o644
            and list((self.tree / "logs").glob("*")) == []
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def rot(path: Path) -> None:
    """Other bytes under the same size and times, as a disk damages them."""
    status = path.stat()
    path.write_bytes(b"X" + path.read_bytes()[1:])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replaced_by_a_directory(tree: Path) -> None:
    (tree / "a.txt").unlink()
    (tree / "a.txt").mkdir()
    (tree / "a.txt/x").touch()


def replaced_by_a_file(tree: Path) -> None:
    shutil.rmtree(tree / "pkg")
    (tree / "pkg").touch()


def link_elsewhere(tree: Path) -> None:
    (tree / "link").unlink()
    (tree / "link").symlink_to("a.txt")


CHANGES: list[Callable[[Path], object]] = [
    lambda tree: (tree / "a.txt").write_text("HACKED"),
    lambda tree: rot(tree / "a.txt"),
    lambda tree: rot(tree / "pkg/big"),
    lambda tree: (tree / "pkg/big").write_bytes(b"01234567890"),
    lambda tree: (tree / "pkg/m.py").unlink(),
    lambda tree: (tree / "json.py").write_text("evil = 1"),
    lambda tree: (tree / "logs/left").touch(),
    lambda tree: (tree / "logs").rmdir(),
    lambda tree: (tree / "run.sh").chmod(0o644),
    lambda tree: shutil.rmtree(tree / "pkg"),
    replaced_by_a_directory,
    replaced_by_a_file,
    link_elsewhere,
]


@pytest.mark.parametrize("is_next", [True, False])
@pytest.mark.parametrize("change", CHANGES)
async def test_changes_are_found_a_second_later(bench: Bench, change: Callable[[Path], object], is_next: bool) -> None:
    worker = bench.worker()
    await worker.bundle(bench.digest)
    assert bench.is_as_sent()
    change(bench.tree)
    assert not bench.is_as_sent()
    bench.now = 1.0
    assert not worker.was_just_seen(bench.digest)
    worker = bench.worker() if is_next else worker
    assert await worker.bundle(bench.digest) == bench.tree
    assert bench.is_as_sent()
    assert worker.was_just_seen(bench.digest)


async def test_what_is_mended_comes_from_sound_blobs(bench: Bench) -> None:
    await bench.worker().bundle(bench.digest)
    rot(bench.tree / "a.txt")
    rot(bench.tree / "pkg/big")
    for digest in bench.source.blobs:
        (bench.paths.blobs / digest).write_bytes(b"garbage")
    bench.source.asked.clear()
    await bench.worker().bundle(bench.digest)
    assert bench.is_as_sent()
    assert [bench.digest] in bench.source.asked, "the manifest, too"


async def test_what_was_right_stays_and_a_few_changes_are_named(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await bench.worker().bundle(bench.digest)
    before = tree_state(bench.tree)
    await bench.worker().bundle(bench.digest)
    assert tree_state(bench.tree) == before
    assert caplog.text == ""
    kept = (bench.tree / "pkg/m.py").stat()
    (bench.tree / "a.txt").write_text("HACKED")
    await bench.worker().bundle(bench.digest)
    assert (bench.tree / "pkg/m.py").stat() == kept, "attempts that run have it open"
    assert "was changed on this host: ['a.txt']; restoring the original" in caplog.text
    await bench.worker().bundle(bench.digest)
    for name in ("a.txt", "empty", "run.sh", "pkg/m.py"):
        (bench.tree / name).write_text("HACKED")
    (bench.tree / "stray").touch()
    await bench.worker().bundle(bench.digest)
    assert bench.is_as_sent()
    assert "'stray'" in caplog.text
    assert "] and 2 more; restoring the original" in caplog.text


async def test_between_two_looks_nothing_is_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Path] = []

    def counted(path: Path) -> bytes:
        looks.append(path)
        return tree_state(path)

    worker = bench.worker()
    await worker.bundle(bench.digest)
    monkeypatch.setattr("iris.worker.prepare.bundle_check.tree_state", counted)
    for now, expected in ((0.5, 0), (0.99, 0), (1.0, 1), (1.9, 1), (2.0, 2)):
        bench.now = now
        await worker.bundle(bench.digest)
        assert len(looks) == expected
    (bench.tree / "a.txt").touch()
    bench.now = 3.0
    await worker.bundle(bench.digest)
    bench.now = 4.0
    await worker.bundle(bench.digest)
    assert len(looks) == 4, "what was read and found right is known as it looks now"


async def test_a_directory_that_cannot_be_read_is_unpacked_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.worker().bundle(bench.digest)
    rot(bench.tree / "a.txt")
    before = bench.tree.stat().st_ino
    monkeypatch.setattr("iris.worker.prepare.bundle.wrong_entries", lambda *_: (_ for _ in ()).throw(OSError(5, "bad")))
    await bench.worker().bundle(bench.digest)
    assert bench.is_as_sent()
    assert bench.tree.stat().st_ino != before
