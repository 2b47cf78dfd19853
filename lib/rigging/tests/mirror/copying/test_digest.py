"""Bytes that arrived are compared with what the source says of them, as far as it says anything."""

import hashlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigging.copying.digest import CorruptCopyError, Digest, check_digest
from rigging.copying.request import FileVersion
from rigging.prefixes.prefix_store import StoreKind

DATA = os.urandom(3 * 2**20 + 5)


def version(**known: Any) -> FileVersion:
    fields = {"size": len(DATA), "mark": "1", **known}
    return FileVersion(**fields)


def crc32c(data: bytes) -> str:
    import google_crc32c

    return google_crc32c.Checksum(data).digest().hex()  # type: ignore[no-any-return, no-untyped-call]


KNOWN = [{"md5": hashlib.md5(DATA, usedforsecurity=False).hexdigest()}, {"crc32c": crc32c(DATA)}]


@pytest.mark.parametrize("known", KNOWN, ids=["md5", "crc32c"])
def test_right_bytes_match_however_they_come_and_others_do_not(known: dict[str, str], tmp_path: Path) -> None:
    pieces, whole, short, other = (Digest(version(**known)) for _ in range(4))
    for start in range(0, len(DATA), 700_001):
        pieces.update(DATA[start : start + 700_001])
    (tmp_path / "file").write_bytes(DATA + b"more")
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        whole.update_from(descriptor, len(DATA))
    finally:
        os.close(descriptor)
    short.update(DATA[:-1])
    other.update(b"x" + DATA[1:])
    assert pieces.mismatch() == whole.mismatch() == ""
    (kind, expected) = next(iter(known.items()))
    for wrong in (short, other):
        assert wrong.mismatch().startswith(f"{kind} ")
        assert wrong.mismatch().endswith(f" instead of {expected}")


def test_a_store_that_says_nothing_is_compared_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = Digest(version())
    digest.update(b"anything")
    digest.update_from(-1, 10)
    assert digest.mismatch() == ""
    check_digest(digest, root(StoreKind.S3), "a/b")
    monkeypatch.setitem(sys.modules, "google_crc32c", None)  # without the package of a checksum
    digest = Digest(version(crc32c="00000000"))
    digest.update(DATA)
    assert digest.mismatch() == ""


def root(store: StoreKind, head: dict[str, str] | None = None) -> Any:
    def call_s3(operation: str, **arguments: str) -> dict[str, str]:
        assert (operation, arguments) == ("head_object", {"Bucket": "bucket", "Key": "a/b"})
        assert head is not None, "it is not asked about"
        return head

    return SimpleNamespace(
        kind=store,
        url=lambda path: f"s3://bucket/{path}",
        path=lambda path: f"bucket/{path}",
        fs=SimpleNamespace(call_s3=call_s3),
    )


def wrong_digest() -> Digest:
    digest = Digest(version(md5="0" * 32))
    digest.update(DATA)
    return digest


def test_wrong_bytes_are_refused_unless_s3_gives_no_checksum_of_what_a_users_key_encrypts() -> None:
    refused = [(StoreKind.GCS, None), (StoreKind.S3, {}), (StoreKind.S3, {"ServerSideEncryption": "AES256"})]
    for store, head in refused:
        with pytest.raises(CorruptCopyError, match=r"s3://bucket/a/b: the copy has md5 .* instead of 0+; it was disc"):
            check_digest(wrong_digest(), root(store, head), "a/b")
    for head in ({"ServerSideEncryption": "aws:kms:dsse"}, {"SSECustomerAlgorithm": "AES256"}):
        check_digest(wrong_digest(), root(StoreKind.S3, head), "a/b")
