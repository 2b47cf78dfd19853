"""Blobs and bundles on a host, from a source that is played: whole or not there, and whose fault what fails is."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from iris.domain.states import FailureKind
from iris.rpc import iris_pb2 as pb
from iris.worker.paths import WorkPaths
from iris.worker.prepare import bundle as bundle_module
from iris.worker.prepare.bundle import BundleStore, signature
from iris.worker.types import PreparationFailed
from rigging.errors import NotFound, Unavailable

Chunk = tuple[str, int, bytes, bool]


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Source:
    """Has blobs, and sends them in two chunks each; `broken` changes what is sent, call by call."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.asked: list[list[str]] = []
        self.broken: list[Callable[[list[Chunk]], list[Chunk] | Exception]] = []

    def add(self, data: bytes) -> str:
        self.blobs[digest_of(data)] = data
        return digest_of(data)

    def add_bundle(self, *files: pb.BundleFile) -> str:
        return self.add(pb.BundleManifest(format=1, files=files).SerializeToString(deterministic=True))

    async def fetch(self, digests: list[str]) -> AsyncIterator[Chunk]:
        self.asked.append(digests)
        chunks: list[Chunk] = []
        for digest in digests:
            if digest not in self.blobs:
                raise NotFound(f"there is no blob {digest}")
            data = self.blobs[digest]
            half = len(data) // 2
            chunks += [(digest, 0, data[:half], False), (digest, half, data[half:], True)]
        answer = self.broken.pop(0)(chunks) if self.broken else chunks
        if isinstance(answer, Exception):
            raise answer
        for chunk in answer:
            yield chunk


class Bench:
    def __init__(self, root: Path, patience_s: float = 0.0, **limits: int) -> None:
        self.paths = WorkPaths(root)
        self.paths.make()
        self.source = Source()
        self.store = BundleStore(self.paths, self.source, patience_s, **limits)

    def left(self) -> list[str]:
        return sorted(path.name for path in self.paths.blobs.iterdir())


def play(root: Path, scenario: Callable[[Bench], Awaitable[None]], patience_s: float = 0.0, **limits: int) -> None:
    asyncio.run(scenario(Bench(root, patience_s, **limits)))


def content(path: Path) -> bytes:
    return path.read_bytes()


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)


def open_below(root: Path) -> list[str]:
    """The files below `root` that this process has open."""
    found = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return [path for path in found if path.startswith(str(root))]


async def failure(work: Awaitable[object]) -> tuple[FailureKind, str]:
    with pytest.raises(PreparationFailed) as failed:
        await work
    return failed.value.kind, str(failed.value)


def test_a_blob_is_fetched_once_by_however_many(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        digest = bench.source.add(b"0123456789")
        assert not bench.store.is_sound(digest)
        paths = await asyncio.gather(*(bench.store.blob(digest) for _ in range(5)))
        assert {content(path) for path in paths} == {b"0123456789"}
        assert await bench.store.blob(digest) == paths[0] == bench.paths.blobs / digest
        assert bench.source.asked == [[digest]]
        assert bench.store.is_sound(digest)
        assert bench.left() == [digest]

    play(tmp_path, scenario)


def test_one_that_is_there_is_looked_at_before_it_is_believed(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        digest = bench.source.add(b"0123456789")
        path = await bench.store.blob(digest)
        spoil(path)
        assert not bench.store.is_sound(digest)
        assert content(await bench.store.blob(digest)) == b"0123456789"
        assert len(bench.source.asked) == 2
        another = BundleStore(bench.paths, bench.source, 0.0)
        await another.blob(digest)
        assert len(bench.source.asked) == 2, "its bytes are right"

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("broken", "kind", "words"),
    [
        (
            lambda chunks: NotFound("there is no such blob"),
            FailureKind.START,
            "cannot be fetched: there is no such blob",
        ),
        (lambda chunks: [], FailureKind.START, "the controller sent nothing for blob "),
        (lambda chunks: chunks[:1], FailureKind.START, "the controller sent nothing for blob "),
        (lambda chunks: chunks[1:], FailureKind.START, "chunk of .* at 5 came while .* at 0 was expected"),
        (lambda chunks: [("x", 0, b"", True)], FailureKind.START, "sent blob x, which was not asked for"),
        (lambda chunks: [chunks[0], ("x", 5, b"", True)], FailureKind.START, "chunk of x at 5 came while"),
        (lambda chunks: Unavailable("nobody answers"), FailureKind.PREEMPTED, "cannot be fetched: nobody answers"),
        (lambda chunks: OSError(28, "No space"), FailureKind.WORKER, "cannot be stored here: .*No space"),
    ],
)
def test_what_comes_wrong_leaves_nothing_and_says_whose_fault_it_is(
    tmp_path: Path, broken: Callable[[list[Chunk]], list[Chunk] | Exception], kind: FailureKind, words: str
) -> None:
    async def scenario(bench: Bench) -> None:
        digest = bench.source.add(b"0123456789")
        bench.source.broken = [broken]
        with pytest.raises(PreparationFailed, match=words) as failed:
            await bench.store.blob(digest)
        assert failed.value.kind is kind
        assert bench.left() == []
        assert open_below(tmp_path) == []
        assert content(await bench.store.blob(digest)) == b"0123456789", "and the next one tries again"

    play(tmp_path, scenario)


def test_one_that_this_host_cannot_read_is_the_hosts_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(path: Path) -> None:
        raise OSError(5, "Input/output error")

    async def scenario(bench: Bench) -> None:
        digest = bench.source.add(b"0123456789")
        monkeypatch.setattr(bundle_module, "signature", unreadable)
        kind, text = await failure(bench.store.blob(digest))
        assert kind is FailureKind.WORKER
        assert text == f"blob {digest} cannot be read here: [Errno 5] Input/output error"

    play(tmp_path, scenario)


def damaged(chunks: list[Chunk]) -> list[Chunk]:
    digest, offset, data, last = chunks[-1]
    return [*chunks[:-1], (digest, offset, b"x" * len(data), last)]


def test_what_arrives_damaged_is_asked_for_once_more(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        digest = bench.source.add(b"0123456789")
        bench.source.broken = [damaged]
        assert content(await bench.store.blob(digest)) == b"0123456789"
        other = bench.source.add(b"other")
        bench.source.broken = [damaged, damaged]
        kind, text = await failure(bench.store.blob(other))
        assert kind is FailureKind.PREEMPTED
        assert f"blob {other} arrived damaged: its bytes have digest " in text
        assert bench.left() == [digest]

    play(tmp_path, scenario)


def test_a_controller_that_is_away_is_asked_for_a_while(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        digest = bench.source.add(b"0123456789")
        bench.source.broken = [lambda chunks: Unavailable("away")] * 3
        assert content(await bench.store.blob(digest)) == b"0123456789"
        assert len(bench.source.asked) == 4

    play(tmp_path, scenario, patience_s=60.0)


def test_a_signature_changes_with_every_write(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert signature(path) is None
    path.write_bytes(b"a")
    first = signature(path)
    assert signature(str(path)) == first
    path.write_bytes(b"b")
    assert signature(path) != first


class TestBundles:
    def files(self, source: Source) -> list[pb.BundleFile]:
        parts = [source.add(part) for part in (b"first ", b"second")]
        return [
            pb.BundleFile(path="a/b.txt", size_bytes=12, part_digests=parts),
            pb.BundleFile(path="a/link", symlink_target="b.txt"),
            pb.BundleFile(path="empty", size_bytes=0),
            pb.BundleFile(path="run.sh", size_bytes=6, executable=True, part_digests=parts[:1]),
        ]

    def test_it_is_unpacked_whole_and_once(self, tmp_path: Path) -> None:
        async def scenario(bench: Bench) -> None:
            digest = bench.source.add_bundle(*self.files(bench.source))
            first, second = await asyncio.gather(bench.store.bundle(digest), bench.store.bundle(digest))
            assert first == second == await bench.store.bundle(digest) == bench.paths.bundles / digest
            assert len(bench.source.asked) == 2, "the manifest, and its parts together"
            found = tree(first)
            assert found == {
                "a/b.txt": ("first second", 0o644),
                "a/link": ("-> b.txt", 0),
                "empty": ("", 0o644),
                "run.sh": ("first ", 0o755),
            }
            assert sorted(names(bench.paths.bundles)) == sorted([digest, f"{digest}.complete"])

        play(tmp_path, scenario)

    def test_a_part_that_is_damaged_here_is_fetched_again(self, tmp_path: Path) -> None:
        async def scenario(bench: Bench) -> None:
            digest = bench.source.add_bundle(*self.files(bench.source))
            part = digest_of(b"second")
            (bench.paths.blobs / part).write_bytes(b"SECOND")
            place = await bench.store.bundle(digest)
            assert tree(place)["a/b.txt"][0] == "first second"
            assert bench.source.asked == [[digest], [digest_of(b"first ")], [part]]

        play(tmp_path, scenario)

    def test_many_parts_are_asked_for_a_limited_number_at_a_time(self, tmp_path: Path) -> None:
        async def scenario(bench: Bench) -> None:
            parts = [bench.source.add(b"part %d" % number) for number in range(5)]
            digest = bench.source.add_bundle(pb.BundleFile(path="a", size_bytes=30, part_digests=parts))
            place = await bench.store.bundle(digest)
            assert tree(place)["a"][0] == "part 0part 1part 2part 3part 4"
            assert [len(digests) for digests in bench.source.asked[1:]] == [2, 2, 1]
            assert sorted(part for digests in bench.source.asked[1:] for part in digests) == sorted(parts)

        play(tmp_path, scenario, fetch_batch=2)

    def test_one_that_is_half_there_is_made_anew(self, tmp_path: Path) -> None:
        async def scenario(bench: Bench) -> None:
            digest = bench.source.add_bundle(*self.files(bench.source))
            (bench.paths.bundles / digest / "old").mkdir(parents=True)
            place = await bench.store.bundle(digest)
            assert "old" not in names(place)

        play(tmp_path, scenario)

    @pytest.mark.parametrize("path", ["../out", "/abs", "a/../../b"])
    def test_what_is_no_bundle_is_the_jobs_failure(self, tmp_path: Path, path: str) -> None:
        async def scenario(bench: Bench) -> None:
            kind, text = await failure(bench.store.bundle(bench.source.add_bundle(pb.BundleFile(path=path))))
            assert kind is FailureKind.START
            assert "is not usable: " in text
            kind, text = await failure(bench.store.bundle(bench.source.add(b"\xffno manifest")))
            assert kind is FailureKind.START
            assert list(bench.paths.bundles.iterdir()) == []

        play(tmp_path, scenario)

    def test_what_lacks_on_the_controller_is_the_jobs_failure_and_what_this_disk_refuses_the_hosts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def scenario(bench: Bench) -> None:
            lacking = bench.source.add_bundle(
                pb.BundleFile(path="a", size_bytes=1, part_digests=[digest_of(b"never stored")])
            )
            kind, text = await failure(bench.store.bundle(lacking))
            assert (kind, text.startswith(f"bundle {lacking[:12]} cannot be fetched: ")) == (FailureKind.START, True)
            digest = bench.source.add_bundle(*self.files(bench.source))
            for number, expected in ((28, FailureKind.WORKER), (36, FailureKind.START)):

                def refuse(*_: object, number: int = number) -> None:
                    raise OSError(number, "refused")

                with monkeypatch.context() as patch:
                    patch.setattr(os, "fchmod", refuse)
                    kind, text = await failure(bench.store.bundle(digest))
                assert kind is expected
                assert text == f"bundle {digest[:12]} cannot be unpacked to {bench.paths.bundles / digest}: refused"
                assert names(bench.paths.bundles) == []
            await bench.store.close()

        play(tmp_path, scenario)


def names(place: Path) -> list[str]:
    return [path.name for path in place.iterdir()]


def tree(place: Path) -> dict[str, tuple[str, int]]:
    found = {}
    for path in place.rglob("*"):
        name = str(path.relative_to(place))
        if path.is_symlink():
            found[name] = (f"-> {path.readlink()}", 0)
        elif path.is_file():
            found[name] = (path.read_text(), path.stat().st_mode & 0o777)
    return found
