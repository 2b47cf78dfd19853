"""Tracks tasks that wait for their retry after a failure, by due time."""

import heapq

from iris.domain.ids import JobId, TaskId, parse_task_id


class Delays(dict[TaskId, int]):
    """When each task may be assigned again (Unix ms)."""

    __slots__ = ("_heap", "_jobs")

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[int, TaskId]] = []
        self._jobs: dict[JobId, dict[TaskId, None]] = {}

    def add(self, task_id: TaskId, at_ms: int) -> None:
        """Add a waiting task."""
        self[task_id] = at_ms
        self._jobs.setdefault(parse_task_id(task_id)[0], {})[task_id] = None
        heapq.heappush(self._heap, (at_ms, task_id))

    def remove(self, task_id: TaskId) -> bool:
        """Remove a task, and return whether it was waiting."""
        if self.pop(task_id, None) is None:
            return False
        job_id = parse_task_id(task_id)[0]
        waiting = self._jobs[job_id]
        del waiting[task_id]
        if not waiting:
            del self._jobs[job_id]
        return True

    def next_at(self) -> int | None:
        """Return the earliest retry in Unix ms, or None."""
        while self._heap and self.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[TaskId]:
        """Return the tasks whose delay is over, earliest first, without a scan."""
        found: list[tuple[int, TaskId]] = []
        nodes = [0]
        while nodes:
            node = nodes.pop()
            if node < len(self._heap) and self._heap[node][0] <= now_ms:
                at_ms, task_id = self._heap[node]
                if self.get(task_id) == at_ms:
                    found.append((at_ms, task_id))
                nodes += (2 * node + 1, 2 * node + 2)
        return [task_id for _, task_id in sorted(set(found))]

    def of_job(self, job_id: JobId) -> list[tuple[int, int]]:
        """Return when each waiting task of a job may be assigned (Unix ms), and its index, earliest first."""
        return sorted((self[name], parse_task_id(name)[1]) for name in self._jobs.get(job_id, ()))
