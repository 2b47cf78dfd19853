"""The name of the user of this process."""

import getpass
import os


def user_name() -> str:
    """Return the user's name; `uid-{number}` for an id without one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"
