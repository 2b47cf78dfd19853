"""The command line of `marin.migrate`.

python -m marin.migrate check experiments/ scripts/train.py
python -m marin.migrate paths experiments/train.py --against gs://marin-us-central2
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from rigging.errors import MarinError
from rigging.text.printable import print_lines, printable

_FOUND_EXIT_CODE = 1
_FAILED_EXIT_CODE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0, 1 if `check` found something, 2 if it failed."""
    parser = argparse.ArgumentParser(prog="python -m marin.migrate", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="inspect scripts without running them; list lines that will not work")
    check.add_argument("path", nargs="+", metavar="PATH", help="a script, or a directory of scripts")
    paths = commands.add_parser("paths", help="show which steps of a script find their outputs in an existing bucket")
    paths.add_argument("script", metavar="SCRIPT", help="a script's path or dotted name; its steps do not run")
    paths.add_argument("--against", required=True, metavar="PREFIX", help="the storage root, such as gs://bucket")
    options, others = parser.parse_known_args(arguments)
    if others and options.command == "check":
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    try:
        return _check(options.path) if options.command == "check" else _paths(options.script, options.against, others)
    except (MarinError, ImportError, OSError) as error:
        print(printable(f"migrate: {type(error).__name__}: {error}"), file=sys.stderr)
        return _FAILED_EXIT_CODE


def _check(paths: Sequence[str]) -> int:
    from marin.migrate.check import check_paths

    files, findings = check_paths(paths)
    print_lines([printable(str(finding)) for finding in findings])
    print(f"{files} file(s), {len(findings)} line(s) that will not work here")
    return _FOUND_EXIT_CODE if findings else 0


def _paths(script: str, prefix: str, others: Sequence[str]) -> int:
    from marin.execution.explain import Explanation
    from marin.execution.report.explain_mode import ExplainRequest
    from marin.explain import explain_script
    from marin.migrate.paths import any_output, is_there, path_lines, traceback_of_script

    found: list[Explanation] = []
    before = os.environ.get("MARIN_PREFIX")
    os.environ["MARIN_PREFIX"] = prefix
    try:
        explain_script(script, others, ExplainRequest(prefix=prefix, tell=found.extend))
    except SystemExit:
        if not found:
            print(printable(f"migrate: {script} ended by itself before its steps"), file=sys.stderr)
            raise
        # What it does with its outputs afterwards is its own affair: `sys.exit(main())` is how many scripts end.
    except MarinError:
        print_lines(path_lines(found, prefix) if found else [])
        raise
    except Exception as error:
        print_lines(path_lines(found, prefix) if found else [])
        print(printable(traceback_of_script(error)), file=sys.stderr)
        where = "after these steps" if found else "before its steps"
        print(printable(f"migrate: {script} failed {where}"), file=sys.stderr)
        return _FAILED_EXIT_CODE
    finally:
        if before is None:
            del os.environ["MARIN_PREFIX"]
        else:
            os.environ["MARIN_PREFIX"] = before
    print_lines(path_lines(found, prefix))
    if not any_output(found) and not is_there(prefix):
        print(printable(f"migrate: there is nothing at {prefix}; check the storage root"), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
