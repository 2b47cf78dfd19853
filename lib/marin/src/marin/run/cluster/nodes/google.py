"""The nodes of a Google Cloud project, through the Compute and TPU APIs. Needs `marin[ray_gcp]`."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from marin.run.cluster.nodes.leftovers import CloudNode
from rigging.errors import Unavailable

_TPU: Final = "https://tpu.googleapis.com"
_COMPUTE: Final = "https://compute.googleapis.com"
_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
_TIMEOUT: Final = 60.0
_PAGE: Final = 500
# Gone already; being changed just now.
_NOT_NOW: Final = frozenset({404, 409})


class GoogleNodes:
    """The nodes in a cluster file's project and zone. Credentials and trusted certificates are the same as Ray's.

    Args:
        provider: The file's provider section.
        endpoint: Another server for both APIs; empty for Google's.
    """

    def __init__(self, provider: Mapping[str, Any], *, endpoint: str = "") -> None:
        project, zone = provider.get("project_id"), provider.get("availability_zone")
        self._provider = provider
        self._tpu = f"{endpoint or _TPU}/v2/"
        self._slices = f"{self._tpu}projects/{project}/locations/{zone}/nodes"
        self._machines = f"{endpoint or _COMPUTE}/compute/v1/projects/{project}/zones/{zone}/instances"
        self._opened: Any = None

    @property
    def urls(self) -> tuple[str, str]:
        """Return the URLs of slices and VMs."""
        return self._slices, self._machines

    def list(self) -> Sequence[CloudNode]:
        slices = self._pages(self._slices, "nodes", {"pageSize": _PAGE})
        # A slice's own VMs are on Compute's list, too, and go with it.
        machines = self._pages(self._machines, "items", {"maxResults": _PAGE, "filter": "NOT labels.tpu_cores:*"})
        return [
            *(CloudNode(each["name"], each.get("state", ""), each.get("labels", {}), True) for each in slices),
            *(CloudNode(each["name"], each.get("status", ""), each.get("labels", {}), False) for each in machines),
        ]

    def delete(self, node: CloudNode) -> None:
        url = self._tpu + node.name if node.is_slice else f"{self._machines}/{node.name}"
        with _errors_named():
            response = self._session().delete(url, timeout=_TIMEOUT)
            if response.status_code not in _NOT_NOW and "resourceNotReady" not in response.text:
                _check(response)

    def _pages(self, url: str, key: str, words: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield everything on a list. (Ray's provider reads only the first page.)"""
        page = ""
        while True:
            with _errors_named():
                asked = {**words, **({"pageToken": page} if page else {})}
                response = self._session().get(url, params=asked, timeout=_TIMEOUT)
                _check(response)
                answer = response.json()
            yield from answer.get(key, [])
            page = answer.get("nextPageToken", "")
            if not page:
                return

    def _session(self) -> Any:
        import requests
        from google.auth.transport.requests import AuthorizedSession, Request

        if self._opened is None:
            plain = requests.Session()
            authorized: Any = AuthorizedSession
            self._opened = authorized(_credentials(self._provider), auth_request=Request(plain))
            trusted = os.environ.get("HTTPLIB2_CA_CERTS")
            if trusted:
                plain.verify = self._opened.verify = trusted
        return self._opened


def _credentials(provider: Mapping[str, Any]) -> Any:
    """Return the file's credentials, or else those of the user's environment, like Ray."""
    import google.auth
    from google.oauth2 import credentials, service_account

    given = provider.get("gcp_credentials")
    if given is None:
        return google.auth.default(scopes=_SCOPES)[0]
    if given.get("type") == "service_account":
        kind: Any = service_account.Credentials
        return kind.from_service_account_info(json.loads(given["credentials"]), scopes=_SCOPES)
    kind = credentials.Credentials
    return kind(given["credentials"])


def _check(response: Any) -> None:
    if not response.ok:
        raise Unavailable(_message(f"{response.status_code} {response.text[:500]}"))


def _message(reason: object) -> str:
    return f"cannot list the cluster's remaining nodes with Google's APIs: {reason}"


@contextlib.contextmanager
def _errors_named() -> Iterator[None]:
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except (GoogleAuthError, OSError, ValueError) as error:  # OSError: those of requests, too
        raise Unavailable(_message(error)) from None
