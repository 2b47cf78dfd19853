"""What Compute Engine's metadata server says of its host, from one on loopback that speaks as that does."""

import threading

from iris.testing.gce_metadata import MetadataServer
from iris.worker.preemption import GceHost

LONG = 30.0


def test_the_notice_is_pushed() -> None:
    with MetadataServer() as server:
        told = threading.Thread(target=GceHost(server.address).wait_until_preempted, daemon=True)
        told.start()
        server.wait_for_watchers(1)
        assert told.is_alive()
        server.preempt()
        told.join(LONG)
        assert not told.is_alive()
        assert not server.refused


def test_one_that_came_before_the_watch_is_heard() -> None:
    with MetadataServer() as server:
        host = GceHost(server.address)
        assert not host.is_preempted()
        server.preempt()
        assert host.is_preempted()
        host.wait_until_preempted()


def test_only_a_metadata_server_is_believed() -> None:
    with MetadataServer(flavor="Proxy") as server:
        server.preempt()
        assert not GceHost(server.address).is_preempted()
    assert not GceHost("127.0.0.1:9").is_preempted()


def test_a_watch_outlives_a_server_that_goes_away_and_comes_back() -> None:
    with MetadataServer() as server:
        told = threading.Thread(target=GceHost(server.address).wait_until_preempted, daemon=True)
        told.start()
        server.wait_for_watchers(1)
        server.break_off()
        server.wait_for_watchers(2)
        server.preempt()
        told.join(LONG)
        assert not told.is_alive()
