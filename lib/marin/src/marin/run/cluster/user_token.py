"""The token of a cluster, in the file where Ray's own tools look for it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rigging.errors import InvalidRequest
from rigging.filesystem.private import write_private
from rigging.ray_token import DEFAULT_FILE, FILE_VARIABLE, TOKEN_VARIABLE

_ASKED = "RAY_AUTH_MODE=token"


def wants_token(config: Mapping[str, Any]) -> bool:
    """Return whether the cluster of a file requires a token."""
    docker = config.get("docker") or {}
    texts = [*(docker.get("run_options") or ()), *(docker.get("head_run_options") or ())]
    return any(_ASKED in str(text) for text in [*texts, *(config.get("head_start_ray_commands") or ())])


def store_token(value: str, environ: Mapping[str, str], home: Path) -> str:
    """Write a token into the user's token file. Another cluster's token is kept beside it as `.before`.

    Args:
        value: The token.
        environ: The environment variables, which may name the file.
        home: The user's home directory.

    Returns:
        A message for the user; empty if the file already had the token.

    Raises:
        InvalidRequest: The token is empty.
    """
    if not value or any(character.isspace() for character in value):
        raise InvalidRequest("the cluster's head has no token (RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token)")
    path = Path(environ[FILE_VARIABLE]).expanduser() if environ.get(FILE_VARIABLE) else home / DEFAULT_FILE
    shadowed = f"; {TOKEN_VARIABLE} is set and takes precedence" if environ.get(TOKEN_VARIABLE) else ""
    before = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    if before == value:
        return ""
    path.parent.mkdir(parents=True, exist_ok=True)
    if before:
        write_private(path.with_name(f"{path.name}.before"), before.encode())
    write_private(path, value.encode())
    kept = f"; the previous token is in {path}.before" if before else ""
    return f"the cluster's token is in {path}{kept}{shadowed}"
