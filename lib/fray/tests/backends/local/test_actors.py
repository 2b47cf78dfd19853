import os
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fray.actor import current_actor
from fray.backends.local import LocalClient
from fray.types import ActorConfig
from rigging.errors import Conflict, DeadlineExceeded, InvalidRequest

LONG = 30.0


class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, n: int) -> int:
        self.value += n
        return self.value

    def call_self(self) -> int:
        return int(current_actor().handle.add(1))

    def sleep_until(self, event: threading.Event, begun: threading.Event | None = None) -> bool:
        if begun:
            begun.set()
        return event.wait(LONG)


def test_what_can_be_no_actor_or_method_or_time_is_refused_in_words(client: LocalClient) -> None:
    for name in ("a/b", "", " ", "a\nb"):
        for make in (client.create_actor, client.host_actor):
            with pytest.raises(InvalidRequest, match=re.escape(f"actor name {name!r}: must not be empty")):
                make(Counter, name=name)
    with pytest.raises(InvalidRequest, match=r"count must be a whole number, at least 1, not 1\.5"):
        client.create_actor_group(Counter, name="counters", count=1.5)  # type: ignore[arg-type]
    counter, event = client.create_actor(Counter, name="counter"), threading.Event()
    for method, words in (("subtract", "Counter has no method 'subtract'"), ("_value", "'_value' is not public")):
        with pytest.raises(AttributeError, match=words):
            getattr(counter, method)
    future = counter.sleep_until.remote(event)
    with pytest.raises(DeadlineExceeded, match=r"'sleep_until' of actor 'counter'.*no result after 0.01 s"):
        future.result(0.01)
    event.set()
    with pytest.raises(Conflict, match="not inside an actor"):
        current_actor()


def test_a_handle_can_be_sent_where_the_temporary_path_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    def fail_to_listen(*_: object) -> None:
        raise OSError("no more sockets")

    handle = client.create_actor(Counter, name="counter")
    with monkeypatch.context() as patch:
        patch.setattr("fray.backends.local.actor_server.ActorServer.listen", fail_to_listen)
        for _ in range(2):
            with pytest.raises(OSError, match="no more sockets"):
                pickle.dumps(handle)
    assert pickle.loads(pickle.dumps(handle)).add(2) == 2


def test_an_actor_that_would_wait_for_itself_is_told_so(client: LocalClient) -> None:
    with pytest.raises(Conflict, match="would wait for itself: 'add'"):
        client.create_actor(Counter, name="one").call_self()
    two = client.create_actor(Counter, name="two", actor_config=ActorConfig(max_concurrency=2))
    assert two.call_self() == 1
