import os
from pathlib import Path

import pytest

from iris.rpc.auth import (
    Principal,
    PrincipalKind,
    Unauthenticated,
    attempt_token,
    load_or_create_secret,
    make_token,
    user_of_token,
    verify_token,
)
from rigging.errors import MarinError
from support.rigging.power_loss import LossyDisk

SECRET = b"s" * 32
JOB_TOKEN = make_token(SECRET, PrincipalKind.JOB, "/ann/train")
CALLERS = [
    Principal(PrincipalKind.ADMIN, "root"),
    Principal(PrincipalKind.USER, "ann"),
    Principal(PrincipalKind.USER, "ann", token_id="ab12"),
    Principal(PrincipalKind.WORKER, "w1"),
    Principal(PrincipalKind.JOB, "/ann/train"),
]


@pytest.mark.parametrize("caller", CALLERS, ids=str)
def test_a_token_names_its_caller(caller: Principal) -> None:
    token = make_token(SECRET, caller.kind, caller.name, caller.token_id)
    assert verify_token(SECRET, token) == caller
    assert user_of_token(token).partition("#")[0] == (caller.name if caller.kind is PrincipalKind.USER else "")


def test_the_token_of_an_attempt_is_made_from_its_jobs_and_names_both() -> None:
    token = attempt_token(JOB_TOKEN, "/ann/train/3:1")
    caller = verify_token(SECRET, token)
    assert (caller.name, caller.attempt_id, caller.user) == ("/ann/train", "/ann/train/3:1", "ann")


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", "malformed"),
        ("u:ann", "malformed"),
        ("x:ann:00", "malformed"),
        ("u::00", "malformed"),
        (make_token(b"t" * 32, PrincipalKind.USER, "ann"), "token of user ann was not made by this cluster"),
        (make_token(SECRET, PrincipalKind.USER, "ann").replace("u:", "a:"), "admin ann was not made"),
        (make_token(SECRET, PrincipalKind.USER, "ann", "ab12").replace("#ab12", ""), "user ann was not made"),
        (make_token(SECRET, PrincipalKind.USER, "ann", "ab12").replace("ab12", "cd34"), "was not made by this cluster"),
        (make_token(SECRET, PrincipalKind.WORKER, "ann").replace("w:", "u:"), "user ann was not made"),
        (make_token(SECRET, PrincipalKind.JOB, "/ann/a").replace("/ann/a", "/bob/a"), "job /bob/a was not made"),
        (attempt_token(JOB_TOKEN, "/ann/train/0:0").replace("0:0", "0:1"), "job /ann/train/0:1 was not made"),
        (attempt_token(JOB_TOKEN, "/ann/other/0:0"), "job /ann/other/0:0 was not made"),
        # The signature of an attempt is not that of its job.
        (f"j:/ann/train:{attempt_token(JOB_TOKEN, '/ann/train/0:0').rpartition(':')[2]}", "was not made"),
    ],
)
def test_a_token_that_was_not_made_here_is_refused(token: str, reason: str) -> None:
    with pytest.raises(Unauthenticated, match=reason) as refused:
        verify_token(SECRET, token)
    assert token.rpartition(":")[2] == "" or token.rpartition(":")[2] not in str(refused.value)


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


@pytest.mark.parametrize("names_survive", [False, True])
def test_a_secret_that_was_used_is_still_that_secret_after_a_power_failure(tmp_path: Path, names_survive: bool) -> None:
    """Every token, and all that jobs and workers were given, is worth nothing with another."""
    (tmp_path / "disk").mkdir()
    disk = LossyDisk(tmp_path / "disk")
    with disk.recording():
        secret = load_or_create_secret(tmp_path / "disk/secret")
    left = disk.after_power_loss(tmp_path / "left", names_survive=names_survive)
    disk.close()
    assert (left / "secret").exists()
    assert load_or_create_secret(left / "secret") == secret


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
    with pytest.raises(MarinError, match=r"cannot read or create the cluster's secret .*/none/secret: No such file"):
        load_or_create_secret(tmp_path / "none/secret")
