"""The user of this process."""

import getpass
import os


def user_name() -> str:
    """Return the user's name; `uid-{number}` for an id without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such uid; or a system without names of users
        return f"uid-{os.getuid()}"
