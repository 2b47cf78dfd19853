"""Tokens of users over real gRPC: what is open ends with the token."""

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

from iris.rpc import access_pb2, endpoints_pb2, endpoints_pb2_grpc, iris_pb2_grpc
from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind
from iris.rpc.protocol import call_metadata
from iris.testing.controller import RunningController, channel_to, running_controller
from iris.testing.users import job_spec


def revoke(admin: Any, token_id: str) -> None:
    admin.stubs.access.RevokeUserToken(access_pb2.RevokeUserTokenRequest(token_id=token_id))


def refusal(call: Any) -> str:
    """What a call is refused with; it has to be for the token."""
    with pytest.raises(grpc.RpcError) as refused:
        call()
    found: Any = refused.value
    assert found.code() is grpc.StatusCode.UNAUTHENTICATED, found
    return str(found.details())


@pytest.fixture
def sent() -> Iterator["SimpleQueue[pb.ClientMessage | None]"]:
    queue: SimpleQueue[pb.ClientMessage | None] = SimpleQueue()
    yield queue
    queue.put(None)


def test_streams_and_waits_end_at_once(
    controller: RunningController, admin: Any, connect: Any, sent: "SimpleQueue[pb.ClientMessage | None]"
) -> None:
    made = admin.cluster.CreateToken(pb.CreateTokenRequest(user="ann"))
    words = f"the token {made.token_id} of user ann was revoked by admin root; an admin makes a new one"
    metadata = call_metadata(made.token)
    with channel_to(controller.address) as channel:
        sent.put(
            pb.ClientMessage(calls=[pb.ClientCall(call_id=1, submit=pb.SubmitJobRequest(spec=job_spec("/ann/a")))])
        )
        session = iris_pb2_grpc.ClientServiceStub(channel).Session(iter(sent.get, None), metadata=metadata)
        assert next(session).replies[0].submitted.job_id == "/ann/a"
        watching = endpoints_pb2.WatchEndpointsRequest(name="/ann/a/e")
        watch = endpoints_pb2_grpc.EndpointServiceStub(channel).Watch(watching, metadata=metadata)
        next(watch)
        jobs = iris_pb2_grpc.JobServiceStub(channel)
        wait = jobs.WaitJobs.future(pb.WaitJobsRequest(job_ids=["/ann/a"], timeout_ms=60_000), metadata=metadata)
        user = connect(controller)  # of another token of the same user
        revoke(admin, made.token_id)
        assert refusal(lambda: next(session)).startswith(words)
        assert refusal(lambda: next(watch)).startswith(words)
        assert refusal(lambda: wait.result(30)).startswith(words)
        assert refusal(lambda: jobs.GetJob(pb.GetJobRequest(job_id="/ann/a"), metadata=metadata)).startswith(words)
    assert user.get("/ann/a").state == pb.JOB_STATE_PENDING


def test_a_signed_token_of_an_earlier_release_is_revoked_too(admin: Any, user: Any) -> None:
    user.submit("/ann/a")
    wait = user.jobs.WaitJobs.future(pb.WaitJobsRequest(job_ids=["/ann/a"], timeout_ms=60_000))
    revoke(admin, "signed-ann")
    assert "the token signed-ann of user ann was revoked" in refusal(lambda: wait.result(30))
    assert "the token signed-ann of user ann was revoked" in refusal(lambda: user.get("/ann/a"))


def test_a_revocation_outlives_the_controller(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path / "state") as controller:
        admin = connect(controller, PrincipalKind.ADMIN, "root")
        made = admin.cluster.CreateToken(pb.CreateTokenRequest(user="ann"))
        assert connect(controller, token=made.token).submit("/ann/a").job_id == "/ann/a"
        revoke(admin, made.token_id)
    with running_controller(tmp_path / "state") as controller:
        assert "was revoked by admin root" in refusal(lambda: connect(controller, token=made.token).get("/ann/a"))
        admin = connect(controller, PrincipalKind.ADMIN, "root")
        (token,) = admin.stubs.access.ListUserTokens(access_pb2.ListUserTokensRequest(user="ann")).tokens
        assert (token.token_id, token.revoked_by) == (made.token_id, "admin root")
