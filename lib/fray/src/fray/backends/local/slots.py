"""Limit how many jobs the local backend runs at once, without deadlock between jobs and their children."""

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Slot:
    """One job's claim on a `SlotPool`: queued, then held until the job's function returns."""

    def __init__(self, pool: "SlotPool", run: Callable[["Slot"], None], cpus: float) -> None:
        self._pool = pool
        self.run = run
        self.cpus = cpus
        self.held = False
        self.lent = 0

    def belongs_to(self, pool: "SlotPool") -> bool:
        """Return whether the claim is on that pool."""
        return self._pool is pool

    def lend(self) -> None:
        """Let others use this slot until `reclaim`. Calls nest."""
        self._pool.lend(self)

    def reclaim(self) -> None:
        """Take the slot back without waiting. More jobs than slots may run for a moment."""
        self._pool.reclaim(self)


class SlotPool:
    """Run functions in threads, first come first served, within limits on slots and processors.

    A job lends its slot while it has unfinished children or waits for another job, so a tree of jobs deeper or wider
    than the pool still ends. Up to one thread per slot stays idle for more work, until `join` or `dismiss`.
    """

    def __init__(self, slots: int, cpus: float) -> None:
        self._lock = threading.RLock()  # a client collected at any moment dismisses its pool
        self._slots = slots
        self._free_slots = slots
        self._free_cpus = cpus
        self._queue: deque[Slot] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._handed: queue.SimpleQueue[Slot | None] = queue.SimpleQueue()
        self._dismissed = False

    def start(self, run: Callable[[Slot], None], cpus: float) -> None:
        """Call `run(slot)` in a thread as soon as there is capacity."""
        with self._lock:
            self._queue.append(Slot(self, run, cpus))
            startable = self._startable()
        self._spawn(startable)

    def owns(self, slot: Slot | None) -> bool:
        """Return whether this pool owns the slot."""
        return slot is not None and slot.belongs_to(self) and slot.held

    def lend(self, slot: Slot) -> None:
        with self._lock:
            slot.lent += 1
            if slot.lent == 1 and slot.held:
                self._give(slot)
            startable = self._startable()
        self._spawn(startable)

    def reclaim(self, slot: Slot) -> None:
        with self._lock:
            slot.lent -= 1
            if slot.lent == 0 and slot.held:
                self._take(slot)

    def join(self) -> None:
        """Wait until nothing is running or queued, except for the calling thread."""
        self.dismiss()
        while True:
            with self._lock:
                others = [thread for thread in self._threads if thread is not threading.current_thread()]
            if not others:
                return
            for thread in others:
                thread.join()

    def dismiss(self) -> None:
        """Let threads end when they run out of work; idle ones end at once."""
        with self._lock:
            self._dismissed = True
            for _ in range(self._idle):
                self._handed.put(None)
            self._idle = 0

    def _take(self, slot: Slot) -> None:
        self._free_slots -= 1
        self._free_cpus -= slot.cpus

    def _give(self, slot: Slot) -> None:
        self._free_slots += 1
        self._free_cpus += slot.cpus

    def _startable(self) -> list[Slot]:
        """Reserve capacity for queued slots, strictly in order, so that large jobs are not overtaken."""
        startable = []
        while self._queue and self._free_slots >= 1 and self._free_cpus >= self._queue[0].cpus:
            slot = self._queue.popleft()
            slot.held = True
            self._take(slot)
            startable.append(slot)
        return startable

    def _spawn(self, slots: list[Slot]) -> None:
        for slot in slots:
            with self._lock:
                waiting = self._idle > 0
                if waiting:
                    self._idle -= 1
                else:
                    thread = threading.Thread(target=self._work, args=(slot,), name="fray-job", daemon=True)
                    self._threads.add(thread)
            if waiting:
                self._handed.put(slot)
            else:
                thread.start()

    def _work(self, first: Slot) -> None:
        slot: Slot | None = first
        del first  # a thread that waits for work must not keep the last job alive
        try:
            while slot is not None:
                try:
                    slot.run(slot)
                except BaseException:
                    # What runs here sees to its own errors; one that slips out must not cost the slot.
                    logger.exception("a function of the slot pool failed")
                slot = self._finish(slot)
                if slot is None and self._may_wait():
                    slot = self._handed.get()
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _may_wait(self) -> bool:
        with self._lock:
            keep = not self._dismissed and self._idle < self._slots
            self._idle += keep
            return keep

    def _finish(self, slot: Slot) -> Slot | None:
        """Release the slot. Return a queued slot for this thread to run next, and start threads for any others."""
        with self._lock:
            if not slot.lent:
                self._give(slot)
            slot.held = False
            slot.run = _has_run  # what it ran often refers to the slot: free both now, not when the collector comes
            startable = self._startable()
        self._spawn(startable[1:])
        return startable[0] if startable else None


def _has_run(_: Slot) -> None:
    raise AssertionError("a slot runs once")
