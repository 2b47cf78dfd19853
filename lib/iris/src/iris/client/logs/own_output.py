"""Whether this process's output is part of a job's log: a child job's lines are then not printed again."""

from collections.abc import Mapping

from iris.client.job_env import job_env
from iris.cluster.own_log import streams_of_log
from rigging.errors import InvalidRequest


def shown_already(job_id: str, environ: Mapping[str, str]) -> frozenset[bool]:
    """Return the streams (False: stdout, True: stderr) on which this process need not print a job's lines.

    A job's follower also sees the lines of its child jobs, under their names. If a job followed its own child on the
    output that is its log, every line would appear twice, and four times at the next depth. Output that goes elsewhere,
    to a file or through a pipe, gets the lines.
    """
    try:
        inside = job_env(environ)
    except InvalidRequest:
        return frozenset()
    return streams_of_log(environ) if inside is not None and job_id.startswith(inside.job_id + "/") else frozenset()
