"""Explain an experiment instead of running it.

python -m marin.explain experiments/hello_world.py
python -m marin.explain experiments.hello_world --step stats --prefix gs://marin-us-central2

For every step it prints whether a run would execute it. If so, it names the versioned field or dependency that differs
from the most similar earlier output of that name. Unknown arguments are passed to the script.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence

from marin.execution.report.explain_mode import ExplainRequest, explaining
from rigging.errors import MarinError
from rigging.text.printable import printable

_FAILED_EXIT_CODE = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m marin.explain",
        description="Explain which steps of an experiment would run, and why. Runs and writes nothing.",
        allow_abbrev=False,
    )
    parser.add_argument("script", metavar="SCRIPT", help="a script's path, or the dotted name of a module")
    parser.add_argument("--step", metavar="REGEX", help="only the steps whose name matches")
    options, others = parser.parse_known_args(arguments)
    try:
        explain_script(options.script, others, ExplainRequest(options.step))
    except (MarinError, ImportError, FileNotFoundError) as error:
        print(printable(f"explain: {type(error).__name__}: {error}"), file=sys.stderr)
        return _FAILED_EXIT_CODE
    return 0


def explain_script(script: str, arguments: Sequence[str], request: ExplainRequest) -> None:
    """Run a script so that every `executor_main` in it explains its experiment instead of running it.

    Args:
        script: A path, or the dotted name of a module.
        arguments: The script's arguments.
        request: The steps to explain.
    """
    before = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    try:
        with explaining(request):
            if script.endswith(".py") or os.path.exists(script):
                sys.path.insert(0, os.path.dirname(os.path.abspath(script)))  # as `python SCRIPT` does
                runpy.run_path(script, run_name="__main__")
            else:
                sys.path.insert(0, os.getcwd())  # as `python -m` does
                runpy.run_module(script, run_name="__main__", alter_sys=True)
    finally:
        sys.argv, sys.path[:] = before


if __name__ == "__main__":
    sys.exit(main())
