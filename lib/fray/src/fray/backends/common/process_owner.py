"""Clients belong to the process that made them: a fork has neither its threads nor its connections."""

import os
import weakref
from collections.abc import Callable

from rigging.errors import Conflict


class ProcessOwner:
    """The process in which this was made."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def here(self) -> bool:
        """Whether this is still that process, and not a fork of it."""
        return self._pid == os.getpid()

    def check(self, what: str, name: str | None = None) -> None:
        """Raise Conflict in a fork of that process; call it before taking any lock, as those may be held for ever.

        Args:
            what: Begins the message, which is put together only then, as every job pays for it.
            name: Of what is asked for, if it has one.
        """
        if self._pid != os.getpid():
            whose = what if name is None else f"{what} {name!r}"
            raise Conflict(
                f"{whose}: this client was made in process {self._pid}, of which this one is a fork, and cannot be "
                "used here; call current_client() here, or make another client"
            )

    def at_end(self, owner: object, clean_up: Callable[[], object]) -> "weakref.finalize[[], object]":
        """Call `clean_up` when `owner` is collected or the interpreter ends, but not in forks, where it is not theirs.

        `clean_up` must not refer to `owner`. Calling what is returned does it now, and only once.
        """
        pid = self._pid

        def unless_forked() -> None:
            if os.getpid() == pid:
                clean_up()

        return weakref.finalize(owner, unless_forked)
