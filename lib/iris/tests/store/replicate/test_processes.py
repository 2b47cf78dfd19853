"""A controller's disk is lost: what comes back from the remote state, with real processes on real protocols."""

import shutil
from pathlib import Path

import pytest

from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.protocol import call_metadata
from rigging.errors import MarinError
from support.iris.controller import ControllerStubs
from support.iris.controller_process import ControllerProcess
from support.iris.users import job_spec

pytestmark = pytest.mark.process

# Each life of a controller takes seconds; the ordinary run has what differs between storages once.
MOST = pytest.mark.parametrize(
    "remote_url", ["file", pytest.param("gcs", marks=pytest.mark.soak), pytest.param("s3", marks=pytest.mark.soak)],
    indirect=True,
)  # fmt: skip
STORAGES = pytest.mark.parametrize("remote_url", ["file", "gcs", "s3"], indirect=True)


def stubs_of(controller: ControllerProcess, state_dir: Path) -> ControllerStubs:
    secret = load_or_create_secret(state_dir / "secret")
    return ControllerStubs(controller.address, call_metadata(make_token(secret, PrincipalKind.USER, "ann")))


def submit(stubs: ControllerStubs, number: int) -> str:
    spec = job_spec(f"/ann/job-{number}")
    return stubs.jobs.SubmitJob(pb.SubmitJobRequest(spec=spec), timeout=30, wait_for_ready=True).job_id


def jobs_of(stubs: ControllerStubs) -> set[str]:
    return {job.job_id for job in stubs.jobs.ListJobs(pb.ListJobsRequest(limit=1000), wait_for_ready=True).jobs}


@STORAGES
def test_with_durability_remote_nothing_that_was_acknowledged_is_missing(remote_url: str, tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    controller = ControllerProcess(state_dir, remote_state_dir=remote_url)
    try:
        stubs = stubs_of(controller, state_dir)
        names = {submit(stubs, number) for number in range(5)}
        controller.kill()
        stubs.close()
        shutil.rmtree(state_dir)
        controller = ControllerProcess(state_dir, remote_state_dir=remote_url)
        stubs = stubs_of(controller, state_dir)
        assert jobs_of(stubs) == names
        stubs.close()
    finally:
        controller.kill()


@MOST
def test_a_second_controller_refuses_and_says_who_holds_the_state(remote_url: str, tmp_path: Path) -> None:
    first = ControllerProcess(tmp_path / "a", remote_state_dir=remote_url)
    try:
        with pytest.raises(MarinError, match=f"another controller uses the remote state .* renewed by .*{first.pid}"):
            ControllerProcess(tmp_path / "b", remote_state_dir=remote_url)
    finally:
        first.kill()


def test_a_deposed_controller_ends_by_itself(tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    first = ControllerProcess(tmp_path / "a", remote_state_dir=str(remote))
    try:
        first.pause()
        second = ControllerProcess(tmp_path / "b", remote_state_dir=str(remote))
        try:
            first.resume()
            assert first.wait(timeout_s=30) == 71
        finally:
            second.kill()
    finally:
        first.kill()
