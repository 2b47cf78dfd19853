"""Who is next of those that wait, where several users wait."""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class TurnQueue(Generic[T]):
    """What waits, of each user in order, and of the users in turns: one that has much waiting holds up nobody else."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}  # in the order of their next turns
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, user: str, item: T) -> None:
        """Let it wait behind what the user has waiting already."""
        self._waiting.setdefault(user, deque()).append(item)
        self._count += 1

    def take(self) -> T:
        """Return what is next. Raises StopIteration when nothing waits."""
        user = next(iter(self._waiting))
        own = self._waiting.pop(user)
        item = own.popleft()
        if own:
            self._waiting[user] = own
        self._count -= 1
        return item
