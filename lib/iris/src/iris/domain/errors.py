"""Errors in addition to those of rigging.errors."""

from rigging.errors import Conflict, Unavailable


class IllegalTransition(Conflict):
    """A state change that the transition table does not allow: a bug in the caller, never a user's mistake.

    Args:
        entity: The changed entity, e.g. "task /ann/train/0".
        old: Its state. new: The requested state. allowed: The allowed states.
        history: Its earlier events, oldest first.
    """

    def __init__(self, entity: str, old: str, new: str, allowed: tuple[str, ...], history: tuple[str, ...]) -> None:
        story = "; ".join(history) or "no ended attempts"
        super().__init__(
            f"{entity} cannot go from {old} to {new}; allowed: {', '.join(allowed) or 'nothing, it has ended'};"
            f" history: {story}"
        )
        self.entity = entity
        self.history = history


class InvariantViolation(Conflict):
    """The cluster's state is inconsistent. `violations` lists all contradictions."""

    def __init__(self, violations: tuple[str, ...]) -> None:
        super().__init__(f"{len(violations)} invariant(s) violated: " + "; ".join(violations))
        self.violations = violations


class StorageUnavailable(Unavailable):
    """The database cannot be written now (no space, a disk error). A retry may succeed."""
