"""A Python that runs as an ordinary user, for tests of workers without root."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

NOBODY: Final = 65534


@cache
def ordinary_user() -> tuple[list[str], dict[str, str]] | None:
    """Return the command and variables of a Python that runs as an ordinary user; None if not available."""
    if os.geteuid() != 0:
        return [sys.executable], {}
    if not shutil.which("setpriv"):
        return None
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    variables = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONDONTWRITEBYTECODE": "1"}
    for program in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        if not all(above.stat().st_mode & 0o001 for above in Path(program).resolve().parents):
            continue
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", program]
        tried = subprocess.run(
            [*command, "-c", "import iris.worker.app"],
            capture_output=True,
            env={**os.environ, **variables},
            check=False,
        )
        if tried.returncode == 0:
            return command, variables
    return None
