"""Whether what this process prints becomes part of a job's log: a child job's lines are not printed there once more."""

import os
from collections.abc import Mapping
from typing import Final

from iris.client.job_env import job_env
from rigging.errors import InvalidRequest

OUTPUT_PIPES_VARIABLE: Final = "IRIS_OUTPUT_PIPES"
_DESCRIPTORS: Final = {False: 1, True: 2}


def shown_already(job_id: str, environ: Mapping[str, str]) -> frozenset[bool]:
    """The streams (False: stdout, True: stderr) on which the lines of a job need not be printed by this process.

    The follower of a job sees what its child jobs print, each under its name. A job that followed its own child on the
    output that is its log would have every line there twice, four times at the next depth. Output that goes elsewhere,
    to a file or through a pipe of the job's own, gets the lines.
    """
    try:
        inside = job_env(environ)
    except InvalidRequest:
        return frozenset()
    pipes = environ.get(OUTPUT_PIPES_VARIABLE, "").split(",")
    if inside is None or not job_id.startswith(inside.job_id + "/") or len(pipes) != len(_DESCRIPTORS):
        return frozenset()
    return frozenset(is_stderr for is_stderr, number in _DESCRIPTORS.items() if pipe_name(number) in pipes)


def pipe_name(descriptor: int) -> str:
    """Names the file that is open there; "-" for none."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return "-"
    return f"{found.st_dev}:{found.st_ino}"
