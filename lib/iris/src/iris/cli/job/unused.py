"""Options of `iris job run` that say nothing without another one. Pure."""

from collections.abc import Collection
from typing import Final

_NEEDS: Final = {
    "health_interval": "health_cmd",
    "health_timeout": "health_cmd",
    "health_retries": "health_cmd",
    "retry_window": "max_retries",
}
_GIVE: Final = {"health_cmd": "--health-cmd CMD", "max_retries": "--max-retries N"}


def unused_option(given: Collection[str]) -> str:
    """Return what is wrong with a command line: an option that was given, and without which other one it says nothing.

    Args:
        given: The options that were given, by the names of their parameters.
    """
    for name, needed in _NEEDS.items():
        if name in given and needed not in given:
            return f"--{name.replace('_', '-')} says nothing without {_GIVE[needed]}: give both, or neither"
    return ""
