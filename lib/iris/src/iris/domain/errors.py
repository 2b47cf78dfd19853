"""Errors of iris's deciding code that are not already named in rigging.errors."""

from rigging.errors import Conflict, Unavailable


class IllegalTransition(Conflict):
    """A state change that the transition table does not allow: a defect of the caller, never a user's mistake.

    Args:
        entity: What was to change, e.g. "task /ann/train/0".
        old: State it is in. new: State it was to go to. allowed: States it may go to.
        history: What happened to it before, oldest first.
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
    """The cluster's state contradicts itself; `violations` lists every contradiction found."""

    def __init__(self, violations: tuple[str, ...]) -> None:
        super().__init__(f"{len(violations)} invariant(s) violated: " + "; ".join(violations))
        self.violations = violations


class StorageUnavailable(Unavailable):
    """The database cannot be written now (no space, an error of the disk); the same commit may succeed later."""
