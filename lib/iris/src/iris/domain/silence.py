"""Attempts that may live on workers out of reach."""

from dataclasses import dataclass

from iris.domain.ids import AttemptId, WorkerId


@dataclass(frozen=True, slots=True)
class SilentAttempt:
    """An attempt on a worker that was not heard for a while, or that is in trouble.

    Args:
        is_wanted: It is its task's present attempt; else it is stopped once its host is reached.
        fenced_in_ms: By then its host has ended an exclusive one; 0: nothing but its host can say when.
        trouble: Why nothing can be stopped there, although the worker is heard; empty: it is not heard.
    """

    attempt_id: AttemptId
    worker_id: WorkerId
    silent_ms: int
    is_wanted: bool
    fenced_in_ms: int
    trouble: str = ""
