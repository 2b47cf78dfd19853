"""Programs that tests run to their end."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_program(
    words: str | Sequence[str],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    *,
    code: int = 0,
    seconds: float = 100,
) -> subprocess.CompletedProcess[str]:
    """Run a program; AssertionError with all that it wrote where it does not end with `code`.

    Args:
        words: Its words; a text: lines for bash, in which the programs of this environment are on PATH.
        cwd: Where it runs.
        env: All of its variables; None: those of this process.
        code: How it has to end.
        seconds: How long it may take.
    """
    variables = dict(os.environ if env is None else env)
    if isinstance(words, str):
        variables["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), variables.get("PATH", os.defpath)])
        words = ["bash", "-ec", words]
    done = subprocess.run(
        words, cwd=cwd, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == code, f"{words}: exit code {done.returncode}\n{done.stdout[-9000:]}{done.stderr[-9000:]}"
    return done
