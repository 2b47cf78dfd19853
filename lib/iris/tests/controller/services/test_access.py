"""Hosts join a real controller over TLS, and every other way in is refused with words that help."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from iris.client import IrisClient
from iris.client.connection.discovery import cluster_at
from iris.client.errors import ControllerUnreachable
from iris.cluster.types import Entrypoint
from iris.rpc import access_pb2 as pb
from iris.rpc import iris_pb2
from iris.rpc.auth import credential_token, join_bearer
from iris.rpc.logformat import encode
from iris.rpc.protocol import call_metadata
from iris.testing.controller import ControllerStubs, RunningController, running_controller
from iris.testing.users import User
from iris.testing.worker import ScriptedWorker
from iris.tls.certificates import ServerIdentity, ensure_certificates
from iris.tls.pins import JoinTokenText, PinnedToken, parse_join_token, parse_token
from iris.worker.connection.credential import Credential, new_credential
from iris.worker.connection.joining import join_cluster
from rigging.errors import Conflict, Denied


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
    secured: RunningController, credential: Credential, name: str | None = None, instance: str = "first"
) -> ScriptedWorker:
    token = credential_token(credential.worker_id, credential.secret)
    name = credential.worker_id if name is None else name
    ca_pem = secured.config.tls.ca_certificate if secured.config.tls else None
    return ScriptedWorker(secured.address, token, name, instance, ca_pem=ca_pem)


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


def test_a_used_revoked_or_expired_token_is_refused(secured: RunningController, admin: IrisClient) -> None:
    def join(token: JoinTokenText, name: str) -> None:
        join_cluster(str(secured.address), token, new_credential(name, token.ca_sha256), insecure=False)

    used = join_token(admin)
    join(used, "a")
    with pytest.raises(Denied, match=f"the join token {used.token_id} is no longer good: it was used 1 times"):
        join(used, "b")
    revoked = join_token(admin)
    admin.operator.revoke_join_token(revoked.token_id)
    with pytest.raises(Denied, match=f"{revoked.token_id} is no longer good: it was revoked by admin root"):
        join(revoked, "c")
    expired = parse_join_token(admin.operator.create_join_token(lifetime_ms=1)[0])
    with pytest.raises(Denied, match=f"{expired.token_id} is no longer good: it expired"):
        join(expired, "d")
    forged = JoinTokenText(used.token_id, "x" * 43, used.ca_sha256)
    with pytest.raises(Denied, match=f"the join token {used.token_id} was not made by this cluster"):
        join(forged, "e")


def test_a_join_token_is_good_for_nothing_else(secured: RunningController, admin: IrisClient) -> None:
    token = join_token(admin)
    metadata = call_metadata(join_bearer(token.token_id, token.secret))
    assert secured.config.tls is not None
    stubs = ControllerStubs(secured.address, metadata, secured.config.tls.ca_certificate)
    with pytest.raises(grpc.RpcError, match="may not see the cluster"):
        stubs.cluster.Status(iris_pb2.ClusterStatusRequest())
    with pytest.raises(grpc.RpcError, match="may not make join tokens"):
        stubs.access.CreateJoinToken(pb.CreateJoinTokenRequest(lifetime_ms=1000, max_uses=1))
    stubs.close()


def test_a_worker_may_not_take_anothers_name(secured: RunningController, admin: IrisClient) -> None:
    first, second = joined(secured, admin, "w1"), joined(secured, admin, "w2")
    with pytest.raises(Conflict, match="a worker 'w1' has joined already"):
        joined(secured, admin, "w1")
    assert refused(session(secured, second, "w1")) == (
        "worker w2 may not open sessions as 'w1': each may only speak for itself"
    )
    stolen = Credential("w2", first.secret, "")
    assert "the credential shown for worker w2 was not made by this cluster" in refused(session(secured, stolen))


def test_what_a_worker_says_about_anothers_task_changes_nothing(
    secured: RunningController, admin: IrisClient, caplog: pytest.LogCaptureFixture
) -> None:
    assert secured.config.tls is not None
    metadata = call_metadata(secured.user_token)
    stubs = ControllerStubs(secured.address, metadata, secured.config.tls.ca_certificate)
    user = User(stubs)
    with session(secured, joined(secured, admin, "w1")) as owner:
        user.submit("/ann/a")
        owner.wait_for_start("/ann/a/0:0")
        with session(secured, joined(secured, admin, "w2")) as liar:
            liar.append_log("/ann/a/0:0", 0, encode(False, 1, b"a lie"))
            liar.observe("/ann/a/0:0", iris_pb2.TASK_STATE_FAILED, exit_code=1)
            liar.beat(1)
            liar.wait_for_beat_ack(1)
            assert user.get("/ann/a").state != iris_pb2.JOB_STATE_FAILED
            assert "worker w2 sends output of /ann/a/0:0, which is worker w1's: dropped" in caplog.text
        owner.append_log("/ann/a/0:0", 0, encode(False, 1, b"the truth"))
        owner.observe("/ann/a/0:0", iris_pb2.TASK_STATE_SUCCEEDED)
        owner.wait_for_forget("/ann/a/0:0")
    assert user.wait_one("/ann/a").state == iris_pb2.JOB_STATE_SUCCEEDED
    assert user.logs("/ann/a") == [b"the truth"]
    stubs.close()


def test_a_worker_that_is_there_without_a_credential_keeps_its_name(
    secured: RunningController, admin: IrisClient
) -> None:
    assert secured.config.tls is not None
    with (
        ScriptedWorker(secured.address, secured.worker_token("w1"), ca_pem=secured.config.tls.ca_certificate),
        pytest.raises(Conflict, match="a worker 'w1' is connected already"),
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
    target = cluster_at(str(secured.address), token=secured.admin_token, environ={})
    with (
        IrisClient.of(target) as client,
        pytest.raises(ControllerUnreachable, match="speaks TLS only, and the token pins no CA"),
    ):
        client.cluster_status()


def test_a_caller_with_a_pin_says_nothing_to_a_plain_port(identity: ServerIdentity, tmp_path: Path) -> None:
    with running_controller(tmp_path / "plain") as plain:
        text = PinnedToken(plain.admin_token, identity.ca_sha256).text
        target = cluster_at(str(plain.address), token=text, environ={})
        with (
            IrisClient.of(target) as client,
            pytest.raises(Denied, match=r"does not speak TLS.*nothing was sent"),
        ):
            client.cluster_status()


def test_garbage_on_the_port_harms_nobody(secured: RunningController, admin: IrisClient) -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for garbage in (b"\x00" * 4096, b"GET / HTTP/1.1\r\n\r\n", preface, b"\x16\x03\x01\xff\xff"):
        with socket.create_connection((secured.address.host, secured.address.port), 5) as connection:
            connection.sendall(garbage)
    assert admin.cluster_status().version


def test_tokens_of_users_pin_the_authority(secured: RunningController, admin: IrisClient) -> None:
    text = admin.operator.create_token("ann")
    assert parse_token(text).ca_sha256 == secured.config.ca_sha256
    with IrisClient.of(cluster_at(str(secured.address), token=text, environ={})) as ann:
        assert ann.list_jobs() == []


def test_a_user_whose_token_is_revoked_is_told_so_while_it_waits(secured: RunningController, admin: IrisClient) -> None:
    text, other = admin.operator.create_token("ann", "laptop"), admin.operator.create_token("ann")
    token, spare = admin.operator.user_tokens("ann")
    assert (token.note, token.user, spare.note) == ("laptop", "ann", "")
    with IrisClient.of(cluster_at(str(secured.address), token=text, environ={})) as ann, ThreadPoolExecutor(1) as pool:
        job = ann.submit(Entrypoint.from_command("true"), "a")
        waits = pool.submit(job.wait)  # in a session, a stream that stays open
        admin.operator.revoke_user_token(token.token_id)
        words = f"the token {token.token_id} of user ann was revoked by admin root"
        with pytest.raises(Denied, match=words):
            waits.result(30)
        with pytest.raises(Denied, match=words):
            ann.list_jobs()
    with IrisClient.of(cluster_at(str(secured.address), token=other, environ={})) as again:
        assert [found.job_id for found in again.list_jobs()] == ["/ann/a"], "jobs stay, and other tokens are good"
