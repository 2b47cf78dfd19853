"""The submitter's user name in a form for job ids."""

import os
import re
from collections.abc import Callable
from functools import lru_cache

from rigging.user import user_name


def default_user(login: Callable[[], str] = user_name) -> str:
    """Return the submitter's login name with other characters replaced by "-"; `uid-<N>` for a uid without a name.

    Args:
        login: Returns the login name.
    """
    return _as_name(login())


@lru_cache(maxsize=8)
def _as_name(name: str) -> str:
    cleaned = re.sub(r"[^A-Za-z0-9_.@+=-]", "-", name)[:128]
    if not cleaned.strip(".-"):
        return f"uid-{os.getuid()}"
    return f"uid-{cleaned}" if cleaned.isdigit() else cleaned
