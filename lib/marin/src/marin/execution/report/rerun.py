"""Commands for hints, as the user would type them: one that runs a step again, and `marin`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final

IRIS_RUN_COMMAND: Final = "IRIS_RUN_COMMAND"
"""The variable in which `iris job run` passes a job its submit command, without the job's own command."""

# Which steps run is for the new command to say; and a failed one is to run again.
_DROPPED: Final = ("--run_only", "--force_run_failed", "--force", "--pdb")


def step_pattern(name: str) -> str:
    """Return a regex that matches only this step's name, for `--run_only`."""
    # Not `re.escape`, which would make `c4\\-en` of `c4-en`.
    escaped = re.sub(r"[.^$*+?{}|()\[\]\\]", r"\\\g<0>", name)
    return f"^{escaped}$"


def rerun_command(
    name: str,
    words: Sequence[str] = sys.orig_argv,
    environ: Mapping[str, str] = os.environ,
    executable: str = sys.executable,
) -> str:
    """Return the command that runs the step `name` of this process's script, with its dependencies.

    For a job of `iris job run`, return the command that submits it again.

    Args:
        name: The step's name.
        words: The arguments of this process, starting with its interpreter.
        environ: Its variables.
        executable: Its interpreter.
    """
    # Only for failures: together they take as long to import as a tenth of the executor.
    import shlex
    import shutil

    script = _without_dropped(words[1:])
    if "MARIN_PREFIX" in environ and not any(word.split("=")[0] == "--prefix" for word in script):
        script += ["--prefix", environ["MARIN_PREFIX"]]
    if "IRIS_JOB_ID" in environ:
        submit = environ.get(IRIS_RUN_COMMAND, "uv run iris job run")
        start = f"{submit} -- python"
    elif "UV_RUN_RECURSION_DEPTH" in environ:
        start = "uv run python"
    else:
        python = os.path.basename(executable)
        start = python if shutil.which(python, path=environ.get("PATH", "")) == executable else shlex.quote(executable)
    pattern = shlex.quote(step_pattern(name))
    forced = f" --force {pattern}" if any(word.split("=")[0] == "--force" for word in words) else ""
    return f"{start} {shlex.join(script)} --run_only {pattern}{forced}"


def marin_command(environ: Mapping[str, str] = os.environ, executable: str = sys.executable) -> str:
    """Return the command for `marin` in this process's environment: `uv run marin`, `marin`, or through the
    interpreter.

    Args:
        environ: The process's variables.
        executable: Its interpreter.
    """
    import shutil

    if "UV_RUN_RECURSION_DEPTH" in environ or environ.get(IRIS_RUN_COMMAND, "").startswith("uv run "):
        return "uv run marin"
    if IRIS_RUN_COMMAND in environ or shutil.which("marin", path=environ.get("PATH", "")):
        return "marin"
    return f"{executable} -m marin.cli"


def _without_dropped(words: Sequence[str]) -> list[str]:
    kept: list[str] = []
    skips = False
    for index, word in enumerate(words):
        option, has_value, _ = word.partition("=")
        if skips:
            skips = False
        elif option in _DROPPED:
            following = words[index + 1] if index + 1 < len(words) else "-"
            skips = not has_value and not following.startswith("-")
        else:
            kept.append(word)
    return kept
