"""Make Ray's own command line send the user's token. Run by marin_ray_token.pth when the program `ray` starts.

For an explicit address Ray sends the token of a file only with RAY_AUTH_MODE=token, and otherwise reports that there is
no token. `ray job submit --address ...` would then fail even with the cluster's token in place.
"""

import os
import sys
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Final

from rigging.errors import Denied
from rigging.ray_token import MODE_VARIABLE, find_token

# Those that speak with a dashboard. A node that `ray start` starts must have the mode of its cluster.
_COMMANDS: Final = frozenset({"job", "list", "get", "summary", "logs"})


def use_token() -> None:
    """Set the mode for this process."""
    set_auth_mode(sys.orig_argv[2:], os.environ, Path.home())


def set_auth_mode(words: Sequence[str], environ: MutableMapping[str, str], home: Path) -> None:
    """Set RAY_AUTH_MODE=token if the command contacts a dashboard, there is a token, and no mode is set.

    Args:
        words: The arguments of `ray`.
        environ: The environment to modify.
        home: The user's home directory.
    """
    if MODE_VARIABLE in environ or not words or words[0] not in _COMMANDS:
        return
    try:
        token = find_token(environ, home)
    except Denied:
        return  # Ray reports it itself
    if token.value:
        environ[MODE_VARIABLE] = "token"
