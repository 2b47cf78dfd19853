"""`iris job wait`: waits until jobs have ended, and exits with a code for the outcome."""

from typing import TYPE_CHECKING

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.exit_codes import NOT_SUCCEEDED, OK, TIME_IS_UP
from iris.cli.output import output, say
from iris.cli.params import LIVE_JOB, SPAN
from rigging.errors import DeadlineExceeded

if TYPE_CHECKING:
    from iris.client import JobStatus


@click.command()
@click.argument("names", type=LIVE_JOB, metavar="JOB...", nargs=-1, required=True)
@click.option("--any", "any_of_them", is_flag=True, help="Return when one job has ended.")
@click.option(
    "--timeout",
    type=SPAN,
    metavar="T",
    help="Stop waiting after this time: seconds, or 90s, 10m, 2h. The jobs continue.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def wait(
    context: CliContext, /, names: tuple[str, ...], any_of_them: bool, timeout: float | None, as_json: bool
) -> int:
    """Wait until jobs have ended and all their processes have exited.

    Exit code: 0 if all succeeded, 8 if one failed or was stopped, 7 at the timeout.
    """
    from iris.cli.job.ids import find_job

    with context.client() as client:
        # Each by itself: a name that is wrong must not be waited without.
        wanted = list(dict.fromkeys(str(find_job(client, name).job_id) for name in names))
        try:
            statuses = client.wait_jobs(wanted, any=any_of_them, timeout=timeout)
        except DeadlineExceeded as error:
            say(str(error))
            return TIME_IS_UP
    ended = [status for status in statuses if status.is_terminal]
    rows = [[status.job_id, status.state.word, status.error] for status in ended]
    output(as_json).rows(("job", "state", "error"), rows, [status.to_json() for status in ended])
    return OK if all(_succeeded(status) for status in ended) else NOT_SUCCEEDED


def _succeeded(status: "JobStatus") -> bool:
    from iris.cluster.types import JobState

    return status.state is JobState.SUCCEEDED
