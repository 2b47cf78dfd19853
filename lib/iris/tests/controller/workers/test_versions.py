"""Builds of neighbouring protocol versions work together; others are told which side to upgrade."""

from pathlib import Path

import grpc
import pytest

from iris.rpc import iris_pb2 as pb
from iris.rpc.protocol import call_metadata
from iris.testing.controller import ControllerStubs, running_controller
from iris.testing.users import User
from iris.testing.worker import ScriptedWorker

OURS = 5
"""Of a controller that plays a later release, so that there are neighbours on both sides."""


@pytest.mark.parametrize("theirs", [OURS - 1, OURS, OURS + 1])
def test_neighbours_run_jobs_together(tmp_path: Path, theirs: int) -> None:
    with running_controller(tmp_path / "state", protocol_version=OURS) as controller:
        metadata = call_metadata(controller.user_token, protocol_version=theirs)
        stubs = ControllerStubs(controller.address, metadata)
        with ScriptedWorker(controller.address, controller.worker_token("w1"), protocol_version=theirs) as worker:
            assert worker.welcome is not None
            assert worker.welcome.protocol_version == OURS
            User(stubs).submit("/ann/a")
            worker.wait_for_start("/ann/a/0:0")
            worker.observe("/ann/a/0:0", pb.TASK_STATE_SUCCEEDED)
            worker.wait_for_forget("/ann/a/0:0")
        stubs.close()


@pytest.mark.parametrize(("theirs", "upgrade"), [(OURS - 2, "the caller"), (OURS + 2, "the controller")])
def test_others_are_refused_with_the_cure(tmp_path: Path, theirs: int, upgrade: str) -> None:
    with running_controller(tmp_path / "state", protocol_version=OURS) as controller:
        with ScriptedWorker(controller.address, controller.worker_token("w1"), protocol_version=theirs) as worker:
            worker.wait_for_end()
        stubs = ControllerStubs(controller.address, call_metadata(controller.user_token, protocol_version=theirs))
        with pytest.raises(grpc.RpcError) as told:
            stubs.cluster.Status(pb.ClusterStatusRequest())
        stubs.close()
    for error in (worker.error, told.value):
        assert error is not None
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert error.details().startswith(
            f"the caller speaks protocol version {theirs}, this controller {OURS}: upgrade {upgrade} to a release"
        )
