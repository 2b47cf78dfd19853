"""gRPC does not survive a fork, so a fork of a process that uses it must not."""

import gc
import os

from rigging.errors import Conflict

_in_use = False
_lost = False


def use_grpc(what: str) -> None:
    """To be called before gRPC is used, outside of any lock: the fork's copy may be held for ever.

    Raises:
        Conflict: This is a fork of a process that used gRPC. The message begins with `what`.
    """
    global _in_use
    if _lost:
        raise Conflict(
            f"{what}: this process is a fork of one that uses Iris, and gRPC does not survive a fork; start a new "
            "process instead, e.g. with multiprocessing.get_context('spawn')"
        )
    _in_use = True


def in_fork() -> bool:
    """True if this is a fork of a process that used gRPC.

    What was opened there is the parent's, which shares the sockets: closing it here must do nothing.
    """
    return _lost


def _after_fork() -> None:
    global _lost
    if _in_use:
        _lost = True
        # The parent's connections must not be collected here: that waits for threads that this process does not have.
        gc.freeze()


os.register_at_fork(after_in_child=_after_fork)
