"""The token of a Ray cluster with token authentication: found where Ray looks for it, sent where it is asked for."""

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rigging.errors import Denied

_MODE = "RAY_AUTH_MODE"
_HELP = "`ray get-auth-token` on the cluster's head shows it; write it to ~/.ray/auth_token, or set RAY_AUTH_TOKEN"


class Token(NamedTuple):
    """A token, never shown; empty where there is none.

    Args:
        value: The token.
        origin: Where it is from, or where it was looked for.
    """

    value: str
    origin: str

    def __repr__(self) -> str:
        return f"Token(origin={self.origin!r})"


def find_token(environ: Mapping[str, str], home: Path) -> Token:
    """Return the user's token: RAY_AUTH_TOKEN, the file RAY_AUTH_TOKEN_PATH, or ~/.ray/auth_token.

    Raises:
        Denied: RAY_AUTH_TOKEN_PATH names a file that cannot be read.
    """
    if environ.get(_MODE, "").lower() == "disabled":
        return Token("", f"{_MODE}=disabled")
    if value := environ.get("RAY_AUTH_TOKEN", "").strip():
        return Token(value, "RAY_AUTH_TOKEN")
    given = environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(given).expanduser() if given else home / ".ray" / "auth_token"
    try:
        return Token(path.read_text(encoding="utf-8").strip(), str(path))
    except (OSError, ValueError) as error:
        if given:
            raise Denied(f"RAY_AUTH_TOKEN_PATH: the token file {given} cannot be read: {error}") from None
        return Token("", str(path))


def refusal(address: str, token: Token) -> Denied:
    """Return the error of a cluster that wants a token, and was sent this one or none."""
    what = f"the one of {token.origin} is not the cluster's" if token.value else f"there is none ({token.origin})"
    return Denied(f"the Ray cluster at {address} wants a token, and {what}: {_HELP}")


def send_token() -> None:
    """Have Ray send the user's token from here on, in this process and those that it starts."""
    if os.environ.get(_MODE) == "token":
        return
    os.environ[_MODE] = "token"
    # Ray has read its settings when it was imported; this is how it turns to the token of a cluster that it finds.
    importlib.import_module("ray._raylet").Config.initialize("")
