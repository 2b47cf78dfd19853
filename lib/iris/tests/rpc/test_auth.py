import os
from pathlib import Path

import pytest

from iris.rpc import endpoints_pb2
from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import (
    METHODS_ALLOWED,
    Principal,
    PrincipalKind,
    Unauthenticated,
    check_method,
    load_or_create_secret,
    make_token,
    verify_token,
)
from rigging.errors import Denied, MarinError

SECRET = b"s" * 32
ALL_METHODS = [
    f"/{service.full_name}/{method.name}"
    for described in (pb.DESCRIPTOR, endpoints_pb2.DESCRIPTOR)
    for service in described.services_by_name.values()
    for method in service.methods
]
CALLERS = {
    PrincipalKind.USER: Principal(PrincipalKind.USER, "ann"),
    PrincipalKind.WORKER: Principal(PrincipalKind.WORKER, "w1"),
    PrincipalKind.JOB: Principal(PrincipalKind.JOB, "/ann/train"),
}


def expected(kind: PrincipalKind, method: str) -> bool:
    service, name = method.removeprefix("/iris.v1.").split("/")
    if kind is PrincipalKind.WORKER:
        return service == "WorkerService" or name == "FetchBlobs"
    if kind is PrincipalKind.JOB:
        return service in ("JobService", "BlobService", "EndpointService")
    return service != "WorkerService"


@pytest.mark.parametrize("method", ALL_METHODS)
@pytest.mark.parametrize("kind", list(PrincipalKind))
def test_every_kind_of_caller_may_call_its_methods_and_no_others(kind: PrincipalKind, method: str) -> None:
    if expected(kind, method):
        check_method(CALLERS[kind], method)
    else:
        with pytest.raises(Denied, match=f"{CALLERS[kind]} may not call {method.removeprefix('/iris.v1.')}"):
            check_method(CALLERS[kind], method)


def test_the_table_names_only_methods_that_exist() -> None:
    assert set().union(*METHODS_ALLOWED.values()) == set(ALL_METHODS)


@pytest.mark.parametrize("caller", CALLERS.values(), ids=str)
def test_a_token_names_its_caller(caller: Principal) -> None:
    assert verify_token(SECRET, make_token(SECRET, caller.kind, caller.name)) == caller


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", "malformed"),
        ("u:ann", "malformed"),
        ("x:ann:00", "malformed"),
        ("u::00", "malformed"),
        (make_token(b"t" * 32, PrincipalKind.USER, "ann"), "token of user ann was not made by this cluster"),
        (make_token(SECRET, PrincipalKind.WORKER, "ann").replace("w:", "u:"), "user ann was not made"),
        (make_token(SECRET, PrincipalKind.JOB, "/ann/a").replace("/ann/a", "/bob/a"), "job /bob/a was not made"),
    ],
)
def test_a_token_that_was_not_made_here_is_refused(token: str, reason: str) -> None:
    with pytest.raises(Unauthenticated, match=reason):
        verify_token(SECRET, token)


def test_a_job_submits_only_below_itself() -> None:
    job = CALLERS[PrincipalKind.JOB]
    job.check_submit("/ann/train/child")
    for other in ("/ann/train", "/ann/training", "/ann/other", "/bob/x"):
        with pytest.raises(Denied, match="only jobs below itself"):
            job.check_submit(other)
    CALLERS[PrincipalKind.USER].check_submit("/bob/x")


def test_a_job_sees_only_its_users_jobs() -> None:
    job = CALLERS[PrincipalKind.JOB]
    for mine in ("/ann", "/ann/other", "/ann/train/child/0"):
        job.check_access(mine)
    for other in ("", "/annabel/x", "/bob/x"):
        with pytest.raises(Denied, match="only jobs of its own user"):
            job.check_access(other)


def test_the_secret_is_made_once_and_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        secret = load_or_create_secret(tmp_path / "secret")
    finally:
        os.umask(old)
    assert len(secret) == 32
    assert load_or_create_secret(tmp_path / "secret") == secret
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_a_secret_that_others_can_read_or_that_is_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    load_or_create_secret(path)
    path.chmod(0o640)
    with pytest.raises(MarinError, match="others can read it"):
        load_or_create_secret(path)
    path.chmod(0o600)
    path.write_text("abc")
    with pytest.raises(MarinError, match="is damaged"):
        load_or_create_secret(path)
