"""The token that a Ray cluster with token authentication asks for, found where Ray's own tools look for it."""

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
    """A token; never shown.

    Args:
        value: Empty: there is none.
        origin: Where it is from, or where it was looked for.
        always: Whether it goes along with every request; else only with those to a server that has asked for it.
    """

    value: str
    origin: str
    always: bool = False

    def __repr__(self) -> str:
        return f"AuthToken(origin={self.origin!r}, always={self.always})"


def find_token(environ: Mapping[str, str], home: Path) -> AuthToken:
    """Find the user's token: RAY_AUTH_TOKEN, the file RAY_AUTH_TOKEN_PATH, or ~/.ray/auth_token.

    With RAY_AUTH_MODE=token it is always sent, with RAY_AUTH_MODE=disabled never, else when it is asked for.

    Raises:
        Denied: RAY_AUTH_TOKEN_PATH names a file that cannot be read.
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
