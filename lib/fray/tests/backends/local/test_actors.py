import os
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fray.actor import ActorHandle, current_actor
from fray.backends.local import LocalClient
from fray.context import current_client
from fray.errors import JobAlreadyExists, JobFailed
from fray.testing import eventually
from fray.types import ActorConfig, Entrypoint, JobRequest
from rigging.errors import Conflict, DeadlineExceeded, InvalidRequest

LONG = 30.0


class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, n: int) -> int:
        self.value += n
        return self.value

    def fail(self) -> None:
        raise LookupError("not in the table")

    def whoami(self) -> tuple[str, int]:
        return current_actor().group_name, current_actor().index

    def call_self(self) -> int:
        return int(current_actor().handle.add(1))

    def sleep_until(self, event: threading.Event, begun: threading.Event | None = None) -> bool:
        if begun:
            begun.set()
        return event.wait(LONG)

    def client(self) -> object:
        return current_client()


def test_calls_return_values_and_raise_what_the_method_raised(client: LocalClient) -> None:
    counter = client.create_actor(Counter, 10, name="counter")
    assert counter.add(1) == 11
    assert counter.add.remote(n=2).result(LONG) == 13
    assert counter.add.submit(3).result(LONG) == 16
    with pytest.raises(LookupError, match="not in the table"):
        counter.fail()
    assert counter.add(0) == 16


@pytest.mark.parametrize("name", ["a/b", "", " ", "a\nb"])
def test_names_are_as_those_of_jobs(client: LocalClient, name: str) -> None:
    for make in (client.create_actor, client.host_actor):
        with pytest.raises(InvalidRequest, match=f"actor name {name!r}: must not be empty".replace("\\", "\\\\")):
            make(Counter, name=name)


def test_counts_of_groups_are_whole(client: LocalClient) -> None:
    with pytest.raises(InvalidRequest, match=r"count must be a whole number, at least 1, not 1\.5"):
        client.create_actor_group(Counter, name="counters", count=1.5)  # type: ignore[arg-type]


def test_a_handle_can_be_sent_where_the_path_of_temporary_files_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with LocalClient() as client:
        handle = client.create_actor(Counter, name="counter")
        sent = pickle.dumps(handle)
        reach = "import pickle, sys; print(pickle.load(sys.stdin.buffer).add(2))"
        assert subprocess.run([sys.executable, "-c", reach], input=sent, capture_output=True).stdout == b"2\n"
        (folder,) = {Path(os.fsdecode(path)) for path in re.findall(rb"/tmp/fray-local-\w+", sent)}
        assert folder.is_dir()
    assert not folder.exists()


def test_nothing_is_at_an_actor_s_path_once_it_is_shut_down(client: LocalClient) -> None:
    """Else the end of the process would look for it, in a folder that is gone by then."""
    group = client.create_actor_group(Counter, name="counter", count=1)
    (path,) = re.findall(rb"/tmp/fray-local-\w+/\d+\.actor", pickle.dumps(group.wait_ready()[0]))
    assert os.path.exists(path)
    group.shutdown()
    assert not os.path.exists(path)


def test_a_handle_that_cannot_be_sent_says_why_each_time(client: LocalClient, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = client.create_actor(Counter, name="counter")
    with monkeypatch.context() as patch:
        patch.setattr("fray.backends.local.actor_server.ActorServer.listen", fail_to_listen)
        for _ in range(2):
            with pytest.raises(OSError, match="no more sockets"):
                pickle.dumps(handle)
    assert pickle.loads(pickle.dumps(handle)).add(2) == 2


def fail_to_listen(*_: object) -> None:
    raise OSError("no more sockets")


def test_calls_run_in_the_order_they_were_made(client: LocalClient) -> None:
    class Log:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def note(self, n: int) -> None:
            self.seen.append(n)

        def all(self) -> list[int]:
            return self.seen

    log = client.create_actor(Log, name="log")
    for n in range(300):
        log.note.remote(n)
    assert log.all() == list(range(300))


class Meeting:
    def __init__(self, parties: int) -> None:
        self.barrier = threading.Barrier(parties)

    def meet(self, timeout: float) -> int:
        return self.barrier.wait(timeout)


def test_max_concurrency_calls_run_at_once(client: LocalClient) -> None:
    together = client.create_actor(Meeting, 3, name="together", actor_config=ActorConfig(max_concurrency=3))
    assert sorted(future.result(LONG) for future in [together.meet.remote(LONG) for _ in range(3)]) == [0, 1, 2]
    alone = client.create_actor(Meeting, 2, name="alone")
    futures = [alone.meet.remote(0.02) for _ in range(2)]
    for future in futures:
        with pytest.raises(threading.BrokenBarrierError):
            future.result(LONG)


def test_a_result_that_does_not_come_in_time(client: LocalClient) -> None:
    counter = client.create_actor(Counter, name="counter")
    event = threading.Event()
    future = counter.sleep_until.remote(event)
    with pytest.raises(DeadlineExceeded, match=r"'sleep_until' of actor 'counter'.*no result after 0.01 s"):
        future.result(0.01)
    assert not future.done()
    event.set()
    assert future.result(LONG) is True
    assert future.done()


def test_constructor_failures_are_raised_and_free_the_name(client: LocalClient) -> None:
    class Broken:
        def __init__(self) -> None:
            raise OSError("no checkpoint")

    with pytest.raises(OSError, match="no checkpoint"):
        client.create_actor(Broken, name="it")
    with pytest.raises(JobFailed, match=r"1 of 1 actors ended.*OSError: no checkpoint") as caught:
        client.create_actor_group(Broken, name="it", count=1).wait_ready(timeout=LONG)
    assert isinstance(caught.value.__cause__, OSError)
    assert client.create_actor(Counter, name="it").add(1) == 1


def test_wrong_method_names_are_told_at_once(client: LocalClient) -> None:
    counter = client.create_actor(Counter, name="counter")
    with pytest.raises(AttributeError, match="Counter has no method 'subtract'"):
        _ = counter.subtract
    with pytest.raises(AttributeError, match="'_value' is not public"):
        _ = counter._value


def test_an_actor_knows_itself(client: LocalClient) -> None:
    handles = client.create_actor_group(Counter, name="workers", count=2).wait_ready(timeout=LONG)
    assert [handle.whoami() for handle in handles] == [("workers", 0), ("workers", 1)]
    with pytest.raises(Conflict, match="not inside an actor"):
        current_actor()


def test_an_actor_that_would_wait_for_itself_is_told_so(client: LocalClient) -> None:
    with pytest.raises(Conflict, match="would wait for itself: 'add'"):
        client.create_actor(Counter, name="one").call_self()
    two = client.create_actor(Counter, name="two", actor_config=ActorConfig(max_concurrency=2))
    assert two.call_self() == 1


def test_actors_find_the_client_that_hosts_them(client: LocalClient) -> None:
    assert client.host_actor(Counter, name="counter").client() is client


def test_jobs_use_actors_by_their_handles_and_outnumber_the_pool() -> None:
    with LocalClient(max_threads=1) as own:
        counter = own.create_actor(Counter, name="counter")

        def work(handle: ActorHandle) -> None:
            handle.add(1)

        for i in range(10):
            own.submit(JobRequest(f"j{i}", Entrypoint.from_callable(work, [counter]))).wait(LONG)
        assert counter.add(0) == 10


def test_an_actor_outlives_the_job_that_made_it_and_may_submit_jobs() -> None:
    class Spawner:
        def spawn(self) -> str:
            return str(current_client().submit(JobRequest("child", Entrypoint.from_callable(lambda: None))).wait(LONG))

    with LocalClient(max_threads=1) as own:
        made: list[ActorHandle] = []
        make = Entrypoint.from_callable(lambda: made.append(current_client().create_actor(Spawner, name="spawner")))
        own.submit(JobRequest("maker", make)).wait(LONG)
        assert made[0].spawn() == "succeeded"


class Gate:
    def __init__(self, gates: list[threading.Event]) -> None:
        gates[current_actor().index].wait(LONG)

    def ping(self) -> str:
        return "pong"


def test_a_group_becomes_ready_one_by_one(client: LocalClient) -> None:
    gates = [threading.Event() for _ in range(3)]
    group = client.create_actor_group(Gate, gates, name="gates", count=3)
    assert (group.ready_count, group.is_done(), group.discover_new()) == (0, False, [])
    gates[1].set()
    assert len(group.wait_ready(1, timeout=LONG)) == 1
    assert len(group.discover_new()) == 1
    with pytest.raises(DeadlineExceeded, match=r"1 of 3 actors ready after 0.01 s"):
        group.wait_ready(timeout=0.01)
    gates[0].set()
    gates[2].set()
    assert [handle.ping() for handle in group.wait_ready(timeout=LONG)] == ["pong"] * 3
    assert len(group.discover_new()) == 2
    assert group.discover_new() == []
    group.shutdown()
    assert group.is_done()
    assert group.ready_count == 0


def test_a_group_cannot_have_more_ready_than_it_has(client: LocalClient) -> None:
    group = client.create_actor_group(Counter, name="workers", count=2)
    with pytest.raises(InvalidRequest, match="has 2 actors, not 3"):
        group.wait_ready(3)
    with pytest.raises(InvalidRequest, match="count must be at least 1, not 0"):
        client.create_actor_group(Counter, name="none", count=0)
    with pytest.raises(JobAlreadyExists, match="actor 'workers' exists"):
        client.create_actor(Counter, name="workers")
    group.shutdown()
    with pytest.raises(JobFailed, match="2 of 2 actors ended"):
        group.wait_ready(1, timeout=LONG)
    assert client.create_actor(Counter, name="workers").add(1) == 1


def test_shutdown_lets_the_running_call_end_and_refuses_the_rest() -> None:
    before = set(threading.enumerate())
    own = LocalClient()
    counter = own.create_actor(Counter, name="counter")
    event, begun = threading.Event(), threading.Event()
    running, queued = counter.sleep_until.remote(event, begun), counter.add.remote(1)
    assert begun.wait(LONG)
    own.shutdown(wait=False)
    with pytest.raises(Conflict, match=r"'add' of actor 'counter'.*shut down before the call began"):
        queued.result(LONG)
    with pytest.raises(Conflict, match="was shut down: it cannot run 'add'"):
        counter.add.remote(1)
    event.set()
    assert running.result(LONG) is True
    own.shutdown()
    eventually(lambda: set(threading.enumerate()) <= before, "no thread is left")
