"""Kills the processes of a killed guardian."""

import contextlib
import logging
import os
import re
from pathlib import Path
from typing import Final

from iris.worker.strays import cgroup
from iris.worker.strays.orphans import kill_leftovers
from iris.worker.users.identity import kill_all_of

_UIDS: Final = re.compile(r"^Uid:\t(\d+)", re.MULTILINE)

logger = logging.getLogger(__name__)


def end_leftovers(work_dir: Path) -> None:
    """Kill every process that an earlier guardian of this work directory started. Call it only while no guardian is
    alive.
    """
    cgroup.kill_recorded(work_dir)
    for uid in _uids_of_tasks(work_dir):
        kill_all_of(uid)
    killed = kill_leftovers(work_dir)
    if killed:
        logger.warning("killed %d leftover processes of an earlier guardian: %s", len(killed), killed)


def _uids_of_tasks(work_dir: Path) -> set[int]:
    """Return the uids of this work directory's tasks that have processes."""
    given: set[int] = set()
    with contextlib.suppress(FileNotFoundError):
        given = {int(name) for name in os.listdir(work_dir / "users") if name.isdigit()}
    found: set[int] = set()
    for name in os.listdir("/proc") if given else ():
        if name.isdigit():
            with contextlib.suppress(OSError):
                # The owner of the directory is root where a process has made itself undumpable.
                found |= {int(uid) for uid in _UIDS.findall(Path(f"/proc/{name}/status").read_text(errors="replace"))}
    return (found & given) - {0}
