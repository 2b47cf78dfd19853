"""A controller whose disk is full: it lives, refuses with the reason, loses nothing acknowledged, and starts again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fray.testing.waiting import eventually
from iris.client.connection.wire import log_lines
from iris.client.types import LogLine
from iris.controller.config.controller_config import Address
from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logformat import encode
from iris.rpc.protocol import call_metadata
from support.iris.controller import ControllerStubs
from support.iris.controller_process import ControllerProcess, fixed_port
from support.iris.small_disk import SmallDisk, small_disk
from support.iris.users import User
from support.iris.worker import ScriptedWorker

pytestmark = pytest.mark.process

T = 1_790_000_000_000
A = "/ann/a/0:0"
CHUNK = b"".join(encode(False, T, b"x" * 1000) for _ in range(250))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as found:
        if found is None:
            pytest.skip("no tmpfs can be mounted here (root is needed): what a full disk does is NOT tested")
        yield found


class Cluster:
    """A controller's process on the small disk, started again on the same port."""

    def __init__(self, disk: SmallDisk) -> None:
        self.state = disk.root / "state"
        self._port = fixed_port()
        self.start()

    def start(self) -> None:
        self.process = ControllerProcess(self.state, self._port)

    @property
    def address(self) -> Address:
        return self.process.address

    def token(self, kind: PrincipalKind, name: str) -> str:
        return make_token(load_or_create_secret(self.state / "secret"), kind, name)

    def worker(self, instance: str = "first", **given: Any) -> ScriptedWorker:
        return ScriptedWorker(self.address, self.token(PrincipalKind.WORKER, "w1"), "w1", instance_id=instance, **given)


@pytest.fixture
def cluster(disk: SmallDisk) -> Iterator[Cluster]:
    found = Cluster(disk)
    try:
        yield found
    finally:
        found.process.kill()


@pytest.fixture
def connect(cluster: Cluster) -> Iterator[Any]:
    opened: list[ControllerStubs] = []

    def open_client() -> User:
        opened.append(ControllerStubs(cluster.address, call_metadata(cluster.token(PrincipalKind.USER, "ann"))))
        return User(opened[-1])

    yield open_client
    for stubs in opened:
        stubs.close()


def entries(user: User, name: str, **query: Any) -> list[LogLine]:
    batches = user.jobs.FetchLogs(pb.FetchLogsRequest(id=name, **query), timeout=30)
    return [line for batch in batches for line in log_lines(batch)]


def test_a_full_disk_refuses_jobs_and_lets_the_others_end(disk: SmallDisk, cluster: Cluster, connect: Any) -> None:
    user = connect()
    with cluster.worker() as worker:
        user.submit("/ann/a")
        worker.wait_for_start(A)
        disk.fill()
        with pytest.raises(grpc.RpcError, match=r"new jobs cannot be taken now.*disk is nearly full") as refused:
            user.submit("/ann/b")
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "is nearly full" in user.cluster.Status(pb.ClusterStatusRequest()).disk_warning
        # The end of what runs is written all the same: into what was reserved.
        worker.observe(A, pb.TASK_STATE_SUCCEEDED)
        assert user.wait_one("/ann/a").state == pb.JOB_STATE_SUCCEEDED
        disk.fill()
        cluster.process.kill()
        cluster.start()
        user = connect()
        assert user.get("/ann/a").state == pb.JOB_STATE_SUCCEEDED
        disk.empty()
        with cluster.worker("second") as again:
            user.submit("/ann/b")
            again.wait_for_start("/ann/b/0:0")


def test_a_start_without_a_byte_free_and_without_a_reserve(disk: SmallDisk, cluster: Cluster, connect: Any) -> None:
    user = connect()
    with cluster.worker() as worker:
        user.submit("/ann/a")
        worker.wait_for_start(A)
        worker.observe(A, pb.TASK_STATE_RUNNING)
        for number in range(8):
            worker.append_log(A, number * len(CHUNK), CHUNK)
        worker.wait_for_log_ack(A, 8 * len(CHUNK))
        eventually(lambda: user.get("/ann/a").state == pb.JOB_STATE_RUNNING, "the job runs")
    cluster.process.kill()
    (cluster.state / "reserve").unlink()
    disk.fill()
    assert disk.free == 0
    cluster.start()
    user = connect()
    assert user.get("/ann/a").state == pb.JOB_STATE_RUNNING
    lost = [entry.data.decode() for entry in entries(user, "/ann/a")]
    assert " bytes of the log lost: " in lost[0]
