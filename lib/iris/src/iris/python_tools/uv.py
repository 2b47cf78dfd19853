"""The uv program, and what its words mean."""

import os
import re
from typing import Final

# When an index or a host cannot be reached.
_NETWORK: Final = re.compile(
    r"error sending request|Failed to fetch|dns error|[Cc]onnection (refused|reset)|timed? ?out|tcp connect|"
    r"[Nn]etwork is unreachable|Temporary failure in name resolution"
)


def uv_program() -> str:
    """Return the path of uv. Raises FileNotFoundError."""
    import uv

    return os.fsdecode(uv.find_uv_bin())


def is_network_failure(words: str) -> bool:
    """Whether uv failed because something could not be reached, so that its cache may do (`--offline`)."""
    return bool(_NETWORK.search(words))
