"""Copies: no reader sees a part, a failure leaves nothing, a kill is resumed, and what arrives is checked."""

import contextlib
import errno
import os
import time
import tracemalloc
from typing import Any, ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rigging.copying import fetch as fetching
from rigging.copying.digest import CorruptCopyError
from rigging.copying.fetch import copy_files
from rigging.copying.local.part import part_path
from rigging.copying.request import Settings
from rigging.copying.source import SourceChangedError
from rigging.distributed_lock import LeaseLostError
from rigging.filesystem import mirror_plan, mirror_prefetch
from rigging.filesystem.budget import TransferBudget
from rigging.prefixes.prefix_store import local_store, other_stores
from support.rigging.faults import Fault, FaultKind

MB = 2**20


class WatchedFileSystem(MemoryFileSystem):
    """A memory filesystem on which a test may act between chunks, and spoil what is read."""

    protocol = "watched"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    before_read: Any = None
    spoil: Any = None

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return MemoryFileSystem._strip_protocol(str(path).replace("watched://", "memory://", 1))

    def cat_file(self, path: str, start: Any = None, end: Any = None, **kwargs: Any) -> bytes:
        cls = type(self)
        if cls.before_read is not None:
            cls.before_read(start)
        data = super().cat_file(path, start, end)
        return cls.spoil(start, data) if cls.spoil is not None else data


@pytest.fixture
def watched(make_regions: Any, make_prefix: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    import fsspec

    fsspec.register_implementation("watched", WatchedFileSystem, clobber=True)
    for name in ("before_read", "spoil"):
        monkeypatch.setattr(WatchedFileSystem, name, None)
    WatchedFileSystem.store.clear()

    def make(here: str, data: bytes, **options: Any) -> Any:
        regions = make_regions(here, "memory", chunk_bytes=5 * MB, **options)
        monkeypatch.setenv("MARIN_MIRROR_PREFIXES", "watched://there")
        WatchedFileSystem().pipe_file("/there/d/x", data)
        return regions

    return make


HERE = ("local", "memory", "gcs", "s3")


@pytest.mark.parametrize("here", HERE)
@pytest.mark.parametrize("size", [1000, 16 * MB])
def test_a_failed_copy_leaves_nothing_and_gives_its_budget_back(watched: Any, budget: TransferBudget, here, size):
    regions = watched(here, os.urandom(size))

    def fail(start: Any) -> None:
        assert regions.has(0, "d/x") is None, "a reader would see a part"
        if not size > 5 * MB or start == 10 * MB:
            raise ConnectionError("the link is down")

    WatchedFileSystem.before_read = fail
    with pytest.raises(ConnectionError, match="the link is down"):
        regions.fs.cat_file("d/x")
    assert regions.files(0) == []
    assert budget.bytes_used == 0
    if here == "local":
        assert os.listdir(regions.prefixes[0]) == []
    WatchedFileSystem.before_read = None
    assert len(regions.fs.cat_file("d/x")) == size
    assert budget.bytes_used == size
    assert regions.files(0) == ["d/x"]


@pytest.mark.parametrize(
    ("here", "s3_parts"),
    [
        ("local", 0),
        pytest.param("gcs", 0, marks=pytest.mark.soak),
        pytest.param("s3", 10_000, marks=pytest.mark.soak),
        pytest.param("s3", 4, marks=pytest.mark.soak),
    ],
)
def test_a_copy_of_any_size_is_held_in_bounded_memory(watched: Any, monkeypatch: pytest.MonkeyPatch, here, s3_parts):
    size = 200 * MB
    regions = watched(here, b"")
    monkeypatch.setattr(regions.fs, "settings", Settings(s3_parts=s3_parts) if s3_parts else Settings())
    info = WatchedFileSystem.info
    monkeypatch.setattr(WatchedFileSystem, "info", lambda self, path: {**info(self, path), "size": size})
    # Made when they are read: nothing but the copy is in memory.
    monkeypatch.setattr(WatchedFileSystem, "cat_file", lambda self, path, start=0, end=size: bytes(end - start))
    tracemalloc.start()
    try:
        fetching.fetch("d/x", regions.fs.settings)
        _, highest = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert highest < 64 * MB, f"{highest / MB:.0f} MB"
    assert regions.fs.info("d/x")["size"] == size


@pytest.mark.process
def test_parts_too_large_for_memory_arrive_as_they_were(watched: Any, monkeypatch: pytest.MonkeyPatch):
    data = os.urandom(40 * MB + 17)
    regions = watched("s3", data)
    monkeypatch.setattr(regions.fs, "settings", Settings(s3_parts=2))
    assert regions.fs.cat_file("d/x") == data
    assert regions.files(0) == ["d/x"]


def test_the_lease_on_a_copy_is_renewed_while_it_lasts(watched: Any):
    regions = watched("gcs", b"x", heartbeat_interval=0.05, heartbeat_timeout=2.0)
    seen: set[bytes] = set()
    give_up_at = time.monotonic() + 60

    def wait_for_renewals(start: Any) -> None:
        while len(seen) < 4 and time.monotonic() < give_up_at:
            locks = [path for path in regions.files(0) if path.endswith(".lock")]
            assert len(locks) == 1
            seen.add(regions.has(0, locks[0]))

    WatchedFileSystem.before_read = wait_for_renewals
    assert regions.fs.cat_file("d/x") == b"x"
    assert len(seen - {None}) >= 4
    assert [path for path in regions.files(0) if path.endswith(".lock")] == [], "released at the end"


@pytest.mark.parametrize("often", ["always", "once"])
def test_who_lost_the_lease_reads_nothing_more_and_waits_for_it_again(
    watched: Any, budget: TransferBudget, lose_lease: Any, one_stripe: list[str], often: str
) -> None:
    """Its successor copies it: to read it here, too, would be paid twice. What is done by then is not done again."""
    regions, small = watched("memory", b""), one_stripe[:3]
    for name in small:
        WatchedFileSystem().pipe_file(f"/there/{name}", b"12345")
    copied: list[str] = []

    def is_lost() -> bool:
        if not copied or (often == "once" and len(taken) > 1):
            return False
        if often == "once":  # its successor has made the second meanwhile
            local_store().fs.pipe_file(local_store().path(small[1]), b"12345")
        return True

    taken = lose_lease(is_lost)
    reads: list[Any] = []
    WatchedFileSystem.before_read = reads.append
    wanted = [fetching.locate(name) for name in small]
    lost = pytest.raises(LeaseLostError, match="stripe was lost") if often == "always" else contextlib.nullcontext()
    with lost:
        copy_files(wanted, local_store(), regions.fs.settings, lambda found, _: copied.append(found.path))
    done = 1 if often == "always" else 2
    assert (copied, len(reads), budget.bytes_used) == (small if done == 2 else small[:1], done, 5 * done)
    if often == "once":
        assert [regions.fs.cat_file(name) for name in small] == [b"12345"] * 3


@pytest.mark.parametrize("left", ["a part", "too much"])
def test_what_a_killed_local_copy_left_is_gone_on_with_or_begun_anew(watched: Any, budget: TransferBudget, left: str):
    data = os.urandom(12 * MB + 5)
    regions = watched("local", data)
    part = part_path(f"{regions.prefixes[0]}/d/x", fetching.locate("d/x").version.fingerprint())
    os.makedirs(f"{regions.prefixes[0]}/d")
    with open(part, "wb") as killed:
        killed.write(data[: 10 * MB] if left == "a part" else b"x" * 20 * MB)
    begun: list[Any] = []
    WatchedFileSystem.before_read = begun.append
    assert regions.fs.cat_file("d/x") == data
    assert regions.files(0) == ["d/x"]
    assert begun == ([10 * MB] if left == "a part" else [0, 5 * MB, 10 * MB])
    assert budget.bytes_used == len(data) - begun[0]


@pytest.mark.parametrize("here", HERE)
def test_short_reads_are_not_taken_for_the_whole(watched: Any, budget: TransferBudget, here):
    regions = watched(here, os.urandom(5000))
    WatchedFileSystem.spoil = lambda start, data: data[:1000]
    with pytest.raises(CorruptCopyError, match="1000 bytes arrived instead of 5000"):
        regions.fs.cat_file("d/x")
    assert regions.files(0) == []
    assert budget.bytes_used == 0


@pytest.mark.parametrize("here", HERE)
def test_a_source_that_changes_meanwhile_is_copied_anew(watched: Any, budget: TransferBudget, here):
    regions = watched(here, b"1" * 12 * MB)
    new = b"2" * 11 * MB

    def change(start: Any) -> None:
        if start == 5 * MB:
            WatchedFileSystem.before_read = None
            WatchedFileSystem().pipe_file("/there/d/x", new)

    WatchedFileSystem.before_read = change
    assert regions.fs.cat_file("d/x") == new
    assert regions.files(0) == ["d/x"]
    assert budget.bytes_used == len(new)


@pytest.mark.parametrize(("here", "size"), [*((here, 12 * MB) for here in HERE), ("gcs", 100), ("s3", 100)])
def test_what_a_user_writes_is_kept(watched: Any, here, size):
    regions = watched(here, b"1" * size)

    def write(start: Any) -> None:
        if start in (5 * MB, None):
            with regions.fs.open("d/x", "wb") as stream:
                stream.write(b"mine")

    WatchedFileSystem.before_read = write
    regions.fs.cat_file("d/x")
    if here != "memory":  # which has no way to write only what is not there
        assert regions.has(0, "d/x") == b"mine"
    assert regions.files(0) == ["d/x"]


@pytest.mark.parametrize(("there", "here"), [("gcs", "local"), ("s3", "local"), ("gcs", "s3"), ("s3", "gcs")])
@pytest.mark.parametrize("size", [5000, 11 * MB])
def test_checksums_of_the_store_are_compared(make_regions: Any, monkeypatch: Any, budget: Any, here, there, size):
    regions = make_regions(here, there, chunk_bytes=5 * MB)
    regions.put(1, "x", os.urandom(size))
    fs = other_stores()[0].fs
    cat_file = fs.cat_file

    def one_bit_wrong(*arguments: Any, **options: Any) -> bytes:
        data = cat_file(*arguments, **options)
        return bytes([data[0] ^ 1]) + data[1:]

    monkeypatch.setattr(fs, "cat_file", one_bit_wrong)
    with pytest.raises(CorruptCopyError, match=r"x: the copy has md5 \w+ instead of"):
        regions.fs.cat_file("x")
    assert regions.files(0) == []
    assert budget.bytes_used == 0


@pytest.mark.parametrize(
    ("store", "size", "options"),
    [("gcs", 1000, {}), ("gcs", 70 * MB, {}), ("s3", 1000, {}), ("s3", 12 * MB, {"s3_copy_bytes": 5 * MB})],
    ids=str,
)
def test_one_store_copies_by_itself(
    make_regions: Any, request: Any, budget: TransferBudget, store: str, size: int, options: dict[str, int]
) -> None:
    regions = make_regions(store, store, **options)
    data = os.urandom(size)
    regions.put(1, "d/x", data)
    server = request.getfixturevalue(store)
    server.reset_traffic()
    fetching.fetch("d/x", regions.fs.settings)
    source = regions.prefixes[1].split("/")[2]
    assert server.traffic()[source].bytes_out < 20_000, "the bytes must not come through this machine"
    assert regions.has(0, "d/x") == data
    assert budget.bytes_used == size
    assert regions.files(0) == ["d/x"]


def test_small_objects_are_copied_together_and_what_is_there_stays(make_regions: Any, budget: TransferBudget):
    regions = make_regions("gcs", "gcs")
    for number in range(100):
        regions.put(1, f"d/{number:03}", b"%03d" % number)
    plan = mirror_plan("d")
    regions.put(0, "d/007", b"mine")
    regions.put(1, "d/050", b"newer")
    moved: dict[str, int] = {}
    copy_files(plan.files, plan.destination, regions.fs.settings, lambda wanted, n: moved.update({wanted.path: n}))
    odd = {"d/007": 0, "d/050": 5}
    assert moved == {f"d/{number:03}": 3 for number in range(100)} | odd
    assert budget.bytes_used == (100 - 2) * 3 + 5
    found = {f"d/{number:03}": regions.has(0, f"d/{number:03}") for number in range(100)}
    expected = {f"d/{number:03}": b"%03d" % number for number in range(100)}
    assert found == expected | {"d/007": b"mine", "d/050": b"newer"}


def test_one_object_that_cannot_be_copied_is_named_and_not_charged(make_regions: Any, gcs: Any, budget: TransferBudget):
    regions = make_regions("gcs", "gcs")
    for number in range(8):
        regions.put(1, f"d/{number}", b"123")
    gcs.inject(Fault(FaultKind.ERROR, match=r"rewriteTo.*d/5", status=403))
    try:
        with pytest.raises(OSError, match=r"403|injected"):
            mirror_prefetch("d")
    finally:
        gcs.clear_faults()
    there = [path for path in regions.files(0) if path.startswith("d/")]
    assert "d/5" not in there
    assert budget.bytes_used == 3 * len(there)


FAULTS = [
    # gcsfs waits seconds before it tries again: one fault each way here, the others in the soak tier.
    pytest.param(here, there, kind, marks=pytest.mark.process if here == "s3" or kind is quick else pytest.mark.soak)
    for here, there, quick in [
        ("gcs", "gcs", FaultKind.APPLIED_DROP),
        ("gcs", "local", FaultKind.APPLIED_ERROR),
        ("local", "gcs", FaultKind.DROP),
        ("s3", "s3", FaultKind.ERROR),
    ]
    for kind in (FaultKind.ERROR, FaultKind.DROP, FaultKind.APPLIED_ERROR, FaultKind.APPLIED_DROP)
]


@pytest.mark.parametrize(("here", "there", "kind"), FAULTS)
def test_faults_of_the_store_are_ridden_out(make_regions: Any, request: Any, budget: Any, here, there, kind):
    regions = make_regions(here, there, chunk_bytes=MB)
    data = os.urandom(3 * MB)
    regions.put(1, "d/x", data)
    server = request.getfixturevalue("s3" if here == "s3" else "gcs")
    bucket = (regions.prefixes[0] if here != "local" else regions.prefixes[1]).split("/")[2]
    server.inject(Fault(kind, match=rf"(POST|PUT|GET) .*{bucket}.*(d/x|compose|copies)", status=503, times=2))
    try:
        assert regions.fs.cat_file("d/x") == data
    finally:
        server.clear_faults()
    assert regions.has(0, "d/x") == data
    assert budget.bytes_used in (0, len(data))
    assert regions.files(0) == ["d/x"]


def test_a_name_that_is_no_utf8_is_mirrored_alone_and_with_others(make_regions: Any) -> None:
    regions = make_regions("local", "local")
    names = [os.fsdecode(b"d/caf\xe9-%d" % number) for number in range(4)]
    for name in names:
        regions.put(1, name, b"x" * 10)
    assert regions.fs.cat_file(names[0]) == b"x" * 10
    mirror_prefetch("d")
    assert [regions.has(0, name) for name in names] == [b"x" * 10] * 4


@pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSYS])
def test_where_the_kernel_copies_nothing_between_two_disks_this_process_does(
    make_regions: Any, monkeypatch: pytest.MonkeyPatch, budget: TransferBudget, number: int
) -> None:
    asked: list[int] = []

    def refuse(*_: Any) -> int:
        asked.append(number)
        raise OSError(number, os.strerror(number))

    pread, counts = os.pread, set[int]()

    def read(descriptor: int, count: int, offset: int) -> bytes:
        counts.add(count)
        return pread(descriptor, count, offset)

    monkeypatch.setattr(os, "copy_file_range", refuse)
    monkeypatch.setattr(os, "pread", read)
    regions = make_regions("local", "local")
    data = os.urandom(3 * MB + 17)
    regions.put(1, "d/x", data)
    assert regions.fs.cat_file("d/x") == data
    assert budget.bytes_used == len(data)
    assert asked == [number], "it is asked once a file"
    assert max(counts) <= MB, "a file may be larger than the memory"


def test_a_disk_error_leaves_nothing(
    make_regions: Any, monkeypatch: pytest.MonkeyPatch, budget: TransferBudget
) -> None:
    def fail(*_: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "copy_file_range", fail)
    regions = make_regions("local", "local")
    regions.put(1, "d/x", bytes(2 * MB))
    with pytest.raises(OSError, match="Input/output"):
        regions.fs.cat_file("d/x")
    assert os.listdir(regions.prefixes[0]) == []
    assert budget.bytes_used == 0


def test_a_source_that_shrinks_is_copied_anew(
    make_regions: Any, monkeypatch: pytest.MonkeyPatch, budget: TransferBudget
) -> None:
    regions = make_regions("local", "local")
    regions.put(1, "d/x", bytes(4 * MB))
    copy_range, there = os.copy_file_range, f"{regions.prefixes[1]}/d/x"

    def shrink(source: int, target: int, count: int, *offsets: int) -> int:
        if os.path.getsize(there) == 4 * MB:
            os.truncate(there, 2 * MB + 1)
        return copy_range(source, target, min(count, MB), *offsets)

    monkeypatch.setattr(os, "copy_file_range", shrink)
    assert regions.fs.cat_file("d/x") == bytes(2 * MB + 1)
    assert budget.bytes_used == 2 * MB + 1


def test_a_source_that_goes_meanwhile_is_in_no_region(watched: Any, make_regions: Any, budget: TransferBudget) -> None:
    for size, moment in ((3, None), (12 * MB, 10 * MB)):
        regions = watched("local", bytes(size))

        def remove(start: int | None, moment: int | None = moment) -> None:
            if start == moment:
                WatchedFileSystem().rm("/there/d/x")

        WatchedFileSystem.before_read = remove
        with pytest.raises(FileNotFoundError, match="no region has this file"):
            regions.fs.cat_file("d/x")
        assert regions.files(0) == []
    for here, there in (("local", "local"), ("local", "memory"), ("memory", "local")):
        regions = make_regions(here, there)
        regions.put(1, "d/x", b"123")
        wanted = fetching.locate("d/x")
        regions.raw(1).rm(f"{regions.prefixes[1]}/d/x")
        with pytest.raises(FileNotFoundError, match="no region has this file"):
            copy_files([wanted], local_store(), regions.fs.settings)
        assert regions.files(0) == []
    assert budget.bytes_used == 0


def test_a_source_that_never_stays_the_same_is_given_up(watched: Any, budget: TransferBudget) -> None:
    regions = watched("local", bytes(12 * MB))
    tried: list[int] = []

    def change(start: Any) -> None:
        if start == 5 * MB:
            tried.append(start)
            WatchedFileSystem().pipe_file("/there/d/x", os.urandom(12 * MB + len(tried)))

    WatchedFileSystem.before_read = change
    with pytest.raises(SourceChangedError, match="d/x changed during its copy; the copy was discarded"):
        regions.fs.cat_file("d/x")
    assert len(tried) == 3
    assert regions.files(0) == []
    assert budget.bytes_used == 0
