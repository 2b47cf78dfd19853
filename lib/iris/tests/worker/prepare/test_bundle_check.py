"""An unpacked bundle that was changed at rest is made as it was sent before a task uses it."""

import asyncio
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from iris.rpc import iris_pb2 as pb
from iris.testing.worker_fixtures import FakeController, InProcessWorker, run_command
from iris.worker.isolation.seals import tree_state
from iris.worker.paths import WorkPaths
from iris.worker.prepare.bundle import BundleStore
from iris.worker.prepare.bundle_check import SoundTrees

SENT = {"a.txt": b"data2", "pkg/m.py": b"V = 1", "pkg/big": b"0123456789", "empty": b"", "run.sh": b"#!/bin/sh"}


def test_what_is_forgotten_was_not_seen(tmp_path: Path) -> None:
    sound = SoundTrees(1.0, lambda: 100.0)
    sound.found_right(tmp_path, tree_state(tmp_path))
    assert (sound.was_just_seen(tmp_path), sound.is_unchanged(tmp_path)) == (True, True)
    (tmp_path / "new").write_text("")
    assert not sound.is_unchanged(tmp_path)
    assert not sound.was_just_seen(tmp_path), "a change that was seen counts at once"


class Source:
    """A controller with one bundle: files, a link, an empty directory."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.asked: list[str] = []
        manifest = pb.BundleManifest(format=1, directories=["logs"])
        for name, data in sorted(SENT.items()):
            parts = [self.add(data[start : start + 5]) for start in range(0, len(data), 5)]
            manifest.files.add(path=name, size_bytes=len(data), executable=name == "run.sh", part_digests=parts)
        manifest.files.add(path="link", symlink_target="pkg/m.py")
        self.bundle = self.add(manifest.SerializeToString(deterministic=True))

    def add(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest

    async def fetch(self, digests: list[str]) -> AsyncIterator[tuple[str, int, bytes, bool]]:
        self.asked += digests
        for digest in digests:
            yield digest, 0, self.blobs[digest], True


class Bench:
    def __init__(self, root: Path) -> None:
        self.paths = WorkPaths(root)
        self.paths.make()
        self.source = Source()
        self.now = 0.0
        self.tree = self.paths.bundles / self.source.bundle

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


def play(root: Path, scenario: Callable[[Bench], Awaitable[None]]) -> None:
    asyncio.run(scenario(Bench(root)))


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


@pytest.mark.parametrize("change", CHANGES)
def test_the_next_worker_process_finds_what_was_changed(tmp_path: Path, change: Callable[[Path], object]) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.worker().bundle(bench.source.bundle)
        assert bench.is_as_sent()
        change(bench.tree)
        assert not bench.is_as_sent()
        assert await bench.worker().bundle(bench.source.bundle) == bench.tree
        assert bench.is_as_sent()

    play(tmp_path, scenario)


@pytest.mark.parametrize("change", CHANGES)
def test_so_does_the_same_process_a_second_later(tmp_path: Path, change: Callable[[Path], object]) -> None:
    async def scenario(bench: Bench) -> None:
        worker = bench.worker()
        await worker.bundle(bench.source.bundle)
        change(bench.tree)
        bench.now = 1.0
        assert not worker.was_just_seen(bench.source.bundle)
        await worker.bundle(bench.source.bundle)
        assert bench.is_as_sent()
        assert worker.was_just_seen(bench.source.bundle)

    play(tmp_path, scenario)


def test_what_is_mended_comes_from_sound_blobs(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.worker().bundle(bench.source.bundle)
        rot(bench.tree / "a.txt")
        rot(bench.tree / "pkg/big")
        for digest in bench.source.blobs:
            (bench.paths.blobs / digest).write_bytes(b"garbage")
        bench.source.asked.clear()
        await bench.worker().bundle(bench.source.bundle)
        assert bench.is_as_sent()
        assert bench.source.bundle in bench.source.asked, "the manifest, too"

    play(tmp_path, scenario)


def test_files_that_were_right_are_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.worker().bundle(bench.source.bundle)
        before = tree_state(bench.tree)
        await bench.worker().bundle(bench.source.bundle)
        assert tree_state(bench.tree) == before
        assert caplog.text == ""
        kept = (bench.tree / "pkg/m.py").stat()
        (bench.tree / "a.txt").write_text("HACKED")
        await bench.worker().bundle(bench.source.bundle)
        assert (bench.tree / "pkg/m.py").stat() == kept, "attempts that run have it open"
        assert "was changed on this host: ['a.txt']; it is made as it was sent" in caplog.text

    play(tmp_path, scenario)


def test_of_many_changed_files_a_few_are_named_and_the_others_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.worker().bundle(bench.source.bundle)
        for name in ("a.txt", "empty", "run.sh", "pkg/m.py"):
            (bench.tree / name).write_text("HACKED")
        (bench.tree / "stray").touch()
        await bench.worker().bundle(bench.source.bundle)
        assert bench.is_as_sent()
        assert "'stray'" in caplog.text
        assert "] and 2 more; it is made as it was sent" in caplog.text

    play(tmp_path, scenario)


def test_between_two_looks_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Path] = []

    def counted(path: Path) -> bytes:
        looks.append(path)
        return tree_state(path)

    async def scenario(bench: Bench) -> None:
        worker = bench.worker()
        await worker.bundle(bench.source.bundle)
        monkeypatch.setattr("iris.worker.prepare.bundle_check.tree_state", counted)
        for now, expected in ((0.5, 0), (0.99, 0), (1.0, 1), (1.9, 1), (2.0, 2)):
            bench.now = now
            await worker.bundle(bench.source.bundle)
            assert len(looks) == expected
        (bench.tree / "a.txt").touch()
        bench.now = 3.0
        await worker.bundle(bench.source.bundle)
        bench.now = 4.0
        await worker.bundle(bench.source.bundle)
        assert len(looks) == 4, "what was read and found right is known as it looks now"

    play(tmp_path, scenario)


def test_a_directory_that_cannot_be_read_is_unpacked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.worker().bundle(bench.source.bundle)
        rot(bench.tree / "a.txt")
        before = bench.tree.stat().st_ino
        monkeypatch.setattr(
            "iris.worker.prepare.bundle.wrong_entries", lambda *_: (_ for _ in ()).throw(OSError(5, "bad disk"))
        )
        await bench.worker().bundle(bench.source.bundle)
        assert bench.is_as_sent()
        assert bench.tree.stat().st_ino != before

    play(tmp_path, scenario)


@pytest.mark.e2e
def test_a_task_runs_what_was_sent_although_the_unpacked_file_was_changed(
    play: Callable[[Callable[[FakeController, InProcessWorker], Awaitable[None]]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("iris.worker.prepare.bundle_check.SoundTrees.was_just_seen", lambda *_: False)

    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        bundle = controller.add_bundle({"a.txt": "data2"})
        for attempt in range(2):
            controller.send(run=[run_command("cat", "a.txt", bundle=bundle, attempt=attempt)])
            await controller.until_ended(f"/user/job/0:{attempt}")
            assert controller.output(f"/user/job/0:{attempt}") == b"data2\n"
            (worker.paths.bundles / bundle / "a.txt").write_text("HACKED")

    play(scenario)
