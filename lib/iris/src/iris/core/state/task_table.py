"""The tasks of jobs: in memory while a job lives, later in the archive."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from iris.domain.entities import Job, Task
from iris.domain.ids import JobId

Archive = Callable[[JobId], list[Task]]
"""Returns all committed tasks of a job, in order of index."""

SHELF_TASKS: Final = 50_000


class TaskTable(dict[JobId, list[Task]]):
    """Each known job's tasks, in order of index. Tasks of ended jobs are loaded from the archive on request.

    `items` and `values` show only tasks in memory, which include those of all live jobs.

    Args:
        jobs: The existing jobs.
        archive: None keeps everything in memory.
        shelf_tasks: Number of ended jobs' tasks that `trim` keeps in memory.
    """

    __slots__ = ("_archive", "_jobs", "_shelf", "_shelf_size", "_shelf_tasks")

    def __init__(self, jobs: Mapping[JobId, Job], archive: Archive | None, shelf_tasks: int = SHELF_TASKS) -> None:
        super().__init__()
        self._jobs = jobs
        self._archive = archive
        self._shelf_tasks = shelf_tasks
        self._shelf: OrderedDict[JobId, int] = OrderedDict()
        self._shelf_size = 0

    def __missing__(self, job_id: JobId) -> list[Task]:
        if self._archive is None or job_id not in self._jobs:
            raise KeyError(job_id)
        tasks = self._archive(job_id)
        super().__setitem__(job_id, tasks)
        self._put_on_shelf(job_id, len(tasks))
        return tasks

    def __setitem__(self, job_id: JobId, tasks: list[Task]) -> None:
        self._take_from_shelf(job_id)
        super().__setitem__(job_id, tasks)

    def __delitem__(self, job_id: JobId) -> None:
        self._take_from_shelf(job_id)
        super().__delitem__(job_id)

    def get(self, job_id: JobId, default: Any = None) -> list[Task] | Any:
        """Return the job's tasks, from the archive if needed."""
        try:
            return self[job_id]
        except KeyError:
            return default

    def evict(self, job_id: JobId) -> None:
        """Let `trim` drop the tasks of a settled job."""
        if self._archive is not None and job_id in self and job_id not in self._shelf:
            self._put_on_shelf(job_id, len(self[job_id]))

    def trim(self) -> None:
        """Drop the tasks evicted longest ago. Call this only when all changes in the view are committed."""
        while self._shelf_size > self._shelf_tasks:
            job_id, size = self._shelf.popitem(last=False)
            self._shelf_size -= size
            super().__delitem__(job_id)

    def _put_on_shelf(self, job_id: JobId, size: int) -> None:
        self._shelf[job_id] = size
        self._shelf_size += size

    def _take_from_shelf(self, job_id: JobId) -> None:
        self._shelf_size -= self._shelf.pop(job_id, 0)
