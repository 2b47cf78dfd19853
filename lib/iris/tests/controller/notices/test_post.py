"""One POST over a real socket: delivered, refused for good, or worth another try."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from iris.controller.notices.post import PostFailedError, PostRefusedError, post
from iris.domain.webhooks import IpAddress, parse_webhook
from support.iris.webhook_server import WebhookServer, webhook_server


def send(url: str, timeout_s: float = 10, refusal: str = "") -> None:
    asyncio.run(
        post(parse_webhook(url), b'{"a": 1}', {"X-A": "b"}, timeout_s=timeout_s, refusal=lambda address: refusal)
    )


def test_what_is_sent() -> None:
    with webhook_server() as server:
        send(server.url.replace("http://", "http://ann:p%40w@"))
    (told,) = server.told
    assert (told.path, told.body, told.headers["X-A"]) == ("/hook?key=hush", b'{"a": 1}', "b")
    assert told.headers["Host"] == f"127.0.0.1:{server.port}"
    assert told.headers["Authorization"] == "Basic YW5uOnBAdw=="


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        (500, PostFailedError, "answered 500"),
        (429, PostFailedError, "answered 429"),
        (404, PostRefusedError, "answered 404"),
        (302, PostRefusedError, "answered 302: redirects are not followed"),
    ],
)
def test_answers_that_are_no_thanks(answer: int, error: type[Exception], reason: str) -> None:
    with (
        webhook_server() as other,
        webhook_server(WebhookServer(answers=[answer], location=other.url)) as server,
        pytest.raises(error, match=reason) as caught,
    ):
        send(server.url)
    assert "hush" not in str(caught.value)
    assert other.told == [], "nothing goes to where it was redirected"


def test_a_server_that_hangs_or_is_not_there() -> None:
    with webhook_server(WebhookServer(answers=[0])) as server:
        with pytest.raises(PostFailedError, match=r"/\.\.\. did not answer within 0.3 s"):
            send(server.url, timeout_s=0.3)
        url = server.url
    with pytest.raises(PostFailedError, match="cannot be reached"):
        send(url)
    with pytest.raises(PostFailedError, match="cannot be reached"):
        send("http://no-such-host.invalid/key")


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that treats its one connection so."""

    def accept() -> None:
        connection, _ = listener.accept()
        with connection:
            answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join(10)


def test_an_answer_that_drips_is_cut_off_by_the_time_for_all_of_it() -> None:
    ended = threading.Event()

    def drip(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not ended.wait(0.05):
                connection.sendall(b"H")

    with answering(drip) as url:
        with pytest.raises(PostFailedError, match=r"did not answer within 0\.5 s"):
            send(url, timeout_s=0.5)
        ended.set()


def test_what_is_no_http_is_told() -> None:
    def greet(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"220 mail ready\r\n")

    with answering(greet) as url, pytest.raises(PostFailedError, match="does not speak HTTP"):
        send(url)


def test_an_address_that_is_not_allowed_is_never_connected_to() -> None:
    judged: list[IpAddress] = []

    def refuse(address: IpAddress) -> str:
        judged.append(address)
        return "not there"

    with webhook_server() as server:
        webhook = parse_webhook(f"http://localhost:{server.port}/")
        with pytest.raises(PostRefusedError, match="not there"):
            asyncio.run(post(webhook, b"", {}, timeout_s=5, refusal=refuse))
    assert server.told == []
    assert all(address.is_loopback for address in judged)
