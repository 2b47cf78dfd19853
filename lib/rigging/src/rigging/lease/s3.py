"""Conditional objects on S3: puts with If-None-Match and If-Match, deletes with If-Match, on the ETag.

The store must support all three, as AWS has since 2025. botocore (a dependency of s3fs) makes the requests, with s3fs's
credentials and endpoint: the usual AWS files and environment, and fsspec's configuration for "s3".
"""

import functools
import os
from collections.abc import Callable
from typing import Any

from rigging.errors import Denied, InvalidRequest, MarinError, NotFound, Unavailable
from rigging.lease.objects import StoreTrouble
from rigging.lease.record import StoredLease, age_by

#: Seconds to connect, and again to read.
REQUEST_TIMEOUT = 10.0
#: Connections kept open: those who take many leases at once have a hundred threads or so.
MAX_CONNECTIONS = 128

#: 409: another conditional request for the same object is being carried out.
_PASSING = frozenset({408, 409, 429, 500, 502, 503, 504})
_PASSING_CODES = frozenset({"RequestTimeout", "SlowDown"})
_NOT_OFFERED = frozenset({405, 501})


class S3Objects:
    """The objects of one bucket (see `ConditionalObjects`).

    Args:
        bucket: The bucket's name.
        client: Returns botocore's client for a process id.
    """

    #: An ETag is the MD5 of the content, as a rule.
    marks_are_unique = False

    def __init__(self, bucket: str, client: Callable[[int], Any] | None = None) -> None:
        self._bucket = bucket
        self._client = client or _client

    def get(self, key: str) -> StoredLease | None:
        answer = self._call("get_object", key)
        if answer is None:
            return None
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
        age = age_by(headers.get("date"), headers.get("last-modified"))
        return StoredLease(answer["content"], answer["ETag"], age)

    def put(self, key: str, content: bytes, expected: str | None) -> str | None:
        condition = {"IfNoneMatch": "*"} if expected is None else {"IfMatch": expected}
        answer = self._call("put_object", key, Body=content, ContentType="application/json", **condition)
        return None if answer is None else str(answer["ETag"])

    def delete(self, key: str, expected: str) -> bool:
        return self._call("delete_object", key, IfMatch=expected) is not None

    def _call(self, operation: str, key: str, **arguments: Any) -> dict[str, Any] | None:
        """Return S3's answer; None if the object does not exist or has another version."""
        from botocore import exceptions as failures

        what = f"{operation} s3://{self._bucket}/{key}"
        try:
            answer: dict[str, Any] = getattr(self._client(os.getpid()), operation)(
                Bucket=self._bucket, Key=key, **arguments
            )
            if "Body" in answer:
                answer["content"] = answer["Body"].read()
            return answer
        except failures.ClientError as error:
            failure = _error_of(error, what)
            if failure is None:
                return None
            raise failure from error
        except (failures.ConnectionError, failures.HTTPClientError, failures.IncompleteReadError) as error:
            raise StoreTrouble(f"{what}: {error}") from error
        except (failures.NoCredentialsError, failures.PartialCredentialsError) as error:
            raise Denied(f"{what}: {error}") from error
        except failures.BotoCoreError as error:
            raise Unavailable(f"{what}: {error}") from error


@functools.lru_cache(maxsize=1)
def _client(process: int) -> Any:
    del process  # a forked child must not write into its parent's connections
    import botocore.session
    from botocore.config import Config
    from fsspec.config import conf

    configured: dict[str, Any] = {**conf.get("s3a", {}), **conf.get("s3", {})}
    options = dict(configured.get("client_kwargs", {}))
    options.setdefault("endpoint_url", configured.get("endpoint_url"))
    credentials = {
        "aws_access_key_id": configured.get("key", configured.get("username")),
        "aws_secret_access_key": configured.get("secret", configured.get("password")),
        "aws_session_token": configured.get("token"),
    }
    options.update({name: value for name, value in credentials.items() if value is not None})
    settings = Config(**configured.get("config_kwargs", {})).merge(
        # PatientObjects does the repeating: it knows what may be repeated.
        Config(
            retries={"total_max_attempts": 1},
            connect_timeout=REQUEST_TIMEOUT,
            read_timeout=REQUEST_TIMEOUT,
            max_pool_connections=MAX_CONNECTIONS,
        )
    )
    session = botocore.session.Session(profile=configured.get("profile"))
    return session.create_client("s3", config=settings, **options)


def _error_of(error: Any, what: str) -> MarinError | None:
    """Return the error; None if the object does not exist or has another version."""
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = str(error.response.get("Error", {}).get("Code", ""))
    message = f"{what}: HTTP {status} {code}: {error.response.get('Error', {}).get('Message', '')}"
    if status == 412 or (status == 404 and code != "NoSuchBucket"):
        return None
    if status in _PASSING or code in _PASSING_CODES:
        return StoreTrouble(message)
    if status == 404:
        return NotFound(message)
    if status in _NOT_OFFERED:
        return InvalidRequest(f"{message} (leases need a store with conditional puts and deletes)")
    return Denied(message) if status in (401, 403) else Unavailable(message)
