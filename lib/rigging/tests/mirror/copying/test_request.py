"""A store's entry of a file, read; and the method by which a file goes from one prefix to another."""

import base64
from types import SimpleNamespace
from typing import Any

import pytest

from rigging.copying.charges import TransferCharge
from rigging.copying.request import CopyMethod, FileVersion, chunks, copy_method, version_of
from rigging.errors import Unavailable
from rigging.filesystem.budget import TransferBudget
from rigging.prefixes.prefix_store import StoreKind

MD5, CRC = "0123456789abcdef" * 2, "01020304"


def encoded(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


@pytest.mark.parametrize(
    ("info", "version"),
    [
        ({"size": 5, "mtime": 0.0}, FileVersion(5, "0.0")),
        ({"size": 0}, FileVersion(0, "")),
        (
            {"size": 5, "generation": "17", "md5Hash": encoded(MD5), "crc32c": encoded(CRC), "etag": "x"},
            FileVersion(5, "17", MD5, CRC, "17"),
        ),
        ({"size": 5, "generation": 17, "crc32c": encoded(CRC)}, FileVersion(5, "17", "", CRC, "17")),
        ({"size": 5, "ETag": f'"{MD5.upper()}"'}, FileVersion(5, MD5.upper(), MD5)),
        ({"size": 5, "ETag": f'"{MD5}-3"'}, FileVersion(5, f"{MD5}-3")),
        ({"size": 5, "ETag": '"' + "z" * 32 + '"'}, FileVersion(5, "z" * 32)),
        ({"size": 5, "LastModified": "today", "created": "before"}, FileVersion(5, "today")),
        ({"size": 5, "created": "before"}, FileVersion(5, "before")),
        ({"size": 5, "mtime": "a text", "LastModified": "today"}, FileVersion(5, "a text")),
        ({"size": 5, "md5Hash": "no base64!", "crc32c": 7}, FileVersion(5, "")),
    ],
)
def test_a_version_is_what_the_store_says_of_it(info: dict[str, Any], version: FileVersion) -> None:
    assert version_of(info, "x://a") == version


@pytest.mark.parametrize("size", [None, -1, "5", 5.0])
def test_a_size_that_is_not_told_cannot_be_charged(size: Any) -> None:
    with pytest.raises(Unavailable, match="x://a: its size is unknown"):
        version_of({"size": size}, "x://a")


def test_versions_differ_by_size_or_mark() -> None:
    prints = {FileVersion(5, "a").fingerprint(), FileVersion(5, "b").fingerprint(), FileVersion(6, "a").fingerprint()}
    assert len(prints) == 3
    assert FileVersion(5, "a", "md5").fingerprint() in prints


@pytest.mark.parametrize(
    ("start", "size", "pieces"),
    [(0, 0, []), (0, 10, [(0, 10)]), (0, 11, [(0, 10), (10, 11)]), (5, 25, [(5, 15), (15, 25)]), (9, 9, [])],
)
def test_pieces_cover_all_bytes_once(start: int, size: int, pieces: list[tuple[int, int]]) -> None:
    assert chunks(start, size, 10) == pieces


def root(store: StoreKind, fs: object = None) -> Any:
    return SimpleNamespace(kind=store, fs=fs or object())


ONE = object()


@pytest.mark.parametrize(
    ("source", "destination", "how"),
    [
        (root(StoreKind.GCS), root(StoreKind.LOCAL), CopyMethod.TO_LOCAL_FILE),
        (root(StoreKind.LOCAL, ONE), root(StoreKind.LOCAL, ONE), CopyMethod.TO_LOCAL_FILE),
        (root(StoreKind.GCS, ONE), root(StoreKind.GCS, ONE), CopyMethod.SERVER_SIDE),
        (root(StoreKind.GCS), root(StoreKind.GCS), CopyMethod.TO_OBJECT),
        (root(StoreKind.S3, ONE), root(StoreKind.S3, ONE), CopyMethod.SERVER_SIDE),
        (root(StoreKind.LOCAL), root(StoreKind.S3), CopyMethod.TO_OBJECT),
        (root(StoreKind.GCS), root(StoreKind.MEMORY), CopyMethod.UNDER_TEMPORARY_NAME),
        (root(StoreKind.OTHER, ONE), root(StoreKind.OTHER, ONE), CopyMethod.UNDER_TEMPORARY_NAME),
    ],
)
def test_the_store_copies_by_itself_where_it_can(source: Any, destination: Any, how: CopyMethod) -> None:
    assert copy_method(source, destination) is how


def test_a_charge_that_is_begun_anew_takes_the_place_of_the_former() -> None:
    budget = TransferBudget(100)
    charge = TransferCharge(budget.reserve, "gs://b/x")
    charge.reserve(60)(40)
    charge.reserve(80)(10)
    assert (charge.bytes_moved, budget.bytes_used) == (10, 80)
