"""The token of a Ray cluster with token authentication: sent where it is asked for, and what its refusal means."""

import importlib
import os

from rigging.errors import Denied
from rigging.ray_token import MODE_VARIABLE, AuthToken

_HELP = "`ray get-auth-token` on the cluster's head shows it; write it to ~/.ray/auth_token, or set RAY_AUTH_TOKEN"


def refusal(address: str, token: AuthToken) -> Denied:
    """Return the error of a cluster that wants a token, and was sent this one or none."""
    what = f"the one of {token.origin} is not the cluster's" if token.value else f"there is none ({token.origin})"
    return Denied(f"the Ray cluster at {address} wants a token, and {what}: {_HELP}")


def send_token() -> None:
    """Have Ray send the user's token from here on, in this process and those that it starts."""
    if os.environ.get(MODE_VARIABLE) == "token":
        return
    os.environ[MODE_VARIABLE] = "token"
    # Ray has read its settings when it was imported; this is how it turns to the token of a cluster that it finds.
    importlib.import_module("ray._raylet").Config.initialize("")
