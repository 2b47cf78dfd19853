"""Queries to Compute Engine's metadata server about this virtual machine, and its guest attributes."""

import os
from typing import Final, NamedTuple

_DEFAULT_HOST: Final = "metadata.google.internal"
_FLAVOR: Final = ("Metadata-Flavor", "Google")
_VALUE_BYTES: Final = 4096


class Metadata(NamedTuple):
    """An answer: the value, and its tag for wait-for-change queries."""

    value: str
    etag: str


def metadata_host() -> str:
    """Return the metadata server ("host" or "host:port"): $GCE_METADATA_HOST, else its fixed address."""
    return os.environ.get("GCE_METADATA_HOST") or _DEFAULT_HOST


def put_guest_attribute(host: str, name: str, value: str, timeout: float) -> None:
    """Set a guest attribute of this virtual machine, which its operators can read.

    Args:
        host: "host" or "host:port" (see `metadata_host`).
        name: "NAMESPACE/KEY".
        value: The value.
        timeout: Seconds for each step of the exchange.

    Raises:
        OSError: The server cannot be reached in time, or refuses.
    """
    import http.client

    connection = http.client.HTTPConnection(host, timeout=timeout)
    try:
        path = f"/computeMetadata/v1/instance/guest-attributes/{name}"
        connection.request("PUT", path, value.encode(), headers=dict([_FLAVOR]))
        status = connection.getresponse().status
    except http.client.HTTPException as error:
        raise OSError(f"{host} does not speak HTTP like a metadata server: {error!r}") from error
    finally:
        connection.close()
    if status != http.client.OK:
        raise OSError(f"{host} answered {status} to the guest attribute {name}")


def ask_metadata(host: str, question: str, timeout: float) -> Metadata:
    """Send one query to the metadata server at `host`.

    Args:
        host: "host" or "host:port" (see `metadata_host`).
        question: Path below "/computeMetadata/v1/instance/", including the query string: "zone".
        timeout: Seconds for each step of the exchange.

    Raises:
        FileNotFoundError: The server has no such value.
        OSError: The server cannot be reached in time, or is not a metadata server.
    """
    import http.client

    connection = http.client.HTTPConnection(host, timeout=timeout)
    try:
        connection.request("GET", f"/computeMetadata/v1/instance/{question}", headers=dict([_FLAVOR]))
        reply = connection.getresponse()
        body = reply.read(_VALUE_BYTES)
    except http.client.HTTPException as error:
        raise OSError(f"{host} does not speak HTTP like a metadata server: {error!r}") from error
    finally:
        connection.close()
    name, value = _FLAVOR
    if reply.status == http.client.NOT_FOUND:
        raise FileNotFoundError(f"{host} has no {question}")
    if reply.status != http.client.OK or reply.headers.get(name) != value:
        raise OSError(f"{host} answered {reply.status}, unlike a metadata server")
    return Metadata(body.decode("utf-8", "replace").strip(), reply.headers.get("ETag", "0"))
