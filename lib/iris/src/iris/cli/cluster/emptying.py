"""Waits until drained workers have no attempts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from iris.cli.context import CliContext
from iris.cli.exit_codes import OK, TIME_IS_UP
from iris.cli.output import listed, say
from iris.cli.status_line import StatusLine

if TYPE_CHECKING:
    from iris.client import IrisClient

_LOOK_EVERY_S: Final = 1.0
_TELL_EVERY_S: Final = 15.0


def await_empty(context: CliContext, client: "IrisClient", names: Sequence[str], deadline: float | None) -> int:
    """Wait until no attempt holds resources of these workers, and return the exit code.

    Args:
        context: Provides the clock and sleep.
        client: The cluster's client.
        names: The drained workers.
        deadline: Seconds after which the remaining attempts are printed; None for no limit.
    """
    began, told = context.clock(), 0.0
    try:
        with StatusLine() as status:
            while left := [worker for worker in client.workers(names) if worker.attempts]:
                waited = context.clock() - began
                if deadline is not None and waited >= deadline:
                    break
                count = sum(len(worker.attempts or ()) for worker in left)
                what = f"{count} attempt{'s' if count > 1 else ''}"
                text = f"waiting for {what} on {listed([worker.worker_id for worker in left])}"
                status.show(text)
                if waited >= told:
                    status.phase(text)
                    told = waited + _TELL_EVERY_S
                context.sleep(_LOOK_EVERY_S if deadline is None else min(_LOOK_EVERY_S, deadline - waited))
    except KeyboardInterrupt:
        say("the workers stay drained; `iris cluster worker drain --wait` waits again, `uncordon` uses them again")
        raise
    for worker in left:
        silent = "" if worker.connected and not worker.is_late else " (not heard now)"
        say(f"worker {worker.worker_id}{silent} still has {listed([one.attempt_id for one in worker.attempts or ()])}")
    if not left:
        say(f"nothing is left on {listed(names)}")
    return TIME_IS_UP if left else OK
