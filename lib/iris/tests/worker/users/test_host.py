"""What a host must have for tasks with uids of their own, and what it says where it has not."""

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iris.worker.users import host
from iris.worker.users.host import check_host, claim, device_groups
from iris.worker.users.identity import TaskIdentity, kill_all_of, run_as
from iris.worker.users.uids import UidRange
from rigging.errors import Conflict, InvalidRequest

RANGE = UidRange(1_900_000_100, 1_900_000_109)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: becoming another user needs root")


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is fit, whatever this one is."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwall", lambda: [SimpleNamespace(pw_name="daemon", pw_uid=1)])
    monkeypatch.setattr(grp, "getgrall", lambda: [SimpleNamespace(gr_name="daemon", gr_gid=1)])
    monkeypatch.setattr(Path, "read_text", lambda path: "         0          0 4294967295\n")
    monkeypatch.setattr(host, "closed_to", lambda identity, paths: "")


def breaks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: dict[str, tuple[Any, str, Callable[..., Any]]] = {
        "root": (os, "geteuid", lambda: 1000),
        "user": (pwd, "getpwall", lambda: [SimpleNamespace(pw_name="eve", pw_uid=RANGE.last)]),
        "group": (grp, "getgrall", lambda: [SimpleNamespace(gr_name="eves", gr_gid=RANGE.first)]),
        "map": (Path, "read_text", lambda path: "0 100000 65536\n"),
        "closed": (host, "closed_to", lambda identity, paths: "/root/x: /root is not accessible to other users"),
    }
    monkeypatch.setattr(*changes[name])


@pytest.mark.parametrize(
    ("lack", "words"),
    [
        ("root", "needs a worker that runs as root"),
        ("user", "the range contains user eve of this host; give another range"),
        ("group", "the range contains group eves of this host"),
        ("map", "this container does not map these ids"),
        ("closed", "cannot read /root/x: /root is not accessible to other users. Keep the work directory"),
    ],
)
@pytest.mark.usefixtures("fit")
def test_a_host_that_is_not_fit_says_why(monkeypatch: pytest.MonkeyPatch, lack: str, words: str) -> None:
    check_host(RANGE, Path("/var/lib/iris-worker"))
    breaks(lack, monkeypatch)
    with pytest.raises(InvalidRequest, match=words):
        check_host(RANGE, Path("/var/lib/iris-worker"))


def test_workers_of_a_host_share_no_uids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_CLAIMS", tmp_path / "claims")
    held = claim(RANGE)
    code = (
        "import sys; from pathlib import Path; from iris.worker.users import host, uids\n"
        "host._CLAIMS = Path(sys.argv[1]); host.claim(uids.parse_uid_range(sys.argv[2]))"
    )

    def other(uids: str) -> str:
        import subprocess
        import sys

        argv = [sys.executable, "-c", code, str(tmp_path / "claims"), uids]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stderr

    assert Conflict.__name__ in other("1900000109-1900000200")
    assert "another worker on this host uses part of the range; give each worker its own" in other(
        "1900000000-1900000100"
    )
    assert other("1900000110-1900000200") == ""
    os.close(held)
    assert other("1900000109-1900000200") == ""


def test_groups_of_devices_are_those_that_may_use_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {
        "gpu0": (0o020660, 44),
        "gpu1": (0o020666, 0),
        "tpu0": (0o020600, 0),
        "tpu1": (0o020660, 0),
        "dir": (0o040755, 7),
    }
    for name in kinds:
        (tmp_path / name).touch()
    stat = os.stat
    monkeypatch.setattr(
        os,
        "stat",
        lambda path, **more: (
            SimpleNamespace(st_mode=kinds[Path(path).name][0], st_gid=kinds[Path(path).name][1])
            if str(path).startswith(str(tmp_path))
            else stat(path, **more)
        ),
    )
    monkeypatch.setattr(
        grp,
        "getgrall",
        lambda: [SimpleNamespace(gr_name=name, gr_gid=gid) for name, gid in (("render", 109), ("sudo", 27))],
    )
    assert device_groups([f"{tmp_path}/*"]) == ((44, 109), [f"{tmp_path}/tpu0", f"{tmp_path}/tpu1"])


@as_root
def test_what_is_closed_to_an_identity_is_named(open_path: Path) -> None:
    (open_path / "open").mkdir(mode=0o755)
    (open_path / "open" / "file").write_text("")
    identity = TaskIdentity(RANGE.first)
    assert host.closed_to(identity, [str(open_path / "open" / "file"), str(open_path / "open" / "not yet")]) == ""
    (open_path / "open").chmod(0o700)
    closed = host.closed_to(identity, [str(open_path / "open" / "file")])
    assert closed == f"{open_path}/open/file: {open_path}/open is not accessible to other users"


@as_root
def test_only_who_has_become_the_uid_kills_all_of_it() -> None:
    assert run_as(TaskIdentity(RANGE.first, (44,)), lambda: f"{os.getresuid()} {os.getgroups()}") == (
        f"({RANGE.first}, {RANGE.first}, {RANGE.first}) [44]"
    )
    child = os.fork()
    if child == 0:
        os.setresuid(RANGE.last, RANGE.last, RANGE.last)
        os.execv("/bin/sleep", ["sleep", "60"])
    while os.stat(f"/proc/{child}").st_uid != RANGE.last:
        pass
    kill_all_of(RANGE.first)
    assert os.waitpid(child, os.WNOHANG) == (0, 0)
    kill_all_of(RANGE.last)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    for uid in (0, -1):
        with pytest.raises(OSError, match=r"this process is not uid|Invalid argument|too"):
            kill_all_of(uid)
