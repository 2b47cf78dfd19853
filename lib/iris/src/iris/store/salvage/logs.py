"""Jobs that a controller's logs show and its database has lost."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_LOG: Final = re.compile(r"~(\d+)\.(\d+)(\.\d+)?(?:-\d+)?\.(log|zst|moved|exception|result)")


@dataclass(slots=True)
class Leftovers:
    """Jobs that have logs, whether or not the database knows them.

    Args:
        attempts: The highest number that each task (job, index) was tried under, by the names of its logs.
        unknown: Jobs with logs and without a record in the database; filled in by its reader.
    """

    attempts: dict[str, dict[int, int]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    @classmethod
    def found(cls, logs: Path) -> "Leftovers":
        """Return the jobs with logs below a directory."""
        result = cls()
        for directory, _, names in os.walk(logs):
            for name in names:
                match = _LOG.fullmatch(name)
                if match is not None:
                    job_id = "/" + os.path.relpath(directory, logs)
                    tasks = result.attempts.setdefault(job_id, {})
                    index, attempt = int(match[1]), int(match[2])
                    tasks[index] = max(tasks.get(index, 0), attempt)
        return result


def move_logs(logs: Path, job_ids: Iterable[str], target: Path) -> None:
    """Move the logs of these jobs out of the way of later jobs of the same names; the rest stays. Raises OSError.

    Args:
        logs: The directory of logs.
        job_ids: The jobs.
        target: Where to move them.
    """
    for job_id in job_ids:
        source = logs / job_id.lstrip("/")
        place = target / job_id.lstrip("/")
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in source.iterdir():
            if _LOG.fullmatch(path.name):
                os.replace(path, place / path.name)
