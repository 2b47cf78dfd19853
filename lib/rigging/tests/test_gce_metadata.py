"""One question to a metadata server, and what is no answer of one."""

import socket
import threading
from typing import Any

import pytest

from rigging.gce_metadata import Metadata, ask_metadata, metadata_host


def test_the_value_and_the_tag_of_an_answer(metadata_server: Any) -> None:
    assert ask_metadata(metadata_server.host, "zone?x=1", 20) == Metadata("projects/1/zones/us-central2-b", "e1")
    assert metadata_server.asked == [("/computeMetadata/v1/instance/zone?x=1", "Google")]
    del metadata_server.headers["ETag"]
    metadata_server.body = b"x" * 5000
    assert ask_metadata(metadata_server.host, "zone", 20) == Metadata("x" * 4096, "0"), "what is too long is cut"


@pytest.mark.parametrize(("status", "flavor"), [(200, "Proxy"), (200, ""), (500, "Proxy"), (204, "Google")])
def test_what_does_not_answer_as_one_is_none(metadata_server: Any, status: int, flavor: str) -> None:
    metadata_server.status, metadata_server.headers = status, {"Metadata-Flavor": flavor} if flavor else {}
    with pytest.raises(OSError, match=f"{metadata_server.host} answered {status}, unlike a metadata server"):
        ask_metadata(metadata_server.host, "zone", 20)


def test_a_value_that_is_not_there_is_told_from_no_answer(metadata_server: Any) -> None:
    metadata_server.status = 404
    with pytest.raises(FileNotFoundError, match=f"{metadata_server.host} has no attributes/x"):
        ask_metadata(metadata_server.host, "attributes/x", 20)


def test_it_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, host in (("there:80", "there:80"), ("", "metadata.google.internal")):
        monkeypatch.setenv("GCE_METADATA_HOST", value)
        assert metadata_host() == host


def test_what_speaks_another_protocol_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host = f"127.0.0.1:{listening.getsockname()[1]}"

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(OSError, match=f"{host} does not speak HTTP like a metadata server"):
            ask_metadata(host, "zone", 20)
        thread.join()
