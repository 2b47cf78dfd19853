"""Run programs in tests."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path


@contextlib.contextmanager
def printed_address(words: Sequence[str | Path], cwd: str | None = None) -> Iterator[str]:
    """Context manager: run a program and yield the address that it prints first. The program ends with its input."""
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=cwd) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://")
        yield url
        process.stdin.close()


def run_program(
    words: str | Sequence[str],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    *,
    code: int = 0,
    seconds: float = 100,
) -> subprocess.CompletedProcess[str]:
    """Run a program. Raise AssertionError with its output unless it exits with `code`.

    A text is a bash script, with this environment's programs on PATH.
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
