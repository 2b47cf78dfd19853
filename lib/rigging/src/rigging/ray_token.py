"""The token of a Ray cluster with token authentication, in the places where Ray's own tools look for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rigging.errors import Denied

DEFAULT_FILE: Final = ".ray/auth_token"
MODE_VARIABLE: Final = "RAY_AUTH_MODE"
TOKEN_VARIABLE: Final = "RAY_AUTH_TOKEN"
FILE_VARIABLE: Final = "RAY_AUTH_TOKEN_PATH"


@dataclass(frozen=True, slots=True, repr=False)
class AuthToken:
    """A token, which is never shown.

    Args:
        value: The token; empty if there is none.
        origin: Where it was found, or searched for.
        always: Whether to send it with every request. Otherwise it is sent only to servers that ask for it.
    """

    value: str
    origin: str
    always: bool = False

    def __repr__(self) -> str:
        return f"AuthToken(origin={self.origin!r}, always={self.always})"


def find_token(environ: Mapping[str, str], home: Path) -> AuthToken:
    """Return the user's token: RAY_AUTH_TOKEN, the file RAY_AUTH_TOKEN_PATH, or ~/.ray/auth_token.

    With RAY_AUTH_MODE=token it is always sent, with RAY_AUTH_MODE=disabled never, otherwise on request.

    Raises:
        Denied: The file in RAY_AUTH_TOKEN_PATH cannot be read.
    """
    mode = environ.get(MODE_VARIABLE, "").lower()
    if mode == "disabled":
        return AuthToken("", f"{MODE_VARIABLE}=disabled", always=False)
    always = mode == "token"
    if environ.get(TOKEN_VARIABLE, "").strip():
        return AuthToken(environ[TOKEN_VARIABLE].strip(), TOKEN_VARIABLE, always)
    given = environ.get(FILE_VARIABLE)
    path = Path(given).expanduser() if given else home / DEFAULT_FILE
    try:
        value = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        if given:
            raise Denied(f"{FILE_VARIABLE}: the token file {given} cannot be read: {error}") from None
        value = ""
    return AuthToken(value, str(path), always)
