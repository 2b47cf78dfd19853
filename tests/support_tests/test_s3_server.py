"""Conditional writes and faults of the tests' S3 server, seen through botocore and s3fs."""

from pathlib import Path
from typing import Any

import pytest

from support.rigging.faults import Fault, FaultKind
from support.rigging.s3_server import S3Server

BUCKET = "marin-s3-one"
pytestmark = pytest.mark.process


@pytest.fixture
def client(s3_server: S3Server) -> Any:
    import botocore.config
    import botocore.session

    config = botocore.config.Config(retries={"total_max_attempts": 1})
    return botocore.session.get_session().create_client("s3", config=config)


def test_conditional_puts_and_deletes(client: Any, tmp_path: Path) -> None:
    from botocore.exceptions import ClientError

    place = {"Bucket": BUCKET, "Key": f"{tmp_path.name}/a b+ü%.lock"}
    first = client.put_object(**place, Body=b"1", IfNoneMatch="*")["ETag"]
    for refused in ({"IfNoneMatch": "*"}, {"IfMatch": '"0"'}):
        with pytest.raises(ClientError, match="PreconditionFailed"):
            client.put_object(**place, Body=b"2", **refused)
    second = client.put_object(**place, Body=b"2", IfMatch=first)["ETag"]
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.delete_object(**place, IfMatch=first)
    client.delete_object(**place, IfMatch=second)
    with pytest.raises(ClientError, match="NoSuchKey"):
        client.get_object(**place)


@pytest.mark.parametrize("kind", [FaultKind.ERROR, FaultKind.DROP, FaultKind.APPLIED_ERROR, FaultKind.APPLIED_DROP])
def test_faults(kind: FaultKind, client: Any, s3_server: S3Server, tmp_path: Path) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    s3_server.inject(Fault(kind, match=f"^PUT .*{tmp_path.name}", times=1))
    with pytest.raises((BotoCoreError, ClientError)):
        client.put_object(Bucket=BUCKET, Key=tmp_path.name, Body=b"x")
    found = client.list_objects_v2(Bucket=BUCKET, Prefix=tmp_path.name)["KeyCount"]
    assert found == (kind in (FaultKind.APPLIED_ERROR, FaultKind.APPLIED_DROP))


def test_s3fs_multipart_ranges_and_listings(s3_server: S3Server, tmp_path: Path) -> None:
    import s3fs

    fs = s3fs.S3FileSystem(use_listings_cache=False)
    content = bytes(range(256)) * 24_000
    path = f"{BUCKET}/{tmp_path.name}/big"
    with fs.open(path, "wb", block_size=5 * 2**20) as handle:
        handle.write(content)
    assert fs.cat_file(path) == content
    assert fs.cat_file(path, start=5, end=300) == content[5:300]
    fs.copy(path, f"marin-s3-two/{tmp_path.name}")
    assert fs.info(f"marin-s3-two/{tmp_path.name}")["size"] == len(content)
    assert fs.find(f"{BUCKET}/{tmp_path.name}") == [path]
    traffic = s3_server.traffic()[BUCKET]
    assert traffic.bytes_in == len(content)
    assert traffic.bytes_out >= len(content)
