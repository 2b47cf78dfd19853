"""Whether what this process prints becomes part of a job's log: a child job's lines are not printed there once more."""

from collections.abc import Mapping

from iris.client.job_env import job_env
from iris.cluster.own_log import streams_of_log
from rigging.errors import InvalidRequest


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
    return streams_of_log(environ) if inside is not None and job_id.startswith(inside.job_id + "/") else frozenset()
