"""The command-line options of an experiment script."""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, NoReturn

from marin.execution.plan.rerun_changed import check_tag
from marin.execution.plan.selection import check_patterns
from marin.execution.report.shell import has_command_line
from marin.execution.run.crew import check_max_concurrent
from rigging.errors import InvalidRequest
from rigging.text.printable import printable

_USAGE_EXIT_CODE: Final = 2
_FLAGS: Final = ("--dry_run", "--explain", "--strict", "--pdb", "--verbose")
_WITH_HYPHENS: Final = {"--env-file": "--env_file", "--rerun-changed": "--rerun_changed"}
# draccus's and argparse's own.
_FOREIGN: Final = ("--help", "--config_path")


@dataclass(frozen=True)
class ExecutorMainConfig:
    """Run the steps of this experiment whose output does not exist."""

    prefix: str | None = None
    """The storage root of every output path (default: MARIN_PREFIX, else the region's bucket, else /tmp/marin)."""

    executor_info_base_path: str | None = None
    """The directory for the run's info file (default: {prefix}/experiments)."""

    dry_run: bool = False
    """Print the steps that would run, without accessing storage."""

    force_run_failed: bool = True
    """Retry steps that failed in an earlier run."""

    run_only: list[str] | None = None
    """Run only steps whose name matches one of these regexes, with their dependencies; may be repeated."""

    max_concurrent: int | None = None
    """Maximum number of concurrent steps (default: no limit)."""

    force: list[str] | None = None
    """Rerun steps whose name matches, like run_only; their outputs are kept aside until the new ones exist."""

    rerun_changed: str | None = None
    """Run steps of changed code, and their dependants, with outputs at {output path}@TAG; old outputs stay."""

    explain: bool = False
    """Explain for each step whether it would run and why, and run nothing."""

    strict: bool = False
    """Refuse existing outputs that were made with other unversioned values or code."""

    env_file: list[str] | None = None
    """Files of variables for the steps and their jobs, with lines NAME=value; may be repeated, later files win."""

    step: str | None = None
    """With --explain: only the steps whose name matches this regex."""

    verbose: bool = False
    """Log debug messages, and all frames of errors; also -v."""

    pdb: bool = False
    """Open a debugger when a step of this process fails; no other step starts meanwhile."""


def parse_command_line(arguments: Sequence[str]) -> ExecutorMainConfig:
    """Parse command-line arguments. Exit with a usage error if an option is wrong."""
    import draccus
    import yaml

    try:
        words = _as_draccus_reads(arguments)
        _check_names(words)
        parsed: ExecutorMainConfig = draccus.parse(ExecutorMainConfig, args=words)
        _check(parsed)
    except (draccus.utils.DecodingError, InvalidRequest) as error:
        end_with_usage_error(error)
    except (OSError, yaml.YAMLError) as error:  # only of that file
        end_with_usage_error(InvalidRequest(f"--config_path: cannot read it: {error}"))
    return parsed


def end_with_usage_error(error: BaseException) -> NoReturn:
    """Print a wrong option's error in one sentence, and exit."""
    print(printable(f"{os.path.basename(sys.argv[0])}: error: {error}"), file=sys.stderr)
    sys.exit(_USAGE_EXIT_CODE)


def script_arguments() -> list[str]:
    """Return the arguments after the script's name; [] in a notebook or IPython shell, whose arguments are for the
    kernel.
    """
    return sys.argv[1:] if has_command_line() else []


def _check_names(words: Sequence[str]) -> None:
    """Check that all options exist.

    Raises:
        InvalidRequest: An option does not exist. The message names it and the nearest existing one.
    """
    known = [f"--{item.name}" for item in fields(ExecutorMainConfig)]
    for word in words:
        if not word.startswith("--") or word in known or word in _FOREIGN:
            continue
        nearest = difflib.get_close_matches(word.replace("-", "_"), [name.replace("-", "_") for name in known], n=1)
        hint = f"; did you mean --{nearest[0].lstrip('_')}?" if nearest else ""
        raise InvalidRequest(f"unrecognized arguments: {word}{hint} (options: {', '.join(known)}, --help)")


def _check(options: ExecutorMainConfig) -> None:
    """Check the options' values, as far as possible without the steps.

    Raises:
        InvalidRequest: A value is wrong. The message names its option.
    """
    check_max_concurrent(options.max_concurrent)
    check_patterns(options.run_only or (), "--run_only")
    check_patterns(options.force or (), "--force")
    if options.rerun_changed is not None:
        check_tag(options.rerun_changed, dry_run=options.dry_run, option="--rerun-changed")
    if options.step is not None:
        check_patterns([options.step], "--step")
        if not options.explain:
            raise InvalidRequest(
                f"--step {options.step} works only with --explain; use --run_only to choose steps to run"
            )


def _as_draccus_reads(arguments: Sequence[str]) -> list[str]:
    """Translate `-v`, `--dry_run`, `--run_only stats` and each `--env_file F` to the forms that draccus reads: `true`,
    a list.
    """
    words = [part for word in arguments for part in (word.split("=", 1) if word.startswith("--") else [word])]
    words = [_WITH_HYPHENS.get(word, word) for word in words]
    for option, what in (("--env_file", "the name of a file"), ("--run_only", "a regex"), ("--force", "a regex")):
        words = _with_one_list(words, option, what)
    read: list[str] = []
    for index, word in enumerate(words):
        option = words[index - 1] if index else ""
        if option in ("--step", "--rerun_changed"):
            word = json.dumps(word)
        elif word == "-v":
            word = "--verbose"
        read.append(word)
        has_value = index + 1 < len(words) and not words[index + 1].startswith("-")
        if word in _FLAGS and not has_value:
            read.append("true")
    return read


def _with_one_list(words: Sequence[str], option: str, what: str) -> list[str]:
    """Join the values of a repeated option into one list, after the other arguments."""
    rest, values = list[str](), list[str]()
    remaining = iter(words)
    for word in remaining:
        value = next(remaining, None) if word == option else None
        if word != option:
            rest.append(word)
        elif value is None:
            raise InvalidRequest(f"{option} needs {what}")
        else:
            values += _listed(value) if option != "--env_file" else [value]
    return [*rest, option, json.dumps(values)] if values else rest


def _listed(value: str) -> list[str]:
    """Return the members of a list such as `[a, "b"]`, or the value itself."""
    import yaml

    try:
        found = yaml.safe_load(value) if value.startswith("[") and value.endswith("]") else value
    except yaml.YAMLError as error:
        raise InvalidRequest(f"{value!r} is not a list: {error}") from error
    return [str(each) for each in found] if isinstance(found, list) else [value]
