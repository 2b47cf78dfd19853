"""Conditional writes and faults of the tests' S3 server, seen through botocore and s3fs."""

from pathlib import Path
from typing import Any

import pytest

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
