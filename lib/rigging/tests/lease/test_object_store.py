"""Leases on object stores beyond the contract: answers that lie, calls that stall, requests that cost."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rigging.distributed_lock import LeaseLock, create_lock
from rigging.errors import Denied, InvalidRequest, NotFound, Unavailable
from rigging.filesystem import read_bytes_or_none
from rigging.lease.gcs import GcsObjects
from rigging.lease.object_store import ObjectLeaseStore
from support.rigging.clock import FakeClock
from support.rigging.contention import taken
from support.rigging.faults import Fault, FaultKind
from support.rigging.gcs_server import GcsServer
from support.rigging.s3_server import S3Server
from support.rigging.serving import TestServer

BUCKETS = {"gs": "marin-us-central2", "s3": "marin-s3-one"}
#: How the two stores spell the requests for an object whose key ends with the text that follows.
WRITE, DELETE, READ = r"^(POST|PUT) ", r"^DELETE ", r"^GET "
LOCK, FENCE = r".*\.lock(?!\.fence)", r".*\.lock\.fence"


@pytest.fixture(params=["gs", "s3"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(scheme: str, request: pytest.FixtureRequest) -> TestServer:
    return request.getfixturevalue({"gs": "gcs_server", "s3": "s3_server"}[scheme])


@pytest.fixture
def url(scheme: str, server: TestServer, tmp_path: Path) -> str:
    return f"{scheme}://{BUCKETS[scheme]}/{tmp_path.name}/a b+ü%.lock"


def fail(server: TestServer, what: str, kind: FaultKind, times: int | None = 1, status: int = 503) -> None:
    # GCS names the object of an upload in the body, where no pattern is looked for.
    pattern = what if isinstance(server, S3Server) or not what.startswith(WRITE) else r"^POST /upload"
    server.inject(Fault(kind, match=pattern, times=times, status=status))


LIES = [FaultKind.ERROR, FaultKind.DROP, FaultKind.APPLIED_ERROR, FaultKind.APPLIED_DROP]


@pytest.mark.parametrize("kind", LIES)
@pytest.mark.parametrize("faults", [1, pytest.param(5, marks=pytest.mark.process)])
def test_unclear_answers_to_writes_are_cleared_up(kind: FaultKind, faults: int, url: str, server: TestServer) -> None:
    mine = create_lock(url)
    fail(server, WRITE + LOCK, kind, times=faults)
    assert mine.try_acquire()
    assert mine.fencing_token == 1
    fail(server, WRITE + LOCK, kind)
    mine.refresh()
    other = create_lock(url)
    assert not other.try_acquire()
    assert mine.release()
    assert other.try_acquire()
    assert other.fencing_token == 2, "a repeated write cost a number, or gave one twice"


@pytest.mark.parametrize("kind", LIES)
def test_unclear_answers_to_reads_and_a_release_are_cleared_up(kind: FaultKind, url: str, server: TestServer) -> None:
    mine = create_lock(url)
    if kind in LIES[:2]:
        for object_of in (LOCK, FENCE):
            fail(server, READ + object_of, kind, times=2)
    assert mine.try_acquire()
    fail(server, DELETE + LOCK, kind)
    assert mine.release()
    assert read_bytes_or_none(url) is None


def test_a_store_that_stays_away_is_reported_and_nothing_is_held(url: str, server: TestServer, scheme: str) -> None:
    key = url.partition("://")[2].partition("/")[2]
    impatient, at_once = (LeaseLock(ObjectLeaseStore(url, key, _objects_of(scheme), retry_seconds=s)) for s in (0.1, 0))
    fail(server, WRITE + LOCK, FaultKind.ERROR, times=None)
    with pytest.raises(Unavailable, match=r"cannot write .*tried for 0\.1 s: .*503"):
        impatient.try_acquire()
    assert not impatient.release()
    server.clear_faults()
    fail(server, READ + LOCK, FaultKind.ERROR, times=2)
    assert at_once.try_acquire(), "time alone, without attempts, is no reason to give up: a machine may stand still"


def test_what_will_not_pass_is_said_at_once(url: str, server: TestServer, scheme: str) -> None:
    with pytest.raises(NotFound, match="no-such-bucket"):
        create_lock(f"{scheme}://no-such-bucket/x.lock").try_acquire()
    fail(server, WRITE, FaultKind.ERROR, status=403)
    with pytest.raises(Denied, match=r"HTTP 403.*"):
        create_lock(url).try_acquire()
    with pytest.raises(InvalidRequest, match=r"must name an object, .*://bucket/key"):
        create_lock(f"{scheme}://bucket")
    if scheme == "s3":
        fail(server, "^PUT", FaultKind.ERROR, status=501)
        with pytest.raises(InvalidRequest, match="leases need a store with conditional puts"):
            create_lock(url).try_acquire()
        fail(server, "^PUT", FaultKind.ERROR, status=409)  # two writes at once, which are sorted out
        assert create_lock(url).try_acquire()


def test_the_lock_object_has_two_keys_whatever_marks_it(url: str, clock: FakeClock) -> None:
    assert create_lock(url, "w", clock=clock).try_acquire()
    first = read_bytes_or_none(url)
    assert create_lock(url, "w", clock=clock).try_acquire()
    second = read_bytes_or_none(url)
    assert json.loads(first) == json.loads(second) == {"worker_id": "w", "timestamp": clock.now()}
    assert first != second, "two writes with the same content have the same ETag"


def test_requests_are_counted(gcs_server: GcsServer, tmp_path: Path) -> None:
    lock = create_lock(f"gs://marin-us-central2/{tmp_path.name}/x.lock")

    def cost(call: Callable[[], object]) -> int:
        gcs_server.reset_traffic()
        call()
        return sum(gcs_server.traffic()["marin-us-central2"].requests.values())

    assert cost(lock.try_acquire) <= 5
    assert cost(lock.refresh) == 1
    assert cost(lock.has_active_holder) == 1
    assert cost(create_lock(lock.location).try_acquire) == 1
    assert cost(lock.release) == 1


def _objects_of(scheme: str) -> GcsObjects:
    from rigging.lease.s3 import S3Objects

    return GcsObjects(BUCKETS["gs"]) if scheme == "gs" else S3Objects(BUCKETS["s3"])  # type: ignore[return-value]


def test_processes_do_not_share_connections(url: str) -> None:
    """A forked child with its parent's open connections would mix up both their answers."""
    mine = taken(create_lock(url))
    child = os.fork()
    if child == 0:
        failed = any(create_lock(url).try_acquire() for _ in range(20))
        os._exit(int(failed))
    for _ in range(20):
        mine.refresh()
    assert os.waitpid(child, 0)[1] == 0
