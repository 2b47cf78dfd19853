"""Copies into object stores: taken up after a kill, cleared away after an error, never over what is there."""

import dataclasses
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from s3fs import S3FileSystem

from rigging.copying import fetch as fetching
from rigging.copying.digest import CorruptCopyError
from rigging.copying.fetch import copy_files
from rigging.copying.objects.journal import Journal
from rigging.copying.request import Settings
from rigging.distributed_lock import LeaseLostError
from rigging.filesystem import mirror_plan
from rigging.filesystem.budget import TransferBudget
from rigging.prefixes.paths import PRIVATE_DIRECTORY
from rigging.prefixes.prefix_store import local_store, other_stores

MB = 2**20
CHUNKS = {"gcs": 1000, "s3": 5 * MB}  # S3 has no smaller parts


class Killed(BaseException):
    """Ends a copy as a kill does: what clears away after errors does not run."""


@pytest.fixture
def reads(make_regions: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Where the pieces that are read begin; `reads.fail(at, error)` makes one fail."""
    failing = dict[int, BaseException]()

    class Begun(list[int]):
        def make_regions(self, *regions: str, **options: Any) -> Any:
            """Make regions, and watch the reads of the other one."""
            made, fs = make_regions(*regions, **options), other_stores()[0].fs
            cat_file = fs.cat_file

            def watched(path: str, start: int = 0, **options: Any) -> Any:
                if PRIVATE_DIRECTORY not in path:
                    if start in failing:
                        raise failing.pop(start)
                    self.append(start)
                return cat_file(path, start=start, **options)

            monkeypatch.setattr(fs, "cat_file", watched)
            return made

        def fail(self, at: int, error: BaseException) -> None:
            failing[at] = error

    return Begun()


@pytest.fixture
def s3_calls(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The calls of S3's methods about copies; `change(method, arguments)` may change or refuse one."""

    class Calls(list[str]):
        change: Callable[[str, dict[str, Any]], None] = staticmethod(lambda method, arguments: None)

    calls, call_s3 = Calls(), S3FileSystem.call_s3

    def watched(fs: Any, method: str, *arguments: Any, **options: Any) -> Any:
        calls.append(method)
        calls.change(method, options)
        return call_s3(fs, method, *arguments, **options)

    monkeypatch.setattr(S3FileSystem, "call_s3", watched)
    return calls


def one_part_a_page(method: str, arguments: dict[str, Any]) -> None:
    if method == "list_parts":
        arguments["MaxParts"] = 1


@pytest.mark.process
@pytest.mark.parametrize("lost", ["upload", "journal"])
def test_an_upload_that_the_store_has_lost_is_begun_anew(reads: Any, lost: str) -> None:
    regions = reads.make_regions("s3", "memory", chunk_bytes=5 * MB)
    data = os.urandom(11 * MB)
    regions.put(1, "d/x", data)
    reads.fail(10 * MB, Killed())
    with pytest.raises(Killed):
        regions.fs.cat_file("d/x")
    bucket, fs = regions.prefixes[0].split("/")[2], regions.raw(0)
    if lost == "upload":
        (upload,) = fs.call_s3("list_multipart_uploads", Bucket=bucket)["Uploads"]
        fs.call_s3("abort_multipart_upload", Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    else:
        (journal,) = [path for path in regions.files(0) if path.endswith(".json")]
        regions.put(0, journal, b"[1]")
    reads.clear()
    assert regions.fs.cat_file("d/x") == data
    assert reads == [0, 5 * MB, 10 * MB]
    assert regions.files(0) == ["d/x"]


@pytest.mark.parametrize("how", ["killed", "lost the lease"])
@pytest.mark.parametrize("here", CHUNKS)
def test_what_was_sent_is_not_sent_again(
    budget: TransferBudget, reads: Any, s3_calls: Any, lose_lease: Any, here: str, how: str
) -> None:
    """Also by the successor of one that lost its lease: to remove it would break the other's copy."""
    chunk = CHUNKS[here]
    regions = reads.make_regions(here, "memory", chunk_bytes=chunk)
    data = os.urandom(2 * chunk + 17)
    regions.put(1, "d/x", data)
    held_up = [True]
    if how == "killed":
        reads.fail(2 * chunk, Killed())
    else:
        lose_lease(lambda: bool(held_up) and 2 * chunk in reads)
    with pytest.raises((Killed, LeaseLostError)):
        regions.fs.cat_file("d/x")
    assert budget.bytes_used == 0
    held_up.clear()
    reads.clear()
    s3_calls.change = one_part_a_page
    assert regions.fs.cat_file("d/x") == data
    assert reads == [2 * chunk] if how == "killed" else min(reads) >= chunk
    assert budget.bytes_used == len(data) - reads[0]
    assert regions.files(0) == ["d/x"]


def uploads(regions: Any) -> list[Any]:
    bucket = regions.prefixes[0].split("/")[2]
    found: list[Any] = regions.raw(0).call_s3("list_multipart_uploads", Bucket=bucket).get("Uploads", [])
    return found


@pytest.mark.process
@pytest.mark.parametrize("ends", ["killed", "error"])
def test_a_part_by_part_copy_that_ends_early_is_taken_up_or_cleared_away(
    make_regions: Any, budget: TransferBudget, s3_calls: Any, ends: str
) -> None:
    regions = make_regions("s3", "s3", s3_copy_bytes=5 * MB)
    data = os.urandom(12 * MB)
    regions.put(1, "d/x", data)

    def fail(method: str, arguments: dict[str, Any]) -> None:
        if arguments.get("PartNumber") == 3:
            raise Killed if ends == "killed" else ConnectionError("the link is down")

    s3_calls.change = fail
    with pytest.raises((Killed, ConnectionError)):
        fetching.fetch("d/x", regions.fs.settings)
    assert budget.bytes_used == 0
    assert len(uploads(regions)) == (ends == "killed"), "parts that are left behind are paid for by the month"
    s3_calls.clear()
    s3_calls.change = lambda method, arguments: None
    fetching.fetch("d/x", regions.fs.settings)
    assert s3_calls.count("upload_part_copy") == (1 if ends == "killed" else 3)
    assert budget.bytes_used == (2 * MB if ends == "killed" else 12 * MB)
    assert regions.has(0, "d/x") == data
    assert regions.files(0) == ["d/x"]
    assert uploads(regions) == []


@pytest.mark.process
@pytest.mark.parametrize("times", [2, 3])
def test_a_part_that_waits_on_disk_is_sent_anew_from_its_start(make_regions: Any, s3_calls: Any, times: int) -> None:
    regions = make_regions("s3", "memory", chunk_bytes=5 * MB, s3_memory_bytes=1)
    data = os.urandom(7 * MB)
    regions.put(1, "d/x", data)
    failures = iter(range(times))

    def fail(method: str, arguments: dict[str, Any]) -> None:
        if method == "upload_part" and next(failures, None) is not None:
            arguments["Body"].read(1000)
            raise OSError("the part did not arrive")

    s3_calls.change = fail
    if times == 2:
        assert regions.fs.cat_file("d/x") == data
    else:
        with pytest.raises(OSError, match="the part did not arrive") as caught:
            regions.fs.cat_file("d/x")
        assert caught.tb is not None, "it holds the frames of the copy"
        assert not [here.name for here in threading.enumerate() if here.name.startswith("mirror-read")]
    assert regions.files(0) == ["d/x"] * (times == 2)
    assert uploads(regions) == []


@pytest.mark.process
def test_an_object_that_came_out_too_short_is_removed(make_regions: Any, budget: TransferBudget, s3_calls: Any) -> None:
    regions = make_regions("s3", "memory", chunk_bytes=5 * MB)
    regions.put(1, "d/x", os.urandom(12 * MB))

    def lose_a_part(method: str, arguments: dict[str, Any]) -> None:
        if method == "complete_multipart_upload":
            del arguments["MultipartUpload"]["Parts"][-1]

    s3_calls.change = lose_a_part
    with pytest.raises(CorruptCopyError, match=f"d/x: {10 * MB} bytes arrived of {12 * MB} bytes"):
        regions.fs.cat_file("d/x")
    assert regions.files(0) == []
    assert budget.bytes_used == 0


def test_many_parts_are_put_together_in_order_and_removed(make_regions: Any, budget: TransferBudget) -> None:
    regions = make_regions("gcs", "memory", chunk_bytes=1000, gcs_compose_parts=2)
    data = os.urandom(5001)
    regions.put(1, "d/x", data)
    assert regions.fs.cat_file("d/x") == data
    assert regions.files(0) == ["d/x"]
    assert budget.bytes_used == len(data)


@pytest.mark.parametrize("store", ["gcs", "s3"])
def test_a_stores_copy_replaces_nothing(make_regions: Any, budget: TransferBudget, s3_calls: Any, store: str) -> None:
    def refuse(method: str, arguments: dict[str, Any]) -> None:  # the test server does not look at the conditions
        if method == "copy_object" and arguments["IfNoneMatch"] == "*" and arguments["CopySourceIfMatch"]:
            raise FileExistsError

    s3_calls.change = refuse
    regions = make_regions(store, store)
    regions.put(1, "d/x", b"theirs")
    plan = mirror_plan("d/x")
    regions.put(0, "d/x", b"mine")
    copy_files(plan.files, plan.destination, regions.fs.settings)
    assert regions.has(0, "d/x") == b"mine"
    assert budget.bytes_used == 0


@pytest.mark.parametrize("together", [False, True])
def test_what_gcs_copied_wrongly_is_removed(make_regions: Any, budget: TransferBudget, together: bool) -> None:
    regions = make_regions("gcs", "gcs")
    for name in ("x", "y"):
        regions.put(1, f"d/{name}", b"123")
    files = list(mirror_plan("d" if together else "d/x").files)
    files[0] = dataclasses.replace(files[0], version=dataclasses.replace(files[0].version, crc32c="00000000"))
    with pytest.raises(CorruptCopyError, match="d/x: the copy's size or checksum is not the source's"):
        copy_files(files, local_store(), regions.fs.settings)
    left = [path for path in regions.files(0) if path.startswith("d/")]
    assert left in ([], ["d/y"]), "the other one is copied at the same time, or not begun"
    assert budget.bytes_used == 3 * len(left)


@pytest.mark.parametrize("usable", [False, True])
def test_a_killed_rewrite_goes_on_if_gcs_can(make_regions: Any, monkeypatch: pytest.MonkeyPatch, usable: bool) -> None:
    regions = make_regions("gcs", "gcs")
    regions.put(1, "d/x", bytes(70 * MB))
    wanted, fs, tokens = fetching.locate("d/x"), local_store().fs, list[str | None]()
    source, target = wanted.source_path.partition("/"), local_store().path("d/x").partition("/")
    call, token = fs.call, "a week old"
    if usable:
        paths = (source[0], source[2], target[0], target[2])
        answer = call("POST", "b/{}/o/{}/rewriteTo/b/{}/o/{}", *paths, ifGenerationMatch="0", json_out=True)
        token = str(answer["rewriteToken"])
    Journal(wanted, local_store()).write(token)

    def noted(method: str, path: str, *arguments: Any, **options: Any) -> Any:
        if "rewriteTo" in path:
            tokens.append(options["rewriteToken"])
            if options["rewriteToken"] == "a week old":
                raise ValueError("Invalid rewrite token")
        return call(method, path, *arguments, **options)

    monkeypatch.setattr(fs, "call", noted)
    copy_files([wanted], local_store(), Settings())
    assert (tokens[-1] == token) is usable
    assert regions.fs.info("d/x")["size"] == 70 * MB
    assert regions.files(0) == ["d/x"]


def test_small_objects_whose_lease_was_taken_over_on_the_way_are_gone_on_with(
    make_regions: Any, budget: TransferBudget, lose_lease: Any, one_stripe: list[str]
) -> None:
    regions = make_regions("gcs", "gcs")
    for name in one_stripe:
        regions.put(1, name, b"12345")
    copied: list[str] = []
    at_loss: list[int] = []

    def is_lost() -> bool:
        if copied and len(taken) == 1:
            at_loss.append(len(copied))
        return bool(copied) and len(taken) == 1

    taken = lose_lease(is_lost)
    copy_files(mirror_plan("d").files, local_store(), Settings(), lambda found, _: copied.append(found.path))
    assert (len(taken), at_loss) == (2, [8]), "eight go at once"
    assert sorted(copied) == sorted(one_stripe), "each is told of once"
    assert budget.bytes_used == 5 * 12
