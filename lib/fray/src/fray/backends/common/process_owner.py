"""Clients belong to the process that created them: a fork has neither their threads nor their connections."""

import os
import weakref
from collections.abc import Callable

from rigging.errors import Conflict


class ProcessOwner:
    """The process that created this object."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def here(self) -> bool:
        """Whether the caller is in that process, and not in a fork of it."""
        return self._pid == os.getpid()

    def check(self, what: str, name: str | None = None) -> None:
        """Raise Conflict in a fork of that process. Call this before taking a lock: in a fork, a lock may be held
        forever.

        Args:
            what: The start of the message. It is formatted only on failure, because every job passes here.
            name: The name of the requested thing, if it has one.
        """
        if self._pid != os.getpid():
            whose = what if name is None else f"{what} {name!r}"
            raise Conflict(
                f"{whose}: this client was created in process {self._pid} and cannot be used in its fork; "
                "call current_client() here, or create another client"
            )

    def at_end(self, owner: object, clean_up: Callable[[], object]) -> "weakref.finalize[[], object]":
        """Call `clean_up` when `owner` is collected or the interpreter exits, but never in a fork.

        `clean_up` must not refer to `owner`. The returned function runs it immediately, and at most once.
        """
        pid = self._pid

        def unless_forked() -> None:
            if os.getpid() == pid:
                clean_up()

        return weakref.finalize(owner, unless_forked)
