"""Tasks that wait for their retry after a failure, by when it is due."""

import heapq

from iris.domain.ids import JobId, TaskId, parse_task_id


class Delays(dict[TaskId, int]):
    """When each task may be assigned again (Unix ms)."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[int, TaskId]] = []

    def add(self, task_id: TaskId, at_ms: int) -> None:
        """Let a task wait."""
        self[task_id] = at_ms
        heapq.heappush(self._heap, (at_ms, task_id))

    def next_at(self) -> int | None:
        """The earliest retry in Unix ms, or None."""
        while self._heap and self.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[TaskId]:
        """The tasks that need not wait any more, earliest first."""
        if (first := self.next_at()) is None or first > now_ms:
            return []
        return [name for _, name in sorted((at_ms, name) for name, at_ms in self.items() if at_ms <= now_ms)]

    def of_job(self, job_id: JobId) -> list[tuple[int, int]]:
        """When each waiting task of a job may be assigned (Unix ms), and its index; the earliest first."""
        found = ((at_ms, parse_task_id(name)) for name, at_ms in self.items())
        return sorted((at_ms, index) for at_ms, (owner, index) in found if owner == job_id)
