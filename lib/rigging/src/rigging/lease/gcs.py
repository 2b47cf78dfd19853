"""Conditional objects on GCS through its JSON API: generation preconditions on every write and delete.

Credentials and endpoint are those of gcsfs (application default credentials, STORAGE_EMULATOR_HOST, fsspec's
configuration), so that everyone who can read the data can take the lease. This module makes its own requests: gcsfs
retries failed ones for minutes, and has no conditional delete.
"""

import functools
import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from rigging.errors import Denied, InvalidRequest, MarinError, NotFound, Unavailable
from rigging.lease.objects import StoreTrouble
from rigging.lease.record import StoredLease, age_by

if TYPE_CHECKING:
    import urllib3

#: Seconds for one request.
REQUEST_TIMEOUT = 10.0
#: Connections kept open: those who take many leases at once have a hundred threads or so.
MAX_CONNECTIONS = 128

_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_NO_SUCH_VERSION = frozenset({404, 412})
_BOUNDARY = "marin-lease-boundary"


class GcsObjects:
    """The objects of one bucket (see `ConditionalObjects`).

    Args:
        bucket: The bucket's name.
        access: Returns the endpoint and the authorization headers.
    """

    #: Generations only grow.
    marks_are_unique = True

    def __init__(self, bucket: str, access: Callable[[], tuple[str, dict[str, str]]] | None = None) -> None:
        self._bucket = bucket
        self._access = access or _endpoint_and_headers

    def get(self, key: str) -> StoredLease | None:
        response = self._request("GET", f"download/storage/v1/b/{_quoted(self._bucket)}/o/{_quoted(key)}", alt="media")
        if response.status == 404:
            return None
        self._expect_success(response, "GET", key)
        return StoredLease(
            response.data,
            response.headers["X-Goog-Generation"],
            age_by(response.headers.get("Date"), response.headers.get("Last-Modified")),
        )

    def put(self, key: str, content: bytes, expected: str | None) -> str | None:
        # Publicly readable objects are served from caches for an hour unless they say otherwise.
        resource = {"name": key, "contentType": "application/json", "cacheControl": "no-store"}
        body = (
            f"--{_BOUNDARY}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(resource)}\r\n"
            f"--{_BOUNDARY}\r\nContent-Type: application/json\r\n\r\n"
        ).encode() + content
        response = self._request(
            "POST",
            f"upload/storage/v1/b/{_quoted(self._bucket)}/o",
            body=body + f"\r\n--{_BOUNDARY}--\r\n".encode(),
            content_type=f"multipart/related; boundary={_BOUNDARY}",
            uploadType="multipart",
            ifGenerationMatch=expected or "0",
        )
        if response.status == 412:
            return None
        self._expect_success(response, "POST", key)
        return str(json.loads(response.data)["generation"])

    def delete(self, key: str, expected: str) -> bool:
        path = f"storage/v1/b/{_quoted(self._bucket)}/o/{_quoted(key)}"
        response = self._request("DELETE", path, ifGenerationMatch=expected)
        if response.status in _NO_SUCH_VERSION:
            return False
        self._expect_success(response, "DELETE", key)
        return True

    def _request(
        self, method: str, path: str, *, body: bytes | None = None, content_type: str | None = None, **query: str
    ) -> "urllib3.BaseHTTPResponse":
        from google.auth.exceptions import GoogleAuthError, TransportError
        from urllib3.exceptions import HTTPError

        try:
            location, headers = self._access()
        except TransportError as error:
            raise StoreTrouble(f"no credentials for gs://{self._bucket} yet: {error}") from error
        except GoogleAuthError as error:
            raise Denied(f"no credentials for gs://{self._bucket}: {error}") from error
        if content_type is not None:
            headers["Content-Type"] = content_type
        url = f"{location}/{path}?{urlencode(query)}"
        try:
            return _connections(os.getpid()).request(method, url, body=body, headers=headers)
        except HTTPError as error:
            raise StoreTrouble(f"{method} of {path}: {error}") from error

    def _expect_success(self, response: "urllib3.BaseHTTPResponse", method: str, key: str) -> None:
        if response.status >= 300:
            raise _error_of(response.status, response.data, f"{method} gs://{self._bucket}/{key}")


def _endpoint_and_headers() -> tuple[str, dict[str, str]]:
    import fsspec

    # fsspec keeps one instance a process, with its credentials, and makes another after a fork.
    fs: Any = fsspec.filesystem("gs")
    location, _, _ = str(fs.url("bucket/key")).partition("/download/storage/")
    headers = {"Accept-Encoding": "identity"}
    fs.credentials.apply(headers)
    return location, headers


@functools.lru_cache(maxsize=1)
def _connections(process: int) -> "urllib3.PoolManager":
    del process  # a forked child must not write into its parent's connections
    import urllib3

    return urllib3.PoolManager(num_pools=4, maxsize=MAX_CONNECTIONS, retries=False, timeout=REQUEST_TIMEOUT)


def _error_of(status: int, body: bytes, what: str) -> MarinError:
    message = f"{what}: HTTP {status}: {_message(body)}"
    if status in _PASSING:
        return StoreTrouble(message)
    if status in (401, 403):
        return Denied(message)
    if status == 404:
        return NotFound(message)
    return InvalidRequest(message) if status == 400 else Unavailable(message)


def _message(body: bytes) -> str:
    try:
        parsed: Mapping[str, Any] = json.loads(body)
        return str(parsed["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")


def _quoted(text: str) -> str:
    return quote(text, safe="")
