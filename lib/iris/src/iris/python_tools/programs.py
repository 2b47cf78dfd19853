"""Finds a machine's Python interpreters by the versions in their names."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from iris.domain.python_version import fits, minor

_PROGRAM: Final = re.compile(r"python3\.[0-9]+")
_PROBE: Final = "import sys; print('.'.join(map(str, sys.version_info[:3])))"


def python_programs(request: str, path: str) -> list[str]:
    """Return programs such as "/usr/bin/python3.12" that may satisfy `request` ("3.12", ">=3.11"), without running
    them.

    Search the directories of `path` (a PATH), then next to this process's installation, because version managers
    install versions side by side.
    """
    installed = Path(sys.base_prefix).parent
    folders = [*path.split(os.pathsep), *map(str, sorted(installed.glob("*/bin"), reverse=True))]
    found = [program for folder in dict.fromkeys(folders) for program in _programs(folder)]
    # "3.12" of ".../python3.12" is enough to leave out what cannot be meant.
    wanted = minor(request) if re.fullmatch(r"[0-9]+\.[0-9.]+", request) else ""
    return [program for program in found if not wanted or program.rpartition("python")[2] == wanted]


def find_python(request: str, path: str) -> str:
    """Return the first of `python_programs` that runs and satisfies `request`; empty if there is none."""
    for program in python_programs(request, path):
        try:
            said = subprocess.run([program, "-I", "-c", _PROBE], capture_output=True, text=True, check=True, timeout=20)
        except (OSError, subprocess.SubprocessError):
            continue
        if fits(said.stdout.strip(), request):
            return program
    return ""


def _programs(folder: str) -> Iterator[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    yield from (os.path.join(folder, name) for name in sorted(names, reverse=True) if _PROGRAM.fullmatch(name))
