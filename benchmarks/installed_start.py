"""Start-up times of commands, with the libraries installed from wheels in a clean environment.

uv run --group dev python -m benchmarks.installed_start [--runs 15]

Aims: `import fray` at most 0.1 s, `import marin.execution` 0.25 s, `iris --help` 0.2 s, each a whole process.
"""

import argparse
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from tests.packaging.test_wheels import install
from tests.packaging.user import Outsider, build_wheels


def main() -> None:
    """Install, measure the commands alternately, and print the minimum and median of each in milliseconds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        outsider = Outsider(Path(folder))
        programs = install(outsider, build_wheels(Path(folder) / "wheels"))
        python = str(programs / "python")
        commands = {
            "python -c pass": [python, "-c", "pass"],
            "import fray": [python, "-c", "import fray"],
            "import marin.execution": [python, "-c", "import marin.execution"],
            "iris --help": [str(programs / "iris"), "--help"],
            "marin --help": [str(programs / "marin"), "--help"],
        }
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs + 1):
            for name, command in commands.items():
                begin = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True, env=outsider.environment())
                taken[name].append((time.perf_counter() - begin) * 1000)
        for name, times in taken.items():
            counted = times[1:]  # the first compiles
            print(f"{name:24} least {min(counted):6.0f} ms   median {statistics.median(counted):6.0f} ms")


if __name__ == "__main__":
    main()
