import queue
import threading
from collections.abc import Callable, Sequence

from fray.backends.iris.watch import JobWatcher
from rigging.errors import Unavailable

LONG = 30.0


class Cluster:
    """Jobs that end when told to; `poll` waits as the real one does."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.ended: set[str] = set()
        self.polls: list[list[str]] = []
        self.broken = False

    def end(self, *job_ids: str) -> None:
        with self.changed:
            self.ended.update(job_ids)
            self.changed.notify_all()

    def poll(self, job_ids: Sequence[str]) -> dict[str, bool]:
        with self.changed:
            self.polls.append(list(job_ids))
            self.changed.wait_for(lambda: self.broken or self.ended & set(job_ids), LONG)
            if self.broken:
                raise Unavailable("the controller went away")
            return dict.fromkeys(self.ended & set(job_ids), True)


def test_everybody_is_told_once_also_those_who_come_while_others_wait() -> None:
    cluster, told = Cluster(), queue.SimpleQueue[str]()
    watcher = JobWatcher(cluster.poll)
    names = [f"/ann/{i}" for i in range(200)]
    for name in names:
        watcher.watch(name, lambda _, name=name: told.put(name))  # type: ignore[misc]
    cluster.end(names[150])
    assert told.get(timeout=LONG) == names[150]
    cluster.end(*names)
    assert {told.get(timeout=LONG) for _ in range(199)} == set(names) - {names[150]}
    assert told.empty()
    assert max(len(ids) for ids in cluster.polls) <= 64


def test_whatever_a_callback_raises_the_others_are_told() -> None:
    cluster, told = Cluster(), queue.SimpleQueue[bool]()
    works: list[Callable[[], None]] = []
    watcher = JobWatcher(cluster.poll, works.append)

    def leave(_: bool) -> None:
        raise SystemExit(3)

    cluster.end("/ann/job")
    watcher.watch("/ann/job", leave)
    watcher.watch("/ann/job", told.put)
    (only,) = works
    threading.Thread(target=only, daemon=True).start()
    assert told.get(timeout=LONG)


def test_a_lost_cluster_leaves_nobody_waiting() -> None:
    cluster, told = Cluster(), queue.SimpleQueue[bool]()
    watcher = JobWatcher(cluster.poll)
    watcher.watch("/ann/job", told.put)
    with cluster.changed:
        cluster.broken = True
        cluster.changed.notify_all()
    assert not told.get(timeout=LONG), "that it succeeded is not known"
