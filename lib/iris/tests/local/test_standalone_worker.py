"""A worker's start by hand: what it needs, what it keeps, and what it never sends."""

import errno
import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from iris.domain.resources import Resources
from iris.local.standalone_worker import (
    WorkerOptions,
    default_work_dir,
    overcommitments,
    parse_attributes,
    parse_port_range,
    start_worker,
)
from iris.tls.pins import JoinTokenText
from iris.worker.connection.credential import (
    FILE_NAME,
    Credential,
    accepted,
    new_credential,
    read_credential,
    write_credential,
)
from iris.worker.paths import WorkPaths
from rigging.errors import Conflict, Denied, InvalidRequest
from rigging.process.file_lock import open_lock_file, try_lock
from support.iris.controller import running_controller

NOWHERE = "10.255.255.1:7077"


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker takes its process over; this one is the tests'."""
    monkeypatch.setattr("iris.local.standalone_worker.hide_own_environment", lambda: None)


def options(place: Path, token: str | None = None, **more: object) -> WorkerOptions:
    file = None
    if token is not None:
        file = place / "join-token"
        file.write_text(token)
    return WorkerOptions(NOWHERE, place / "work", file, **more)  # type: ignore[arg-type]


def test_what_cannot_be_a_workers_start_is_refused_and_leaves_no_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidRequest, match="has no credential yet: give --join-token-file FILE"):
        start_worker(options(tmp_path))
    with pytest.raises(InvalidRequest, match=r"join-token: this is not a join token"):
        start_worker(options(tmp_path, "u:ann:0123"))
    with pytest.raises(InvalidRequest, match=r"cannot read the join token .*: No such file"):
        start_worker(WorkerOptions(NOWHERE, tmp_path / "work", tmp_path / "none"))
    in_the_clear = r"serves without TLS, so nothing is sent to 10\.255\.255\.1:7077.*--insecure"
    with pytest.raises(Denied, match=in_the_clear):
        start_worker(options(tmp_path, JoinTokenText("abcd", "s" * 43).text))
    assert not (tmp_path / "work" / FILE_NAME).exists()
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", Mock(side_effect=full))
        with pytest.raises(InvalidRequest, match=f"cannot keep the worker's credential in {tmp_path}/work: No space"):
            start_worker(options(tmp_path, JoinTokenText("abcd", "s" * 43, "ab" * 32).text))
    write_credential(tmp_path / "work", accepted(new_credential("a", "")))
    with pytest.raises(
        Conflict, match="belongs to the worker 'a': start it under that name, or give 'b' its own --work-dir"
    ):
        start_worker(options(tmp_path, name="b"))


def test_another_name_may_be_tried_where_the_first_was_refused(tmp_path: Path) -> None:
    token = JoinTokenText("abcd", "s" * 43).text
    with running_controller(tmp_path / "state") as controller:
        for name in ("höst", "host"):
            given = replace(options(tmp_path, token, name=name), controller=str(controller.address))
            with pytest.raises((Denied, InvalidRequest)) as refused:
                start_worker(given)
            assert "belongs to" not in str(refused.value)
            kept = read_credential(tmp_path / "work")
            assert kept is not None
            assert (kept.worker_id, kept.joined) == (name, False)


def test_a_credential_is_kept_private_and_whole_and_the_controller_told_a_digest_only(tmp_path: Path) -> None:
    assert read_credential(tmp_path) is None
    made = new_credential("a", "ab" * 32)
    write_credential(tmp_path, made)
    assert read_credential(tmp_path) == made
    place = tmp_path / FILE_NAME
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert made.secret not in repr(made)
    assert made.secret not in repr(made.address("h:1", insecure=False))
    place.chmod(0o644)
    with pytest.raises(Denied, match="has mode 644, so others can read it"):
        read_credential(tmp_path)
    place.chmod(0o600)
    for damage in ("", "[]", json.dumps({"worker_id": "a"})):
        place.write_text(damage)
        with pytest.raises(InvalidRequest, match="is damaged: remove it, and give this worker a new join token"):
            read_credential(tmp_path)
    made = Credential("a", "secret", "")
    assert made.sha256 == "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
    assert made.address("h:1", insecure=True).token == "c:a:secret"


def test_port_ranges_and_attributes_are_checked() -> None:
    assert parse_port_range("20000-20999") == (20_000, 20_999)
    for wrong in ("", "1", "2-1", "0-5", "1-65536", "a-b", "1-2-3"):
        with pytest.raises(InvalidRequest, match="must be FIRST-LAST, both from 1 to 65535"):
            parse_port_range(wrong)
    assert parse_attributes(("zone=a", "x.y=", "note=a=b")) == {"zone": "a", "x.y": "", "note": "a=b"}
    for words in (("zone",), ("=a",), ("a=1", "a=2"), ("1a=b",)):
        with pytest.raises(InvalidRequest, match="must be key=value, each key once"):
            parse_attributes(words)


def test_a_directory_in_which_a_worker_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    descriptor = open_lock_file(WorkPaths(tmp_path / "work").lock)
    assert try_lock(descriptor)
    os.write(descriptor, b"4711\n")
    try:
        with pytest.raises(Conflict, match=r"a worker already runs in .*/work \(process 4711\); stop it first"):
            start_worker(options(tmp_path, JoinTokenText("abcd", "s" * 43, "ab" * 32).text))
    finally:
        os.close(descriptor)
    assert not (tmp_path / "work" / FILE_NAME).exists()


def test_what_the_host_lacks_and_an_open_token_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    has = Resources(4000, 16 << 30, 100 << 30)
    given = WorkerOptions(NOWHERE, Path("/w"), memory_bytes=64 << 30, disk_bytes=100 << 30)
    (warning,) = overcommitments(given, has)
    assert warning.startswith("--memory offers 64 GiB, and this host has 16 GiB: tasks that use what they asked for")
    assert overcommitments(WorkerOptions(NOWHERE, Path("/w")), has) == []
    assert default_work_dir({"XDG_STATE_HOME": "/s"}) == Path("/s/iris/worker")
    assert default_work_dir({"XDG_STATE_HOME": "relative"}).name == "worker"
    assert default_work_dir({}).is_absolute()
    given = options(tmp_path, "no token")
    (tmp_path / "join-token").chmod(0o644)
    with pytest.raises(InvalidRequest, match="holds 2 words"):
        start_worker(given)
    assert f"the token file {tmp_path}/join-token (mode 644): chmod 600 {tmp_path}/join-token" in caplog.text
