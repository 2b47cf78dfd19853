"""Who submits: the user's name as it may stand in a job id."""

import getpass
import os
import re
from functools import lru_cache


def default_user() -> str:
    """The submitter's login name with other characters replaced by "-"; `uid<N>` for a uid without a name."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):
        name = ""
    return _as_name(name)


@lru_cache(maxsize=8)
def _as_name(name: str) -> str:
    cleaned = re.sub(r"[^A-Za-z0-9_.@+=-]", "-", name)[:128]
    if not cleaned.strip(".-"):
        return f"uid{os.getuid()}"
    return f"uid{cleaned}" if cleaned.isdigit() else cleaned
