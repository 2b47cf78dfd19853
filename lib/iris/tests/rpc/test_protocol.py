"""What both ends of a connection agree on."""

import pytest

from iris.rpc.protocol import (
    CHANNEL_OPTIONS,
    KEEPALIVE_MS,
    PROTOCOL_VERSION,
    SERVER_OPTIONS,
    call_metadata,
    version_mismatch,
)

CHANNEL, SERVER = dict(CHANNEL_OPTIONS), dict(SERVER_OPTIONS)


def test_a_server_lets_its_clients_ping_as_often_as_they_do() -> None:
    assert CHANNEL["grpc.keepalive_time_ms"] == KEEPALIVE_MS
    assert int(SERVER["grpc.http2.min_ping_interval_without_data_ms"]) < KEEPALIVE_MS
    assert int(SERVER["grpc.http2.min_ping_interval_without_data_ms"]) >= 1000, "but not all the time"
    for options in (CHANNEL, SERVER):
        assert options["grpc.keepalive_permit_without_calls"] == 1, "an idle stream notices a dead peer, too"
        assert options["grpc.http2.max_pings_without_data"] == 0


def test_every_call_says_who_calls_and_which_release_it_is() -> None:
    assert call_metadata("t") == (("authorization", "Bearer t"), ("iris-protocol-version", str(PROTOCOL_VERSION)))
    assert call_metadata("t", "/a/b/0:1")[2:] == (("iris-attempt-id", "/a/b/0:1"),)
    assert call_metadata("t", "") == call_metadata("t")


@pytest.mark.parametrize(("theirs", "upgrade"), [(3, "worker w1"), (4, ""), (5, ""), (6, ""), (7, "the controller")])
def test_neighbours_work_together_and_of_others_the_older_is_to_be_upgraded(theirs: int, upgrade: str) -> None:
    told = version_mismatch("worker w1", theirs, 5)
    if not upgrade:
        assert told == ""
        return
    assert told.startswith(f"worker w1 speaks protocol version {theirs}, this controller 5: upgrade {upgrade} to a ")
    assert ("speaks 4 or later" if theirs < 5 else "speaks 6 or later") in told
    assert "upgrade worker w1 to a release that speaks 3 or later" in version_mismatch("worker w1", 2, 3)
    assert version_mismatch("worker w1", 4, 3) == ""
