"""Contenders for leases, importable so that spawned processes find them."""

import contextlib
import os
import random
import time
from dataclasses import dataclass

from rigging.distributed_lock import HEARTBEAT_TIMEOUT, SKEW_ALLOWANCE, LeaseLock, create_lock
from rigging.errors import Unavailable
from rigging.process.file_lock import try_lock
from support.rigging.clock import SkewedClock

_LINE_BYTES = 21
#: A clock by which every lease is long over for all others.
_LONG_AGO = SkewedClock(-100 * SKEW_ALLOWANCE)


def taken(lock: LeaseLock) -> LeaseLock:
    """Take the lock and return it."""
    assert lock.try_acquire()
    return lock


@dataclass(frozen=True, slots=True)
class Contest:
    """A lease that several processes compete for, until a total number of critical sections.

    The wall clock of each is wrong by up to `skew`. A share of attempts takes the lease like a holder that crashed long
    ago.
    """

    path: str
    directory: str
    acquisitions: int
    heartbeat_timeout: float = HEARTBEAT_TIMEOUT
    skew: float = 0.0
    abandoned_share: float = 0.0
    pause_seconds: float = 0.0

    def numbers(self) -> list[int]:
        """Return the fencing numbers of the critical sections so far, in order."""
        return _read_journal(self._journal)

    def abandoned_numbers(self) -> list[int]:
        return _read_journal(self._journal + "-abandoned")

    def is_over(self) -> bool:
        try:
            return os.stat(self._journal).st_size >= self.acquisitions * _LINE_BYTES
        except FileNotFoundError:
            return False

    def run_critical_section(self, lock: LeaseLock) -> None:
        """Fail if another process is inside. Record the fencing number."""
        witness = os.open(os.path.join(self.directory, "witness"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # The kernel's own lock, which also ends with its process.
            assert try_lock(witness), f"{self.path}: two holders at once, one with {lock.fencing_token}"
            _append(self._journal, lock.fencing_token)
        finally:
            os.close(witness)

    def abandon(self) -> None:
        """Take the lease, if free, like a holder that died long ago, so that others may take it over immediately."""
        lock = create_lock(self.path, _crashed(), heartbeat_timeout=self.heartbeat_timeout, clock=_LONG_AGO)
        with contextlib.suppress(Unavailable):
            if lock.try_acquire():
                _append(self._journal + "-abandoned", lock.fencing_token)

    @property
    def _journal(self) -> str:
        return os.path.join(self.directory, "journal")


def compete(contest: Contest, seed: int) -> None:
    """Run critical sections until the contest ends. Raise AssertionError on an overlap or a lost lease."""
    dice = random.Random(seed)
    clock = SkewedClock(dice.uniform(-contest.skew, contest.skew))
    lock = create_lock(contest.path, heartbeat_timeout=contest.heartbeat_timeout, clock=clock)
    while not contest.is_over():
        if dice.random() < contest.abandoned_share:
            contest.abandon()
        try:
            acquired = lock.try_acquire()
        except Unavailable:
            acquired = False  # as one that waits for a lease would take it
        if not acquired:
            time.sleep(dice.uniform(0.0, contest.pause_seconds))
            continue
        contest.run_critical_section(lock)
        if not lock.release():
            raise AssertionError(f"{contest.path}: the lease was gone before its release")


def _crashed() -> str:
    """Return a holder's id with an unknown process, because this process would be seen as running."""
    return f"crashed-{os.urandom(6).hex()}"


def _append(path: str, number: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, b"%020d\n" % number)
    finally:
        os.close(descriptor)


def _read_journal(path: str) -> list[int]:
    try:
        with open(path, encoding="ascii") as handle:
            return [int(line) for line in handle]
    except FileNotFoundError:
        return []
