"""The workers that changed, for readers that keep what they know about the others."""

from iris.domain.ids import WorkerId


class Touched(dict[WorkerId, int]):
    """For each worker the number of its last change, in order of these numbers.

    Attributes:
        stamp: The number of the last change of any worker.
    """

    __slots__ = ("stamp",)

    def __init__(self) -> None:
        super().__init__()
        self.stamp = 0

    def note(self, worker_id: WorkerId) -> None:
        """Record that a worker, or what it holds, has changed."""
        self.pop(worker_id, None)
        self.stamp += 1
        self[worker_id] = self.stamp

    def since(self, stamp: int) -> list[WorkerId]:
        """Return the workers that changed after `stamp`, the last one first."""
        found = []
        for worker_id in reversed(self):
            if self[worker_id] <= stamp:
                break
            found.append(worker_id)
        return found
