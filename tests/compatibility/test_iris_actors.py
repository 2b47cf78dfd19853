"""Actors of iris as older programs serve and call them."""

import stat
import threading
import time

import pytest

from iris.actor import ActorClient, ActorPool, ActorServer, FixedResolver, ProxyResolver
from iris.cluster.types import Entrypoint, ResourceSpec


class Counter:
    def __init__(self, start=0):
        self.value = start
        self.release = threading.Event()

    def add(self, number=1):
        self.value += number
        return self.value

    def fail(self):
        raise ValueError("of the method")

    def wait(self):
        self.release.wait(20)
        return "released"


@pytest.fixture(autouse=True)
def own_state(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("IRIS_JOB_ID", raising=False)
    return tmp_path / "state"


@pytest.fixture
def server():
    made = ActorServer(host="127.0.0.1")
    yield made
    made.stop()


@pytest.mark.compatible("ActorServer(host, port?).register(name, obj), .serve_background(port?) -> port", since="0.1.0")
@pytest.mark.compatible("ActorClient(resolver, name, call_timeout?).method(...)", since="0.1.0")
@pytest.mark.compatible("FixedResolver({name: url or [urls]})", since="0.1.0")
@pytest.mark.compatible("ActorServer.wait() .stop() .address", since="0.1.0")
def test_an_actor_without_a_cluster(server, own_state):
    server.register("counter", Counter(3))
    port = server.serve_background()
    assert server.address == f"127.0.0.1:{port}"
    client = ActorClient(FixedResolver({"counter": f"http://127.0.0.1:{port}"}), "counter", call_timeout=20.0)
    assert client.add(4) == 7
    with pytest.raises(ValueError, match="of the method"):
        client.fail()
    client.close()
    assert not server.wait(0.01)
    server.stop()
    assert server.wait(10)
    (key,) = own_state.rglob("actor-key")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


@pytest.mark.compatible("an actor server without a token listens on loopback only", since="0.1.0")
def test_a_server_without_a_token_is_not_seen_from_outside():
    server = ActorServer(host="0.0.0.0")
    server.serve_background()
    assert server.address.startswith("127.0.0.1:")
    server.stop()


@pytest.mark.compatible("ActorClient.start_operation(method, *a) -> id, poll_operation_status", since="0.1.0")
@pytest.mark.compatible("ActorClient.get_operation, cancel_operation", since="0.1.0")
def test_a_long_call(server):
    counter = Counter()
    server.register("counter", counter)
    port = server.serve_background()
    with ActorClient(FixedResolver({"counter": f"127.0.0.1:{port}"}), "counter") as client:
        first = client.start_operation("wait")
        second = client.start_operation("add", 5)
        assert client.poll_operation_status(first).state == "running"
        assert client.cancel_operation(second)
        assert client.get_operation(second).state == "cancelled"
        counter.release.set()
        deadline = time.monotonic() + 20
        while not client.get_operation(first).done and time.monotonic() < deadline:
            time.sleep(0.01)
        assert client.get_operation(first).result == "released"
        with pytest.raises(KeyError):
            client.get_operation("unknown")


@pytest.mark.compatible("ActorPool(resolver, name, timeout=30.0).call().method(...)", since="0.1.0")
@pytest.mark.compatible("ActorPool.broadcast().method(...).wait_all(timeout?)", since="0.1.0")
def test_a_pool(server):
    other = ActorServer(host="127.0.0.1")
    ports = []
    for each, start in ((server, 10), (other, 20)):
        each.register("counter", Counter(start))
        ports.append(each.serve_background())
    resolver = FixedResolver({"counter": [f"http://127.0.0.1:{port}" for port in ports]})
    with ActorPool(resolver, "counter") as pool:
        assert pool.timeout == 30.0
    with ActorPool(resolver, "counter", timeout=20.0) as pool:
        assert pool.size == 2
        assert sorted([pool.call().add(1), pool.call().add(1)]) == [11, 21]
        assert pool.broadcast().add(1).wait_all() == [12, 22]
        assert pool.broadcast().add(1).wait_all(timeout=20) == [13, 23]
    other.stop()


@pytest.mark.process
@pytest.mark.compatible("ProxyResolver(controller_url)", since="0.1.0")
def test_actors_of_a_cluster(iris_client, monkeypatch, tmp_path):
    def serve():
        class Adder:
            def add(self, number):
                return 3 + number

        with ActorServer() as server:
            server.register("adder", Adder())
            threading.Event().wait(60)

    job = iris_client.submit(Entrypoint.from_callable(serve), "serves", ResourceSpec(cpu=0.1, memory="256MB"))
    (tmp_path / "token").write_text(iris_client.operator.create_token(job.job_id.split("/")[1]))
    monkeypatch.setenv("IRIS_TOKEN_FILE", str(tmp_path / "token"))
    resolver = ProxyResolver(f"http://{iris_client.address}")
    client = ActorClient(resolver, f"{job.job_id}/adder", call_timeout=60.0)
    assert client.add(4) == 7
    client.close()
    resolver.client.shutdown()
    job.terminate()
