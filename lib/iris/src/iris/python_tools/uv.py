"""Finds the uv program, and interprets its messages."""

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
    """Return whether uv failed because of the network, so that its cache may suffice (`--offline`)."""
    return bool(_NETWORK.search(words))


_LONGEST: Final = 600
_BEGIN: Final = re.compile(r"^\s*(?:error:|×)\s*(.+)$", re.MULTILINE)
_CAUSE: Final = re.compile(r"^\s*(?:cause:|Caused by:|╰─▶|├─▶)\s*(.+)$")
_STDERR: Final = "[stderr]"
_ANOTHER: Final = re.compile(r"^(?:hint|warning|error):|^\s*(?:help|hint):")


def cause_of(output: str) -> str:
    """Return uv's error with its causes on one line, including the last lines of a failed build; the whole output if no
    error is found.

    uv's output starts with progress messages, which do not describe the failure.
    """
    begin = _BEGIN.search(output)
    if begin is None:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        return lines[-1][:_LONGEST] if lines else ""
    parts = [begin[1].strip()]
    built: list[str] = []
    in_build = False
    for line in output[begin.end() :].splitlines():
        if _ANOTHER.match(line):
            break
        found = _CAUSE.match(line)
        if found is not None:
            in_build = False
            parts.append(found[1].strip())
        elif line.strip() == _STDERR:
            in_build = True
        elif in_build and line.strip():
            built.append(line.strip())
        elif line.strip("│ ").strip() and not in_build and len(parts) > 1:
            parts[-1] += f" {line.strip('│ ').strip()}"  # a cause that is wrapped
    parts += built[-1:]
    return ": ".join(part.rstrip(":") for part in dict.fromkeys(parts))[:_LONGEST]
