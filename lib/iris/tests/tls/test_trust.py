"""Certificates are made once and found by their digest; nobody else is taken for the controller."""

import datetime
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from iris.rpc.channels import open_channel
from iris.rpc.controller_address import ControllerAddress
from iris.tls.certificates import (
    ServerIdentity,
    digest_of,
    ensure_certificates,
    read_authority,
    read_certificates,
    write_authority,
)
from iris.tls.pins import PinnedToken
from iris.tls.trust import certificate_trouble, fetch_ca, is_loopback, speaks_tls, trusted_ca
from rigging.errors import Denied, InvalidRequest, MarinError, NotFound, Unavailable


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ServerIdentity:
    return ensure_certificates(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> ServerIdentity:
    return ensure_certificates(tmp_path_factory.mktemp("other"))


@contextmanager
def serving(identity: ServerIdentity | None) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1))
    if identity is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        credentials = grpc.ssl_server_credentials([(identity.key, identity.certificate)])
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


@contextmanager
def listening(answer: bytes) -> Iterator[str]:
    """A listener that says these bytes to everybody, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def test_certificates_are_made_once_and_private_and_the_servers_is_renewed_under_the_same_ca(tmp_path: Path) -> None:
    first = ensure_certificates(tmp_path)
    assert ensure_certificates(tmp_path) == first == read_certificates(tmp_path)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "tls").iterdir()} == {0o600}
    assert (tmp_path / "tls").stat().st_mode & 0o777 == 0o700
    assert first.key.decode() not in repr(first)
    asked = ensure_certificates(tmp_path, renew=True)
    in_time = ensure_certificates(tmp_path, now=first.expires_at - datetime.timedelta(days=100))
    assert first.ca_sha256 == asked.ca_sha256 == in_time.ca_sha256
    assert len({first.certificate, asked.certificate, in_time.certificate}) == 3
    assert in_time.expires_at > first.expires_at
    with serving(in_time) as address:
        assert fetch_ca(address, first.ca_sha256) == first.ca_certificate
    # It was made while the clock was ahead.
    now = first.expires_at - datetime.timedelta(days=1000)
    mended = ensure_certificates(tmp_path, now=now)
    assert mended.certificate != in_time.certificate
    assert mended.expires_at < in_time.expires_at
    assert ensure_certificates(tmp_path, now=now).certificate == mended.certificate


def test_an_authority_can_be_put_elsewhere_and_never_over_another(tmp_path: Path) -> None:
    first = ensure_certificates(tmp_path / "a")
    kept = read_authority(tmp_path / "a")
    assert sorted(kept) == ["ca-key.pem", "ca.pem"]
    write_authority(tmp_path / "b", {"ca.pem": kept["ca.pem"]})
    assert not (tmp_path / "b").exists()
    write_authority(tmp_path / "b", kept)
    assert ensure_certificates(tmp_path / "b").ca_sha256 == first.ca_sha256
    other = ensure_certificates(tmp_path / "c")
    write_authority(tmp_path / "c", kept)
    assert ensure_certificates(tmp_path / "c") == other


def test_what_is_missing_damaged_or_open_to_others_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"server.pem; `iris cluster certs --make --state-dir"):
        read_certificates(tmp_path)
    ensure_certificates(tmp_path)
    (tmp_path / "tls" / "server-key.pem").chmod(0o644)
    with pytest.raises(MarinError, match="has mode 644, so others can read it"):
        ensure_certificates(tmp_path)


@pytest.mark.parametrize(
    ("taken", "words"),
    [
        (("server.pem",), "server-key.pem is not the key of {own}/server.pem: restore what"),
        (("server.pem", "server-key.pem"), "server.pem was not signed by the CA in {own}/ca.pem"),
        (("ca-key.pem",), "ca-key.pem is not the key of {own}/ca.pem"),
    ],
)
def test_files_that_do_not_belong_together_are_told_at_once(tmp_path: Path, taken: tuple[str, ...], words: str) -> None:
    good = ensure_certificates(tmp_path / "a")
    ensure_certificates(tmp_path / "b")
    own = tmp_path / "a" / "tls"
    kept = {name: (own / name).read_bytes() for name in ("server.pem", "server-key.pem", "ca-key.pem")}
    for name in taken:
        (own / name).write_bytes((tmp_path / "b" / "tls" / name).read_bytes())
    with pytest.raises(InvalidRequest, match=f"{own}/{words.format(own=own)}"):
        ensure_certificates(tmp_path / "a", renew="ca-key.pem" in taken)
    for name, what in (("server.pem", "certificate"), ("server-key.pem", "key")):
        (own / name).write_text("nothing")
        with pytest.raises(InvalidRequest, match=f"{own}/{name} is not a {what}"):
            ensure_certificates(tmp_path / "a")
        for each, content in kept.items():
            (own / each).write_bytes(content)
        assert ensure_certificates(tmp_path / "a") == good


def test_an_authority_is_kept_and_another_refused(made: ServerIdentity, tmp_path: Path, other: ServerIdentity) -> None:
    with serving(made) as address:
        assert trusted_ca(address, made.ca_sha256, tmp_path) == made.ca_certificate
    assert trusted_ca(address, made.ca_sha256, tmp_path) == made.ca_certificate
    kept = tmp_path / f"{made.ca_sha256}.pem"
    assert digest_of(kept.read_bytes()) == made.ca_sha256
    kept.write_text("damaged")
    with pytest.raises(Unavailable, match=f"the controller at {address} cannot be reached: Connection refused"):
        trusted_ca(address, made.ca_sha256, tmp_path)
    with (
        serving(other) as address,
        pytest.raises(
            Denied, match=f"has the CA {other.ca_sha256}, the token is for {made.ca_sha256}; nothing was sent"
        ),
    ):
        trusted_ca(address, made.ca_sha256, tmp_path)
    assert sorted(tmp_path.iterdir()) == [kept], "another is not kept"


def test_one_who_only_shows_the_right_authority_gets_no_call(
    made: ServerIdentity, other: ServerIdentity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An impostor can copy the certificate that everybody sees, but has not its key."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with serving(made) as address:
        place = ControllerAddress(address, "t", ca_sha256=made.ca_sha256)
        open_channel(place, ()).close()  # met before
    with serving(other) as address:
        place = ControllerAddress(address, "t", ca_sha256=made.ca_sha256)
        with open_channel(place, ()) as channel, pytest.raises(grpc.RpcError) as told:
            channel.unary_unary("/iris.v1.JobService/GetJob")(b"", timeout=5)
    assert told.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "certificate" in told.value.details()


def test_what_does_not_speak_tls_is_told_from_what_is_away(made: ServerIdentity) -> None:
    with listening(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        with pytest.raises(Denied, match=f"{address} does not speak TLS, but the token is for a controller that does"):
            fetch_ca(address, made.ca_sha256)
        assert not speaks_tls(address)
    with serving(None) as address:
        with pytest.raises(Denied, match=r"does not speak TLS.*If that controller now serves with --insecure"):
            fetch_ca(address, made.ca_sha256)
        assert not speaks_tls(address)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unavailable, match=r"answered no TLS handshake within 0\.2 s.*Nothing was sent to it"):
            fetch_ca(address, made.ca_sha256, timeout=0.2)
        assert not speaks_tls(address, timeout=0.2)
    with serving(made) as address:
        assert speaks_tls(address)


def test_a_token_without_a_pin_goes_nowhere_in_the_clear(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Denied, match=r"the token is not sent to 10\.0\.0\.2:7077: it pins no CA.*--insecure"):
        open_channel(ControllerAddress("10.0.0.2:7077", "u:ann:0123"), ())
    open_channel(ControllerAddress("127.0.0.1:7077", "u:ann:0123"), ()).close()
    assert not caplog.records
    open_channel(ControllerAddress("10.0.0.2:7077", "u:ann:0123", insecure=True), ()).close()
    assert "the connection to the controller at 10.0.0.2:7077 is not encrypted" in caplog.text


def test_only_loopback_is_loopback() -> None:
    own = ("127.0.0.1:7077", "127.0.0.2", "localhost:7077", "[::1]:7077", "::1")
    others = ("0.0.0.0", "10.0.0.1:7077", "[fd00::1]:7077", "localhost.example.org:7077", "127.0.0.1.example.org:7077")
    assert [is_loopback(address) for address in (*own, *others)] == [True] * 5 + [False] * 5


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("CERTIFICATE_VERIFY_FAILED: certificate is not yet valid",
            "is not yet valid by this host's clock, which says 1970-01-01 00:01 UTC"),
        ("CERTIFICATE_VERIFY_FAILED: certificate has expired", "has expired by this host's clock"),
        ("BAD_SIGNATURE: certificate signature failure", "was not signed by the CA that the token pins"),
    ],
)  # fmt: skip
def test_a_wrong_clock_is_not_told_as_a_wrong_authority(reason: str, words: str) -> None:
    assert certificate_trouble(reason, 60.0).startswith(words)
    assert "nothing was sent to it" in certificate_trouble(reason, 60.0)
    assert certificate_trouble("Connection refused", 60.0) == "", "that is no trouble of theirs"


@pytest.mark.process
def test_a_handshake_that_fails_is_told_once_in_our_words(tmp_path: Path) -> None:
    ahead = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=30)
    identity = ensure_certificates(tmp_path, now=ahead)
    token = tmp_path / "token"
    token.write_text(PinnedToken("x", identity.ca_sha256).text)
    token.chmod(0o600)
    env = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    with serving(identity) as address:
        command = ["--controller-url", address, "--token-file", str(token), "job", "list"]
        done = subprocess.run(
            [Path(sys.executable).with_name("iris"), *command],
            env={**env, "IRIS_RECONNECT_TIMEOUT": "0.5", "XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 5
    (line,) = done.stderr.splitlines()
    assert "its certificate is not yet valid by this host's clock" in line
