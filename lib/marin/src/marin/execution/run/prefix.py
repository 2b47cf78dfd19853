"""Set the process's prefix to the run's prefix during a script's run, as in the jobs of its steps."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from marin.execution.jobs.step_call import mirror_budget_gb
from marin.execution.version.step_version import Step

logger = logging.getLogger(__name__)

_VARIABLE: Final = "MARIN_PREFIX"
# The environment is the process's: of runs at once the first one sets it.
_in_use = threading.Lock()


@contextmanager
def prefix_in_force(prefix: str) -> Iterator[None]:
    """Context manager: make `prefix` the process's prefix, for `mirror://` paths, `marin_prefix()` and child processes.

    A prefix that another run has set with this function stays, with a warning.
    """
    before = os.environ.get(_VARIABLE)
    if before == prefix:
        yield
        return
    if not _in_use.acquire(blocking=False):
        logger.warning(
            "another run of this process has the prefix %s: mirror:// paths and marin_prefix() in the functions of the "
            "run at %s use that prefix",
            before,
            prefix,
        )
        yield
        return
    os.environ[_VARIABLE] = prefix
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before
        _in_use.release()


def warn_of_other_mirror(steps: Iterable[Step], prefix: str) -> None:
    """Warn if steps in this process would read mirrored paths below another prefix than their run's."""
    if os.environ.get(_VARIABLE) == prefix:
        return  # no need to look into configs
    reading = [step.name for step in steps if mirror_budget_gb(step.config) is not None]
    if not reading:
        return
    from rigging.filesystem import marin_prefix

    local = marin_prefix()
    if local != prefix.rstrip("/"):
        logger.warning(
            "steps %s read mirror:// paths, which this process looks for below %s, not below the run's prefix %s; set "
            "MARIN_PREFIX to it",
            ", ".join(reading[:5]),
            local,
            prefix,
        )
