"""Find a Ray cluster and check access to it quickly. Ray itself would take long to fail."""

import http.client
import importlib
import json
import os
import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from fray.backends.ray.grpc_probe import NoAnswerError, lets_in
from rigging.errors import Denied, Unavailable
from rigging.ray_token import MODE_VARIABLE, AuthToken, find_token
from rigging.redaction import redact_string

_PROBE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.2
_HOST_AND_PORT: Final = re.compile(r"(?:ray://)?(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:/\s]+)):(?P<port>\d{1,5})(?:[/?].*)?")
_DASHBOARD: Final = re.compile(r"https?://.+")
_TOLD_BY_HEAD: Final = re.compile(r"--gcs-address=([^\s\"]+)")
_MOST_BYTES: Final = 64 << 20


def find_cluster(address: str | None) -> str | None:
    """Return the address for `ray.init`, and make Ray send the user's token if the cluster requires one.

    Args:
        address: An address for `ray.init`, or the URL of a dashboard, which supplies the cluster's address; None for
            RAY_ADDRESS.

    Raises:
        Unavailable: No cluster answers at the address.
        Denied: The cluster requires a token, or a different one.
    """
    given_by = "as given"
    if address is None or address == "auto":
        address, given_by = os.environ.get("RAY_ADDRESS") or address, "from RAY_ADDRESS"
    if address is None:
        return None
    token = find_token(os.environ, Path.home())
    if _DASHBOARD.fullmatch(address):
        url, address = address, ask_dashboard(address, given_by, token)
        given_by = f"as the dashboard at {redact_string(url)} says"
    check_reachable(address, given_by, token)
    return address


def ask_dashboard(url: str, given_by: str, token: AuthToken, timeout: float = _PROBE_SECONDS) -> str:
    """Return the address of a dashboard's cluster, "host:port".

    Args:
        url: The dashboard's URL.
        given_by: The source of the URL, for messages.
        token: Sent if the dashboard asks for it.
        timeout: Seconds to wait for an answer.

    Raises:
        Unavailable: The dashboard does not answer, or does not know the address.
        Denied: The dashboard requires a token, or a different one.
    """
    shown = redact_string(url)
    try:
        try:
            text = _get(url, {}, timeout)
        except urllib.error.HTTPError as error:
            if error.code not in (401, 403):
                raise
            text = _get(url, {"Authorization": f"Bearer {token.value}"} if token.value else {}, timeout)
        summary = json.loads(text)["data"]["summary"]
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise refusal(shown, token) from None
        raise Unavailable(f"the server at {shown} ({given_by}) is not a Ray dashboard: HTTP {error.code}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise Unavailable(f"the server at {shown} ({given_by}) is not a Ray dashboard: {error}") from None
    except http.client.HTTPException as error:
        raise Unavailable(
            f"the server at {shown} ({given_by}) does not speak HTTP ({type(error).__name__}): is it the port of the "
            "cluster itself? RAY_ADDRESS=host:port names that"
        ) from None
    except OSError as error:
        raise Unavailable(
            f"no Ray dashboard answers at {shown} ({given_by}): {getattr(error, 'reason', error)}. Start the cluster, "
            "or open a connection to it; or set RAY_ADDRESS=host:port"
        ) from None
    found = _TOLD_BY_HEAD.search(json.dumps(summary))
    if found is None:
        raise Unavailable(
            f"the Ray dashboard at {shown} ({given_by}) does not know the cluster's address yet; try again, or set "
            "RAY_ADDRESS=host:port"
        )
    return found[1]


def _get(url: str, headers: dict[str, str], timeout: float) -> bytes:
    request = urllib.request.Request(f"{url.rstrip('/')}/nodes?view=summary", headers=headers)
    # As for Ray itself: a cluster's address never goes through the proxy of the user's shell.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout) as answer:
        data: bytes = answer.read(_MOST_BYTES)
    return data


def check_reachable(address: str, given_by: str, token: AuthToken, timeout: float = _PROBE_SECONDS) -> None:
    """Check that a Ray cluster answers where `ray.init` would connect, and accepts this user.

    `ray.init` itself waits more than 90 s for a cluster, and 20 s if a token is missing. Addresses without host and
    port ("auto", "local") are left to Ray.

    Args:
        address: An address for `ray.init`.
        given_by: The source of the address, for messages.
        token: The user's token. If the cluster requires it, Ray sends it from now on.
        timeout: Timeout in seconds.

    Raises:
        Unavailable: No cluster answers at the address.
        Denied: The cluster requires a token, or a different one.
    """
    found = _HOST_AND_PORT.fullmatch(address)
    if found is None:
        return
    target = (found["v6"] or found["host"], int(found["port"]))
    is_gcs = not address.startswith("ray://")
    deadline = time.monotonic() + timeout
    while True:
        try:
            if not lets_in(target, deadline, "", is_gcs=is_gcs):
                if not token.value or not lets_in(target, deadline, token.value, is_gcs=is_gcs):
                    raise refusal(address, token)
                send_token()
            return
        except NoAnswerError as problem:
            # A head that is being started may listen in a moment.
            if time.monotonic() + _PAUSE_SECONDS >= deadline:
                raise Unavailable(
                    f"no Ray cluster answers at {address!r} ({given_by}): {problem}. Start the cluster, or give the "
                    "address of one that runs (RAY_ADDRESS=host:port, FRAY_CLIENT=ray://host:port); unset RAY_ADDRESS "
                    "to use or start one on this machine; or choose another backend, for example FRAY_CLIENT=local"
                ) from None
        time.sleep(_PAUSE_SECONDS)


_HELP = "`ray get-auth-token` on the cluster's head shows it; write it to ~/.ray/auth_token, or set RAY_AUTH_TOKEN"


def refusal(address: str, token: AuthToken) -> Denied:
    """Return the error for a cluster that requires a token and received this one or none."""
    what = (
        f"the token of {token.origin} is not the cluster's" if token.value else f"no token was found ({token.origin})"
    )
    return Denied(f"the Ray cluster at {address} requires a token, and {what}: {_HELP}")


def send_token() -> None:
    """Make Ray send the user's token from now on, in this process and its children."""
    if os.environ.get(MODE_VARIABLE) == "token":
        return
    os.environ[MODE_VARIABLE] = "token"
    # Ray has read its settings when it was imported; this is how it turns to the token of a cluster that it finds.
    importlib.import_module("ray._raylet").Config.initialize("")
