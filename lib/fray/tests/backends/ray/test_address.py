"""Where Ray is looked for: what is not there is told at once, by its address."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from fray.backends.ray import cluster as ray_cluster
from fray.backends.ray import connect
from fray.testing.ray_harness import RayHarness
from rigging.errors import Unavailable

pytestmark = [pytest.mark.ray]

SHORT = 0.3


@pytest.fixture(autouse=True)
def _ray(monkeypatch: pytest.MonkeyPatch) -> None:
    RayHarness.prepare()
    import ray

    # A process that is connected, as by tests before, does not look for an address; it connects again when it needs to.
    ray.shutdown()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def dead() -> Iterator[str]:
    """An address that is taken and refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@contextlib.contextmanager
def server(answer: bytes | None) -> Iterator[str]:
    """Something that listens, and answers with this; None for what says nothing, like a process that is stopped."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(100)
                        connection.sendall(answer or b"")

        if answer is not None:
            threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.process
def test_a_dead_address_is_told_in_seconds_with_what_can_be_done(dead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", dead)
    began = time.monotonic()
    with pytest.raises(Unavailable) as failure:
        connect(None)
    assert time.monotonic() - began < 20, "5 s, on a machine that has time"
    for part in (dead, "from RAY_ADDRESS", "Connection refused", "unset RAY_ADDRESS", "FRAY_CLIENT=local"):
        assert part in str(failure.value)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [(None, "no answer in time"), (b"", "closed without an answer"), (b"HTTP/1.1 400 Bad Request", "no gRPC server")],
)
def test_what_listens_but_is_no_ray_is_told_apart(answer: bytes | None, problem: str) -> None:
    with server(answer) as address, pytest.raises(Unavailable, match=problem):
        ray_cluster.check_reachable(address, SHORT)


def test_the_address_of_a_client_server_is_looked_at_and_one_without_host_and_port_is_left_to_ray(
    dead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address in (None, "auto", "local", ""):
        ray_cluster.check_reachable(address, SHORT)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(Unavailable, match=f"'ray://{dead}' .as given"):
        ray_cluster.check_reachable(f"ray://{dead}", SHORT)


def test_a_grpc_server_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    with server(settings) as address:
        monkeypatch.setenv("RAY_ADDRESS", address)
        ray_cluster.check_reachable("auto", 20)
