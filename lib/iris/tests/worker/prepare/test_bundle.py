"""Blobs and bundles on a host, from a source that is played: whole or not there, and whose fault what fails is."""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from iris.domain.states import FailureKind
from iris.rpc.generated import iris_pb2 as pb
from iris.worker.paths import WorkPaths
from iris.worker.prepare import bundle as bundle_module
from iris.worker.prepare.bundle import BundleStore
from iris.worker.prepare.single_flight import SingleFlight
from iris.worker.types import PreparationFailed
from rigging.errors import NotFound, Unavailable
from support.iris.blobs import Chunk, PlayedBlobs


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Bench:
    def __init__(self, root: Path, patience_s: float = 0.0, **limits: int) -> None:
        self.paths = WorkPaths(root)
        self.paths.make()
        self.source = PlayedBlobs()
        self.store = BundleStore(self.paths, self.source, patience_s, **limits)

    def left(self) -> list[str]:
        return sorted(path.name for path in self.paths.blobs.iterdir())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def open_below(root: Path) -> list[str]:
    """The files below `root` that this process has open."""
    found = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return [path for path in found if path.startswith(str(root))]


async def failure(work: Awaitable[object]) -> tuple[FailureKind, str]:
    with pytest.raises(PreparationFailed) as failed:
        await work
    return failed.value.kind, str(failed.value)


async def test_a_blob_is_fetched_once_by_however_many_and_looked_at_before_it_is_believed(bench: Bench) -> None:
    digest = bench.source.add(b"0123456789")
    assert not bench.store.is_sound(digest)
    paths = await asyncio.gather(*(bench.store.blob(digest) for _ in range(5)))
    assert {path.read_bytes() for path in paths} == {b"0123456789"}
    assert await bench.store.blob(digest) == paths[0] == bench.paths.blobs / digest
    assert bench.source.asked == [[digest]]
    assert bench.store.is_sound(digest)
    assert bench.left() == [digest]
    digest = bench.source.add(b"0123456789")
    path = await bench.store.blob(digest)
    path.write_bytes(b"1123456789")
    assert not bench.store.is_sound(digest)
    assert (await bench.store.blob(digest)).read_bytes() == b"0123456789"
    assert len(bench.source.asked) == 2
    another = BundleStore(bench.paths, bench.source, 0.0)
    await another.blob(digest)
    assert len(bench.source.asked) == 2, "its bytes are right"


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
        (lambda chunks: chunks[1:], FailureKind.START, "chunk of .* at 5 came instead of .* at 0"),
        (lambda chunks: [("x", 0, b"", True)], FailureKind.START, "sent blob x, which was not requested"),
        (lambda chunks: [chunks[0], ("x", 5, b"", True)], FailureKind.START, "chunk of x at 5 came instead of"),
        (lambda chunks: Unavailable("nobody answers"), FailureKind.PREEMPTED, "cannot be fetched: nobody answers"),
        (lambda chunks: OSError(28, "No space"), FailureKind.WORKER, "cannot be stored on the worker: .*No space"),
    ],
)
async def test_what_comes_wrong_leaves_nothing_and_says_whose_fault_it_is(
    bench: Bench,
    tmp_path: Path,
    broken: Callable[[list[Chunk]], list[Chunk] | Exception],
    kind: FailureKind,
    words: str,
) -> None:
    digest = bench.source.add(b"0123456789")
    bench.source.broken = [broken]
    with pytest.raises(PreparationFailed, match=words) as failed:
        await bench.store.blob(digest)
    assert failed.value.kind is kind
    assert bench.left() == []
    assert open_below(tmp_path) == []
    assert (await bench.store.blob(digest)).read_bytes() == b"0123456789", "and the next one tries again"


async def test_one_that_cannot_be_read_here_is_the_hosts_failure(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(path: Path) -> None:
        raise OSError(5, "Input/output error")

    digest = bench.source.add(b"0123456789")
    monkeypatch.setattr(bundle_module, "signature", unreadable)
    kind, text = await failure(bench.store.blob(digest))
    assert kind is FailureKind.WORKER
    assert text == f"blob {digest} cannot be read on the worker: [Errno 5] Input/output error"


def damaged(chunks: list[Chunk]) -> list[Chunk]:
    digest, offset, data, last = chunks[-1]
    return [*chunks[:-1], (digest, offset, b"x" * len(data), last)]


async def test_a_damaged_blob_is_asked_for_once_more_and_a_controller_that_is_away_for_a_while(tmp_path: Path) -> None:
    bench = Bench(tmp_path, patience_s=60.0)
    digest = bench.source.add(b"0123456789")
    bench.source.broken = [damaged, *[lambda chunks: Unavailable("away")] * 3]
    assert (await bench.store.blob(digest)).read_bytes() == b"0123456789"
    assert len(bench.source.asked) == 5
    other = bench.source.add(b"other")
    bench.source.broken = [damaged, damaged]
    kind, text = await failure(bench.store.blob(other))
    assert kind is FailureKind.PREEMPTED
    assert f"blob {other} arrived damaged: its bytes have digest " in text
    assert bench.left() == [digest]


class TestBundles:
    def files(self, source: PlayedBlobs) -> list[pb.BundleFile]:
        return [
            source.add_parts("a/b.txt", b"first ", b"second"),
            pb.BundleFile(path="a/link", symlink_target="b.txt"),
            pb.BundleFile(path="empty", size_bytes=0),
            source.add_parts("run.sh", b"first ", executable=True),
        ]

    async def test_it_is_unpacked_whole_and_once(self, bench: Bench) -> None:
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
        assert sorted(os.listdir(bench.paths.bundles)) == sorted([digest, f"{digest}.complete"])

    async def test_links_that_lead_out_by_way_of_each_other_are_refused(self, bench: Bench) -> None:
        """The worker reads pyproject.toml, and as root could read what the job's tasks cannot."""
        links = [("a/b/up", "../.."), ("a/b/on", "up/.."), ("pyproject.toml", "a/b/on/../credential.json")]
        digest = bench.source.add_bundle(*(pb.BundleFile(path=path, symlink_target=target) for path, target in links))
        kind, text = await failure(bench.store.bundle(digest))
        assert (kind, text) == (FailureKind.START, "the bundle's link 'a/b/on' leads out of the bundle")
        assert not (bench.paths.bundles / digest).exists()

    async def test_what_is_damaged_or_half_there_is_made_anew(self, bench: Bench) -> None:
        digest = bench.source.add_bundle(*self.files(bench.source))
        part = digest_of(b"second")
        (bench.paths.blobs / part).write_bytes(b"SECOND")
        (bench.paths.bundles / digest / "old").mkdir(parents=True)
        place = await bench.store.bundle(digest)
        assert tree(place)["a/b.txt"][0] == "first second"
        assert bench.source.asked == [[digest], [digest_of(b"first ")], [part]]
        assert "old" not in os.listdir(place)

    async def test_what_lacks_is_asked_for_a_limited_number_at_a_time(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path, fetch_batch=2)
        parts = [b"part %d" % number for number in range(5)]
        place = await bench.store.bundle(bench.source.add_bundle(bench.source.add_parts("a", *parts)))
        assert tree(place)["a"][0] == "part 0part 1part 2part 3part 4"
        assert [len(digests) for digests in bench.source.asked[1:]] == [2, 2, 1]
        assert {part for digests in bench.source.asked[1:] for part in digests} == {*map(digest_of, parts)}
        other = bench.source.add_bundle(bench.source.add_parts("b", *parts, b"new"))
        await bench.store.bundle(other)
        assert bench.source.asked[4:] == [[other], [digest_of(b"new")]]

    @pytest.mark.parametrize(
        ("manifest", "words"),
        [
            *((pb.BundleManifest(format=1, files=[pb.BundleFile(path=path)]), "not a plain relative path")
              for path in ("../out", "/abs", "a/../../b")),
            (pb.BundleManifest(format=2), "this release reads format 1"),
            (None, "not a bundle manifest"),
        ],
    )  # fmt: skip
    async def test_garbage_fails_the_job(self, bench: Bench, manifest: pb.BundleManifest | None, words: str) -> None:
        data = b"\xffno manifest" if manifest is None else manifest.SerializeToString()
        kind, text = await failure(bench.store.bundle(bench.source.add(data)))
        assert kind is FailureKind.START
        assert "is not usable: " in text
        assert words in text
        assert os.listdir(bench.paths.bundles) == []

    async def test_whose_failure_lacking_parts_or_room_is(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        lacking = bench.source.add_bundle(pb.BundleFile(path="a", size_bytes=1, part_digests=[digest_of(b"not there")]))
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
            assert os.listdir(bench.paths.bundles) == []
        await bench.store.close()


def tree(place: Path) -> dict[str, tuple[str, int]]:
    found = {}
    for path in place.rglob("*"):
        name = str(path.relative_to(place))
        if path.is_symlink():
            found[name] = (f"-> {path.readlink()}", 0)
        elif path.is_file():
            found[name] = (path.read_text(), path.stat().st_mode & 0o777)
    return found


async def test_what_is_fetched_goes_on_for_others_when_one_gives_up() -> None:
    async def work() -> str:
        await go.wait()
        return "done"

    go, flights = asyncio.Event(), SingleFlight[str]()
    first, second = [asyncio.create_task(flights.run("key", work)) for _ in range(2)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    go.set()
    assert await second == "done"
    assert first.cancelled()


async def test_what_nobody_waits_for_ends_and_is_begun_anew_for_who_comes_then() -> None:
    begun = asyncio.Queue[None]()

    async def work() -> str:
        begun.put_nowait(None)
        await go.wait()
        return "done"

    go, flights = asyncio.Event(), SingleFlight[str](unwanted_s=0)
    waiting = [asyncio.create_task(flights.run("key", work)) for _ in range(2)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await asyncio.sleep(0)  # the work hears of it
    later = asyncio.create_task(flights.run("key", work))
    for _ in range(2):
        await begun.get()
    go.set()
    assert await later == "done"
