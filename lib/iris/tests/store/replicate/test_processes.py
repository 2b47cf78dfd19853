"""A controller's disk is lost: what comes back from the remote state, with real processes on real protocols."""

import shutil
from pathlib import Path

import pytest

from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.protocol import call_metadata
from iris.store.replicate.remote import RemoteState
from iris.store.replicate.replicator import Pace
from iris.store.replicate.restore import restore
from iris.store.store import Store
from iris.testing.controller import ControllerStubs
from iris.testing.controller_process import ControllerProcess
from rigging.errors import MarinError, NotFound
from rigging.testing import eventually

pytestmark = pytest.mark.e2e

# Each life of a controller takes seconds; the ordinary run has what differs between storages once.
MOST = pytest.mark.parametrize(
    "remote_url", ["file", pytest.param("gcs", marks=pytest.mark.slow), pytest.param("s3", marks=pytest.mark.slow)],
    indirect=True,
)  # fmt: skip
STORAGES = pytest.mark.parametrize("remote_url", ["file", "gcs", "s3"], indirect=True)


def stubs_of(controller: ControllerProcess, state_dir: Path) -> ControllerStubs:
    secret = load_or_create_secret(state_dir / "secret")
    return ControllerStubs(controller.address, call_metadata(make_token(secret, PrincipalKind.USER, "ann")))


def submit(stubs: ControllerStubs, number: int) -> str:
    name = f"/ann/job-{number}"
    spec = pb.JobSpec(
        job_id=name,
        entrypoint=pb.Entrypoint(command=pb.Command(argv=["true"])),
        resources=pb.Resources(cpu_millis=1, memory_bytes=1),
        replicas=1,
    )
    stubs.jobs.SubmitJob(pb.SubmitJobRequest(spec=spec), timeout=30, wait_for_ready=True)
    return name


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


def jobs_elsewhere(remote_url: str, directory: Path) -> set[str]:
    """The jobs that would come back if the machine were lost now."""
    shutil.rmtree(directory, ignore_errors=True)
    try:
        restore(RemoteState(remote_url), directory)
    except NotFound:
        return set()
    store = Store.open(directory)
    try:
        return {str(job.job_id) for job in store.load().jobs}
    finally:
        store.close()


@MOST
def test_with_durability_local_commits_leave_the_machine_in_order_by_themselves(
    remote_url: str, tmp_path: Path
) -> None:
    state_dir = tmp_path / "state"
    controller = ControllerProcess(state_dir, remote_state_dir=remote_url, durability="local")
    try:
        stubs = stubs_of(controller, state_dir)
        acknowledged = [submit(stubs, number) for number in range(20)]
        eventually(
            lambda: jobs_elsewhere(remote_url, tmp_path / "look") == set(acknowledged),
            "what was acknowledged has left the machine",
        )
        safe = set(acknowledged)
        acknowledged += [submit(stubs, number) for number in range(20, 100)]
        controller.kill()
        stubs.close()
        shutil.rmtree(state_dir)
        controller = ControllerProcess(state_dir, remote_state_dir=remote_url, durability="local")
        stubs = stubs_of(controller, state_dir)
        there = jobs_of(stubs)
        stubs.close()
        assert safe <= there
        assert Pace().gather_s < 1  # docs/durability.md: all but the last second or so
        # What is there is a beginning of the history, without holes.
        assert there == set(acknowledged[: len(there)])
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
