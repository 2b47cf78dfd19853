"""Answers of object stores as errors: gone, to be tried again, denied, or a mistake of the caller."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from rigging.errors import Denied, InvalidRequest, MarinError, NotFound, Unavailable
from rigging.lease import gcs, s3
from rigging.lease.objects import StoreTrouble
from rigging.lease.record import Lease, StoredLease, holder_of

GCS = [(401, Denied), (403, Denied), (404, NotFound), (400, InvalidRequest), (409, Unavailable), (501, Unavailable)]
PASSING = [408, 429, 500, 502, 503, 504]


@pytest.mark.parametrize(("status", "kind"), [*GCS, *((status, StoreTrouble) for status in PASSING)])
def test_gcs(status: int, kind: type[MarinError]) -> None:
    error = gcs._error_of(status, json.dumps({"error": {"message": "no such"}}).encode(), "GET gs://b/k")
    assert type(error) is kind
    assert str(error) == f"GET gs://b/k: HTTP {status}: no such"


@pytest.mark.parametrize(
    ("body", "text"),
    [(b"plain", "plain"), (b"[]", "[]"), (b'{"error": 7}', '{"error": 7}'), (b"\xff" * 300, "\ufffd" * 200)],
)
def test_gcs_without_a_message(body: bytes, text: str) -> None:
    assert str(gcs._error_of(400, body, "GET x")) == f"GET x: HTTP 400: {text}"


def client_error(status: int, code: str = "", message: str = "m") -> Any:
    class Error:
        response = {  # noqa: RUF012
            "ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code, "Message": message},
        }  # fmt: skip

    return Error()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (412, "PreconditionFailed", None),
        (404, "NoSuchKey", None),
        (404, "NoSuchBucket", NotFound),
        *((status, "", StoreTrouble) for status in (*PASSING, 409)),
        (400, "RequestTimeout", StoreTrouble),
        (400, "SlowDown", StoreTrouble),
        (401, "", Denied),
        (403, "AccessDenied", Denied),
    ],
)
def test_s3(status: int, code: str, kind: type[MarinError] | None) -> None:
    error = s3._error_of(client_error(status, code), "get_object s3://b/k")
    if kind is None:
        assert error is None
        return
    assert type(error) is kind
    assert str(error).startswith(f"get_object s3://b/k: HTTP {status} {code}: m")


def test_s3_without_an_answer() -> None:
    from botocore import exceptions as failures

    for failure, kind in (
        (failures.NoCredentialsError(), Denied),
        (failures.PartialCredentialsError(provider="env", cred_var="x"), Denied),
        (failures.ConnectTimeoutError(endpoint_url="http://s3"), StoreTrouble),
        (failures.EndpointConnectionError(endpoint_url="http://s3"), StoreTrouble),
        (failures.ReadTimeoutError(endpoint_url="http://s3"), StoreTrouble),
        (failures.IncompleteReadError(actual_bytes=1, expected_bytes=2), StoreTrouble),
        (failures.NoRegionError(), Unavailable),
    ):

        def fail(failure: Exception = failure, **_: Any) -> None:
            raise failure

        client = SimpleNamespace(get_object=fail)
        with pytest.raises(MarinError, match="get_object s3://b/k: ") as caught:
            s3.S3Objects("b", lambda _, client=client: client).get("k")
        assert type(caught.value) is kind


def test_gcs_without_credentials() -> None:
    from google.auth.exceptions import DefaultCredentialsError, TransportError

    for failure, kind in ((TransportError("later"), StoreTrouble), (DefaultCredentialsError("none"), Denied)):

        def fail(failure: Exception = failure) -> tuple[str, dict[str, str]]:
            raise failure

        with pytest.raises(MarinError, match="no credentials for gs://b") as caught:
            gcs.GcsObjects("b", fail).get("k")
        assert type(caught.value) is kind


def test_records() -> None:
    lease = Lease('é "quoted"', 1234.5)
    assert Lease.from_bytes(lease.to_bytes()) == lease
    assert Lease.from_bytes(b'{"worker_id": "w", "timestamp": "7", "more": 1}') == Lease("w", 7.0)
    for broken in (b"", b"{", b"[]", b"7", b'{"worker_id": "w"}', b'{"timestamp": 1}', b"\xff", b"[" * 100_000):
        assert Lease.from_bytes(broken) is None
        assert holder_of(StoredLease(broken, "1")) is None
    assert holder_of(None) is None
    assert holder_of(StoredLease(lease.to_bytes(), "1")) == lease.worker_id
    assert StoredLease(b"a", "1", 5.0) == StoredLease(b"a", "1", 6.0), "without their age"
    assert StoredLease(b"a", "1") != StoredLease(b"a", "2")
    assert not lease.is_stale(now=1234.5 + 90)
    assert lease.is_stale(now=1234.6 + 90)
    assert lease.is_stale(5, now=1240)
    assert lease.is_stale(), "long ago by this machine's own time"
