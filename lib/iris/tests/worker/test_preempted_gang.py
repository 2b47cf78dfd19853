"""A gang of four real workers and processes that is preempted again and again: all are told, nothing saved is lost."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.protocol import call_metadata
from support.google.metadata import MetadataServer
from support.iris.controller import ControllerStubs, RunningController, running_controller
from support.iris.users import User

JOB = "/ann/gang"
SIZE = 4
HOST = """
import sys
from pathlib import Path
from iris.domain.resources import Resources
from iris.rpc.controller_address import ControllerAddress
from iris.worker.app import Platform, WorkerConfig, run_worker

work_dir, address, token, name = sys.argv[1:]
config = WorkerConfig(
    Path(work_dir), name, capacity=Resources(1000, 2**31, 2**30), attributes={"rack": "r1"},
    platform=Platform.GCE if name == "w0" else Platform.NONE,
)
sys.exit(run_worker(config, lambda: ControllerAddress(address, token)))
"""
# As any training program: resume, step until told, save, go.
TRAIN = """
import os, sys, time
from pathlib import Path
import iris

place, attempt = Path(sys.argv[1]), os.environ["IRIS_ATTEMPT_ID"].replace("/", "~")
saved = place / "saved"
step = int(saved.read_text()) if saved.exists() else 0
iris.preemption()
(place / f"runs{attempt}").touch()
while (notice := iris.preemption()) is None:
    time.sleep(0.005)
if attempt.endswith(f"0:{attempt.rpartition(':')[2]}"):
    saved.with_suffix(".new").write_text(str(step + 1))
    saved.with_suffix(".new").rename(saved)
told = place / f"told{attempt}"
told.with_suffix(".new").write_text(f"{notice.reason} {notice.deadline - time.time()}")
told.with_suffix(".new").rename(told)
"""


class Rack:
    """Four workers, of which w0 is at Google, and a gang on all of them."""

    def __init__(self, root: Path, controller: RunningController, metadata: MetadataServer) -> None:
        self.root, self.controller, self.metadata = root, controller, metadata
        tokens = controller.user_token, controller.admin_token
        self.stubs = [ControllerStubs(controller.address, call_metadata(token)) for token in tokens]
        self.user, self.admin = map(User, self.stubs)
        self.workers = {f"w{number}": self.start(f"w{number}") for number in range(SIZE)}
        self.round = 0

    def start(self, name: str) -> "subprocess.Popen[bytes]":
        token, address = self.controller.worker_token(name), str(self.controller.address)
        argv = [sys.executable, "-c", HOST, str(self.root / name), address, token, name]
        env = {**os.environ, "GCE_METADATA_HOST": self.metadata.address}
        return subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def marks(self, what: str) -> list[Path]:
        found = [self.root / f"{what}{JOB.replace('/', '~')}~{index}:{self.round}" for index in range(SIZE)]
        return found if all(path.exists() for path in found) else []

    def preempt(self, reason: str) -> None:
        """Preempt the gang once; return when all members have been told and have ended."""
        eventually(lambda: self.marks("runs"), f"round {self.round} runs")
        getattr(self, reason)()
        told = [path.read_text().split() for path in eventually(lambda: self.marks("told"), "all are told")]
        assert [word for word, _ in told] == [reason] * SIZE
        assert all(0 < float(left) <= 20 for _, left in told), told
        self.round += 1
        if reason == "drain":
            self.admin.cluster.UncordonWorker(pb.UncordonWorkerRequest(worker_id="w1"))
        if reason in ("spot", "maintenance"):
            assert self.workers["w0"].wait(60) == 0
            self.metadata.set("instance/preempted", "FALSE")
            self.metadata.set("instance/maintenance-event", "NONE")
            self.workers["w0"] = self.start("w0")

    def drain(self) -> None:
        self.admin.cluster.CordonWorker(pb.CordonWorkerRequest(worker_id="w1", reason="new kernel", drain=True))

    def band(self) -> None:
        self.admin.submit(f"/ann/urgent{self.round}", band=pb.PRIORITY_BAND_PRODUCTION)

    def spot(self) -> None:
        self.metadata.preempt()

    def maintenance(self) -> None:
        self.metadata.set("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")

    def close(self) -> None:
        for process in self.workers.values():
            process.terminate()
        for process in self.workers.values():
            process.wait(30)
        for stubs in self.stubs:
            stubs.close()


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[Rack]:
    values = {"instance/preempted": "FALSE", "instance/maintenance-event": "NONE"}
    with MetadataServer(values) as metadata, running_controller(tmp_path / "state") as controller:
        found = Rack(tmp_path, controller, metadata)
        try:
            yield found
        finally:
            found.close()


@pytest.mark.parametrize(
    ("reasons", "rounds"),
    [
        pytest.param(("drain", "band", "spot", "maintenance"), 1, marks=pytest.mark.process),
        *(
            pytest.param((reason,), 50, marks=[pytest.mark.soak, pytest.mark.timeout(900)])
            for reason in ("drain", "band", "spot", "maintenance")
        ),
    ],
)
def test_all_members_are_told_and_no_checkpoint_is_lost(rack: Rack, reasons: tuple[str, ...], rounds: int) -> None:
    argv = (sys.executable, "-c", TRAIN, str(rack.root))
    rack.user.submit(
        JOB, argv=argv, replicas=SIZE, coscheduling_group_by="rack", band=pb.PRIORITY_BAND_BATCH, grace_ms=20_000,
        max_retries_preemption=1000,
    )  # fmt: skip
    for _ in range(rounds):
        for reason in reasons:
            rack.preempt(reason)
    eventually(lambda: rack.marks("runs"), "the last round runs")
    assert (rack.root / "saved").read_text() == str(rounds * len(reasons))
    assert [rack.user.task(f"{JOB}/{index}").failures for index in range(SIZE)] == [0] * SIZE
    rack.user.stop(JOB)
