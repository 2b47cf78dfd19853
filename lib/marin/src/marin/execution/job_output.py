"""What the jobs of steps print, shown by the run that waits for them."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from marin.execution.step_output import Rows

if TYPE_CHECKING:
    from fray.client import JobHandle
    from fray.growing_text import GrowingText

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.25
_LAST_PAUSE_SECONDS: Final = 2.0
# Each look gets the whole log: the longer that takes, the rarer they are.
_PAUSE_PER_LOOK: Final = 4.0
_END_SECONDS: Final = 30.0


class JobLines:
    """Makes whole lines of what the replicas of a step's job write, each with the step's name.

    Args:
        step_name: What lines begin with; where there are several replicas, with the replica's number.
        replicas: How many there are.
    """

    def __init__(self, step_name: str, replicas: int) -> None:
        self._name = step_name
        self._are_several = replicas > 1
        self._texts: dict[int | None, GrowingText] = {}
        self._rows: dict[int | None, Rows] = {}

    def take_new(self, logs: Mapping[int | None, str], *, ended: bool = False) -> str:
        """The lines that were not taken yet; with `ended` those without a line break, too."""
        from fray.growing_text import GrowingText

        lines: list[str] = []
        for replica in sorted(logs, key=lambda key: -1 if key is None else key):
            text = self._texts.setdefault(replica, GrowingText())
            rows = self._rows.setdefault(replica, Rows())
            whole = rows.feed(text.take_new(logs[replica], ended=ended))
            if ended:
                whole += [line for line in rows.texts if line.strip()]
                self._rows[replica] = Rows()
            label = f"{self._name} {replica}" if self._are_several and replica is not None else self._name
            lines += [f"[{label}] {line}\n" for line in whole]
        return "".join(lines)


@contextlib.contextmanager
def shown_output(handle: JobHandle, step_name: str, replicas: int) -> Iterator[None]:
    """Show during the block what the job of a step writes, where nobody else does.

    Args:
        handle: The job.
        step_name: The step's.
        replicas: How many the job has.
    """
    from fray.client import GivesReplicaLogs

    if not isinstance(handle, GivesReplicaLogs):
        yield
        return
    lines, ended = JobLines(step_name, replicas), threading.Event()
    thread = threading.Thread(target=_follow, args=(handle, lines, ended), name="marin-job-output", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_END_SECONDS)


def _follow(handle: JobHandle, lines: JobLines, ended: threading.Event) -> None:
    from fray.client import GivesReplicaLogs

    assert isinstance(handle, GivesReplicaLogs)
    pause = _FIRST_PAUSE_SECONDS
    try:
        while True:
            is_last = ended.wait(pause)
            began = time.monotonic()
            text = lines.take_new(handle.replica_logs(), ended=is_last)
            if text:
                # One write, so that nobody else's text comes between.
                sys.stdout.write(text)
                sys.stdout.flush()
            if is_last:
                return
            pause = _FIRST_PAUSE_SECONDS if text else min(1.5 * pause, _LAST_PAUSE_SECONDS)
            pause = max(pause, _PAUSE_PER_LOOK * (time.monotonic() - began))
    except Exception as error:
        # What cannot be shown decides nothing: the job's end tells how it went.
        logger.warning("the output of job %s is shown no further: %s", handle.job_id, error)
