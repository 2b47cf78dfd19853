"""Ending what a guardian left behind that was killed itself."""

import logging
from pathlib import Path

from iris.worker.guardian import cgroup
from iris.worker.guardian.orphans import kill_leftovers

logger = logging.getLogger(__name__)


def end_leftovers(work_dir: Path) -> None:
    """Kill every process that a former guardian of this work directory has started. None may live now."""
    cgroup.kill_recorded(work_dir)
    killed = kill_leftovers(work_dir)
    if killed:
        logger.warning("killed %d processes that a former guardian left behind: %s", len(killed), killed)
