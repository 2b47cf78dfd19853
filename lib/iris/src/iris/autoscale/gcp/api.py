"""Requests to Google's APIs: connections, credentials, deadlines, pages."""

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from iris.autoscale.gcp.outcomes import Json, answer_of
from iris.autoscale.model import Answer
from iris.autoscale.rules import GOOGLE_ENDPOINT
from rigging.extras import needing

with needing("gcp", "platform gcp", "marin-iris"):
    import google.auth
    import httpx2
    from google.auth.credentials import Credentials
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import Request

logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs each request

_HOSTS: Final[Mapping[str, str]] = {"v2": "https://tpu.googleapis.com", "compute": "https://compute.googleapis.com"}
_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_DEADLINE_S: Final = 45.0
_CONNECTIONS: Final = 256
"""`cluster stop` deletes all slices in one round."""
_KEPT_OPEN: Final = 16
_KEPT_OPEN_S: Final = 60.0
_MOST_PAGES: Final = 1000
_NONE: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request.

    Args:
        status: The status of HTTP; 0 if there was no answer.
        body: The JSON object; empty if there was none.
    """

    status: int
    body: Json

    @property
    def answer(self) -> Answer:
        """Return what the reply means."""
        return answer_of(self.status, self.body)


class GoogleApi:
    """A client of Google's REST APIs. No call raises for an answer, a lost connection or missing credentials.

    Args:
        endpoint: The address of a test server, which gets none but these credentials; empty for Google.
        credentials: None for Google's application default credentials.
        deadline_s: The deadline of a request.
        transport: Sends the requests; None for the network.
    """

    def __init__(
        self,
        endpoint: str = "",
        credentials: Credentials | None = None,
        deadline_s: float = _DEADLINE_S,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._given = self._credentials = credentials
        self._deadline_s = deadline_s
        self._refreshing = asyncio.Lock()
        limits = httpx2.Limits(
            max_connections=_CONNECTIONS, max_keepalive_connections=_KEPT_OPEN, keepalive_expiry=_KEPT_OPEN_S
        )
        is_tls = not self._endpoint.startswith("http://")  # a context of TLS takes 50 ms
        self._client = httpx2.AsyncClient(timeout=deadline_s, limits=limits, verify=is_tls, transport=transport)

    async def call(self, verb: str, path: str, body: Json | None = None, query: Mapping[str, str] = _NONE) -> Reply:
        """Return the reply to a request. A lost connection is tried once more: all of our requests are idempotent.

        Args:
            verb: "GET", "POST" or "DELETE".
            path: The path: "v2/projects/..." or "compute/v1/projects/...".
            body: The JSON object to send.
            query: Parameters.
        """
        url = f"{self._endpoint or _HOSTS[path.partition('/')[0]]}/{path}"
        try:
            async with asyncio.timeout(self._deadline_s):
                headers = await self._headers()
                try:
                    reply = _reply(await self._client.request(verb, url, params=query, json=body, headers=headers))
                except (httpx2.NetworkError, httpx2.RemoteProtocolError):
                    reply = _reply(await self._client.request(verb, url, params=query, json=body, headers=headers))
            if reply.status == HTTPStatus.UNAUTHORIZED:
                self._credentials = self._given  # somebody may log in again: the next call looks for the new ones
            return reply
        except GoogleAuthError as error:
            self._credentials = self._given
            return _no_reply(f"no credentials for Google: {error}")
        except TimeoutError:
            return _no_reply(f"{verb} {url}: no answer in {self._deadline_s:g} s")
        except httpx2.HTTPError as error:
            return _no_reply(f"{verb} {url}: {str(error) or type(error).__name__}")

    async def pages(self, path: str, query: Mapping[str, str]) -> tuple[list[Json], Reply]:
        """Return the bodies of all pages of a list, and the last reply, which tells whether they are all."""
        bodies: list[Json] = []
        for _ in range(_MOST_PAGES):
            reply = await self.call("GET", path, query=query)
            if reply.status != 200:
                return bodies, reply
            bodies.append(reply.body)
            token = str(reply.body.get("nextPageToken") or "")
            if not token:
                return bodies, reply
            query = {**query, "pageToken": token}
        return bodies, _no_reply(f"{path}: the list has more than {_MOST_PAGES} pages")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        if self._endpoint and self._credentials is None:
            return headers
        if self._credentials is None or not self._credentials.valid:
            async with self._refreshing:
                if self._credentials is None or not self._credentials.valid:
                    self._credentials = await asyncio.to_thread(_refreshed, self._credentials)
        self._credentials.apply(headers)  # type: ignore[no-untyped-call]
        return headers


def google_api(environment: Mapping[str, str] = os.environ) -> GoogleApi:
    """Return a client for Google, or for the test server at $IRIS_GOOGLE_ENDPOINT."""
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it notes each request: three a list
    return GoogleApi(environment.get(GOOGLE_ENDPOINT, ""))


def _refreshed(credentials: Credentials | None) -> Credentials:
    if credentials is None:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
    credentials.refresh(Request())  # type: ignore[no-untyped-call]
    return credentials


def _reply(response: httpx2.Response) -> Reply:
    try:
        body: Any = response.json()
    except ValueError:
        body = None
    return Reply(response.status_code, body if isinstance(body, Mapping) else {})


def _no_reply(words: str) -> Reply:
    return Reply(0, {"error": {"message": words}})
