"""Guards against gRPC after a fork, which does not work if the parent has used gRPC."""

import gc
import os

from rigging.errors import Conflict

_in_use = False
_lost = False


def use_grpc(what: str) -> None:
    """Record that this process uses gRPC. Call this before each use, outside any lock, because a fork may copy a held
    lock.

    Raises:
        Conflict: This process was forked from one that used gRPC. The message starts with `what`.
    """
    global _in_use
    if _lost:
        raise Conflict(
            f"{what}: this process is a fork of one that uses Iris, and gRPC does not survive a fork; start a new "
            "process instead, e.g. with multiprocessing.get_context('spawn')"
        )
    _in_use = True


def in_fork() -> bool:
    """Return whether this process was forked from one that used gRPC.

    Channels opened before the fork belong to the parent, which shares the sockets: closing them here must have no
    effect.
    """
    return _lost


def _after_fork() -> None:
    global _lost
    if _in_use:
        _lost = True
        # The parent's connections must not be collected here: that waits for threads that this process does not have.
        gc.freeze()


os.register_at_fork(after_in_child=_after_fork)
