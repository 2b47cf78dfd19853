"""Hosts join a real controller over TLS, tokens are revoked, and every other way in is refused with words that help."""

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from iris.client import IrisClient
from iris.client.connection.connection import Connection
from iris.client.connection.discovery import cluster_at
from iris.client.errors import ControllerUnreachable
from iris.rpc.auth import PrincipalKind, credential_token
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.generated import access_pb2, endpoints_pb2, endpoints_pb2_grpc, iris_pb2_grpc
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.key_proof import public_bytes
from iris.rpc.protocol import call_metadata
from iris.tls.certificates import ServerIdentity, ensure_certificates
from iris.tls.pins import JoinTokenText, PinnedToken, parse_join_token, parse_token
from iris.worker.connection.credential import Credential, new_credential
from iris.worker.connection.joining import join_cluster
from rigging.errors import Conflict
from support.iris.controller import RunningController, channel_to, running_controller
from support.iris.users import job_spec
from support.iris.worker import ScriptedWorker


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> ServerIdentity:
    return ensure_certificates(tmp_path_factory.mktemp("identity"))


@pytest.fixture
def secured(identity: ServerIdentity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningController]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with running_controller(tmp_path / "state", tls=identity) as controller:
        yield controller


@pytest.fixture
def admin(secured: RunningController) -> Iterator[IrisClient]:
    text = PinnedToken(secured.admin_token, secured.config.ca_sha256).text
    with IrisClient.of(cluster_at(str(secured.address), token=text, environ={})) as client:
        yield client


def join_token(admin: IrisClient, uses: int = 1) -> JoinTokenText:
    return parse_join_token(admin.operator.create_join_token(lifetime_ms=60_000, max_uses=uses)[0])


def joined(secured: RunningController, admin: IrisClient, name: str = "w1") -> Credential:
    credential = new_credential(name, secured.config.ca_sha256)
    join_cluster(str(secured.address), join_token(admin), credential, insecure=False)
    return credential


def session(
    secured: RunningController, credential: Credential, name: str | None = None, instance: str = "first", **key: Any
) -> ScriptedWorker:
    token = credential_token(credential.worker_id, credential.secret)
    name = credential.worker_id if name is None else name
    ca_pem = secured.config.tls.ca_certificate if secured.config.tls else None
    return ScriptedWorker(secured.address, token, name, instance, ca_pem=ca_pem, **key)


def refused(worker: ScriptedWorker) -> str:
    with worker:
        worker.wait_for_end()
    assert worker.error is not None
    return str(worker.error.details())


def test_a_host_joins_and_works_over_tls(secured: RunningController, admin: IrisClient) -> None:
    with session(secured, joined(secured, admin)) as worker:
        assert worker.welcome is not None
        assert [found.worker_id for found in admin.cluster_status().workers] == ["w1"]
    (token,) = admin.operator.join_tokens()
    assert (token.uses, token.workers, token.created_by) == (1, ("w1",), "admin root")


def test_a_copied_credential_is_useless_without_its_key(secured: RunningController, admin: IrisClient) -> None:
    credential, key, other = joined(secured, admin), Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    with session(secured, credential) as former:
        assert former.welcome is not None, "a worker of a former release"
    for name in ("first", "again"):
        with session(secured, credential, instance=name, key=key) as worker:
            assert worker.welcome is not None
    assert "not the one that its credential is bound to" in refused(session(secured, credential))
    assert "shows another key than the one" in refused(session(secured, credential, key=other))
    said = refused(session(secured, credential, key=other, shown=public_bytes(key)))
    assert "worker 'w1' has not proved its key" in said


def test_a_worker_that_has_no_credential_keeps_its_name(secured: RunningController, admin: IrisClient) -> None:
    assert secured.config.tls is not None
    with (
        ScriptedWorker(secured.address, secured.worker_token("w1"), ca_pem=secured.config.tls.ca_certificate),
        pytest.raises(Conflict, match="a worker 'w1' is already connected"),
    ):
        joined(secured, admin, "w1")


def test_a_revoked_worker_is_told_and_heard_no_more(secured: RunningController, admin: IrisClient) -> None:
    credential = joined(secured, admin)
    with session(secured, credential) as worker:
        assert admin.operator.revoke_worker("w1", "gone bad")
        worker.wait_for_end()
        assert worker.goodbye is not None
        assert worker.goodbye.exit
        assert worker.goodbye.reason == "its credential was revoked by admin root: gone bad"
    assert "the credential of worker w1 was revoked by admin root" in refused(session(secured, credential))
    assert not admin.operator.revoke_worker("w1")
    joined(secured, admin, "w1")


def test_a_plain_caller_of_a_port_with_tls_is_told_so(secured: RunningController) -> None:
    place = ControllerAddress(str(secured.address), secured.admin_token)
    with (
        IrisClient(Connection(lambda _: place, connect_timeout=0.5)) as client,
        pytest.raises(ControllerUnreachable, match="speaks TLS only, and the token pins no CA"),
    ):
        client.cluster_status()


def test_tokens_of_users_pin_the_authority(secured: RunningController, admin: IrisClient) -> None:
    text = admin.operator.create_token("ann")
    assert parse_token(text).ca_sha256 == secured.config.ca_sha256
    with IrisClient.of(cluster_at(str(secured.address), token=text, environ={})) as ann:
        assert ann.list_jobs() == []


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
    controller: RunningController, connect: Any, sent: "SimpleQueue[pb.ClientMessage | None]"
) -> None:
    admin = connect(controller, PrincipalKind.ADMIN, "root")
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
        admin.stubs.access.RevokeUserToken(access_pb2.RevokeUserTokenRequest(token_id=made.token_id))
        assert refusal(lambda: next(session)).startswith(words)
        assert refusal(lambda: next(watch)).startswith(words)
        assert refusal(lambda: wait.result(30)).startswith(words)
        assert refusal(lambda: jobs.GetJob(pb.GetJobRequest(job_id="/ann/a"), metadata=metadata)).startswith(words)
    assert user.get("/ann/a").state == pb.JOB_STATE_PENDING
    (token,) = admin.stubs.access.ListUserTokens(access_pb2.ListUserTokensRequest(user="ann")).tokens
    assert (token.token_id, token.revoked_by) == (made.token_id, "admin root")
