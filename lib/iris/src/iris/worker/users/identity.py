"""A task's identity on its host: switches to it, and kills all its processes. Linux only."""

import ctypes
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

_PR_SET_NO_NEW_PRIVS: Final = 38
_TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """A uid for tasks, with the group of the same number.

    Args:
        uid: Never 0.
        groups: Supplementary groups, for devices.
    """

    uid: int
    groups: tuple[int, ...] = ()

    def words(self) -> list[int]:
        """Return the identity as JSON."""
        return [self.uid, *self.groups]


def identity_from(words: Sequence[Any] | None) -> TaskIdentity | None:
    """Return the identity from JSON, the inverse of `TaskIdentity.words`; None if empty. Raises TypeError or
    ValueError.
    """
    if not words:
        return None
    uid, *groups = map(int, words)
    if uid <= 0:
        raise ValueError(f"tasks cannot run as uid {uid}")
    return TaskIdentity(uid, tuple(groups))


def gain_nothing() -> None:
    """Set no_new_privs: setuid programs (su, crontab, at) give this process's children no additional rights."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_NO_NEW_PRIVS): {os.strerror(number)}")


def run_as(identity: TaskIdentity, work: Callable[[], str]) -> str | None:
    """Fork, switch to `identity` permanently, and return the result of `work` there; None if the fork was killed.

    Other threads must not hold locks that `work` needs. Raises OSError if the switch fails.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = b"?"
        try:
            os.setgroups(identity.groups)
            os.setresgid(identity.uid, identity.uid, identity.uid)
            os.setresuid(identity.uid, identity.uid, identity.uid)
            said = b"=" + work().encode(errors="surrogateescape")
        except BaseException as error:
            said = b"!" + str(error).encode(errors="replace")
        finally:
            os.write(writer, said)
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    if said[:1] == b"!":
        raise OSError(said[1:].decode(errors="replace"))
    return said[1:].decode(errors="surrogateescape") if said else None


def kill_all_of(uid: int) -> None:
    """Kill every process of a uid at once, even while it forks."""

    def kill() -> str:
        if uid <= 0 or os.getresuid() != (uid, uid, uid):
            raise OSError(f"this process is not uid {uid}")  # as root, the next line would end the host
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            return ""
        return ""

    for _ in range(_TRIES):
        # None: one of those that are to be killed has killed the fork first.
        if run_as(TaskIdentity(uid), kill) is not None:
            return
