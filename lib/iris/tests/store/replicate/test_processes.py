"""A controller's disk is lost: what comes back from the remote state, with real processes on real protocols."""

import shutil
import time
from pathlib import Path

import pytest

from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.protocol import call_metadata
from iris.testing.controller import Stubs
from iris.testing.controller_process import ControllerProcess
from rigging.errors import MarinError

pytestmark = pytest.mark.e2e

# Each life of a controller takes seconds; the ordinary run has what differs between storages once.
MOST = pytest.mark.parametrize(
    "remote_url", ["file", pytest.param("gcs", marks=pytest.mark.slow), pytest.param("s3", marks=pytest.mark.slow)],
    indirect=True,
)  # fmt: skip
STORAGES = pytest.mark.parametrize("remote_url", ["file", "gcs", "s3"], indirect=True)


def stubs_of(controller: ControllerProcess, state_dir: Path) -> Stubs:
    secret = load_or_create_secret(state_dir / "secret")
    return Stubs(controller.address, call_metadata(make_token(secret, PrincipalKind.USER, "ann")))


def submit(stubs: Stubs, number: int) -> str:
    name = f"/ann/job-{number}"
    spec = pb.JobSpec(
        job_id=name,
        entrypoint=pb.Entrypoint(command=pb.Command(argv=["true"])),
        resources=pb.Resources(cpu_millis=1, memory_bytes=1),
        replicas=1,
    )
    stubs.jobs.SubmitJob(pb.SubmitJobRequest(spec=spec), timeout=30, wait_for_ready=True)
    return name


def jobs_of(stubs: Stubs) -> set[str]:
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
def test_with_durability_local_at_most_the_last_second_is_missing(remote_url: str, tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    controller = ControllerProcess(state_dir, remote_state_dir=remote_url, durability="local")
    try:
        stubs = stubs_of(controller, state_dir)
        acknowledged: list[tuple[float, str]] = []
        begin = time.monotonic()
        while time.monotonic() < begin + 2.5:
            name = submit(stubs, len(acknowledged))
            acknowledged.append((time.monotonic(), name))
        controller.kill()
        killed = time.monotonic()
        stubs.close()
        shutil.rmtree(state_dir)
        controller = ControllerProcess(state_dir, remote_state_dir=remote_url, durability="local")
        stubs = stubs_of(controller, state_dir)
        there = jobs_of(stubs)
        stubs.close()
        old_enough = {name for at, name in acknowledged if at < killed - 1.0}
        assert old_enough
        assert old_enough <= there
        # What is there is a beginning of the history, without holes.
        assert there == {name for _, name in acknowledged[: len(there)]}
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
