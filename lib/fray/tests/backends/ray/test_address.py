"""Where Ray is looked for: what is not there is told at once, by its address."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.backends.ray import address, connect
from fray.testing.ray_harness import RayHarness, need_namespaces
from rigging.errors import Denied, Unavailable
from rigging.ray_token import AuthToken

pytestmark = [pytest.mark.ray]

SHORT = 0.3
NONE = AuthToken("", "nowhere")
TOKEN = "0123456789abcdef" * 4


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
                        connection.recv(4096)
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


SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def status(code: int) -> bytes:
    """The end of a call, as gRPC writes it."""
    block = b"\x40\x0bgrpc-status\x02%d" % code
    return bytes([0, 0, len(block), 1, 5, 0, 0, 0, 1]) + block


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "no answer in time"),
        (b"", "closed without an answer"),
        (b"HTTP/1.1 400 Bad Request", "does not speak gRPC"),
        (SETTINGS + status(12), "the server there is not a cluster"),
    ],
)
def test_what_listens_but_is_no_ray_is_told_apart(answer: bytes | None, problem: str) -> None:
    with server(answer) as place, pytest.raises(Unavailable, match=problem):
        address.check_reachable(place, "as given", NONE, SHORT)


def test_the_address_of_a_client_server_is_looked_at_and_one_without_host_and_port_is_left_to_ray(dead: str) -> None:
    for place in ("auto", "local", ""):
        address.check_reachable(place, "as given", NONE, SHORT)
    with pytest.raises(Unavailable, match=f"'ray://{dead}' .as given"):
        address.check_reachable(f"ray://{dead}", "as given", NONE, SHORT)
    with server(SETTINGS + status(12)) as place:
        address.check_reachable(f"ray://{place}", "as given", NONE, 20)


@pytest.mark.parametrize("token", ["", "short", TOKEN * 5])
def test_a_grpc_server_is_found_and_one_that_wants_another_token_is_told(token: str) -> None:
    with server(SETTINGS) as place:
        address.check_reachable(place, "as given", AuthToken(token, "here"), 20)
    with server(SETTINGS + status(16)) as place, pytest.raises(Denied) as caught:
        address.check_reachable(place, "as given", AuthToken(token, "here"), 20)
    said = "the token of here is not the cluster's" if token else "no token was found (here)"
    assert f"the Ray cluster at {place} requires a token, and {said}: `ray get-auth-token`" in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "is not a Ray dashboard: HTTP 404"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", "is not a Ray dashboard"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"data": {"summary": []}}', "does not know the cluster's address yet"),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "requires a token, and no token was found"),
    ],
)
def test_what_a_dashboard_answers(answer: bytes, said: str) -> None:
    with server(answer) as place, pytest.raises((Unavailable, Denied), match=said):
        address.ask_dashboard(f"http://{place}", "from RAY_ADDRESS", NONE)


# In a process of its own: what Ray is told of tokens holds for the whole process.
CLUSTER = f"""
import os, sys
from fray.testing.ray_harness import RayCluster
with RayCluster(cpus=2, jobs_api=True, token={TOKEN!r}).running() as cluster:
    print(cluster.jobs_address, cluster.address, flush=True)
    sys.stdin.read()
"""
USE = """
import os, ray
from fray import Entrypoint, JobRequest, ResourceConfig, current_client
job = JobRequest("x", Entrypoint.from_callable(print, ["let in"]), ResourceConfig.with_cpu(cpu=0.1, ram="64m"))
handle = current_client().submit(job)
handle.wait(60)
print(handle.logs(), flush=True)
os._exit(0)
"""


@pytest.mark.process
@pytest.mark.timeout(300)
def test_a_cluster_with_a_token_and_the_address_of_its_dashboard(tmp_path: Path) -> None:
    need_namespaces()
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text(f"{TOKEN}\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_A")}
    with subprocess.Popen([sys.executable, "-c", CLUSTER], stdin=-1, stdout=-1, text=True, env=kept) as cluster:
        assert cluster.stdout is not None
        dashboard, gcs = cluster.stdout.readline().split()

        def use(place: str, **env: str) -> str:
            env = {**kept, "FRAY_CLIENT": "ray", "RAY_ADDRESS": place, **env}
            done = subprocess.run([sys.executable, "-c", USE], env=env, capture_output=True, text=True, timeout=100)
            return done.stdout + done.stderr

        for place in (dashboard, gcs):
            assert "let in" in use(place, HOME=str(tmp_path))
        told = use(gcs, RAY_AUTH_TOKEN="f" * 64)
        assert (
            f"the Ray cluster at {gcs} requires a token, and the token of RAY_AUTH_TOKEN is not the cluster's" in told
        )
        assert "InvalidAuthToken" not in told, "what Ray says each second, for 20 s"
        told = use(dashboard, HOME=str(tmp_path / "none"))
        assert f"{dashboard} requires a token, and no token was found ({tmp_path / 'none/.ray/auth_token'})" in told
        cluster.stdin.close()
