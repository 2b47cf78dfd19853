"""What the kernel does at the system calls that Python has no functions for; in a process of its own."""

import ctypes
import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from iris.worker.isolation import syscalls

pytestmark = pytest.mark.process

if os.geteuid() != 0:
    pytest.skip("only root may mount without a user namespace", allow_module_level=True)

CALLS = r"""
import ctypes, json, os, subprocess, sys
from iris.worker.isolation import syscalls
os.chdir(sys.argv[1])

def status(pid="self"):
    pairs = (line.split(":\t") for line in open(f"/proc/{pid}/status") if line.startswith("Cap"))
    return {name[3:]: int(value, 16) for name, value in pairs}

def writable(path):
    try:
        open(path + "/written", "w").close()
    except OSError as error:
        return error.errno
    return True

found = {}
before = os.open("/proc/self/ns/mnt", os.O_RDONLY)
syscalls.unshare(syscalls.CLONE_NEWNS)
found["unshared"] = os.readlink("/proc/self/ns/mnt") != os.readlink(f"/proc/self/fd/{before}")
syscalls.mount("", "/", "", syscalls.MS_REC | syscalls.MS_SLAVE)
for name in ("source", "plain", "locked", "lax"):
    os.mkdir(name)
MS = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "strictatime": 1 << 24}
syscalls.mount("tmpfs", "source", "tmpfs", MS["nosuid"] | MS["nodev"] | MS["noexec"], "size=64k,mode=0711")
found["size"] = os.statvfs("source").f_blocks * os.statvfs("source").f_frsize
os.mkdir("source/inner")
syscalls.mount("tmpfs", "source/inner", "tmpfs", MS["noatime"] | MS["nodiratime"])
open("source/inner/deep", "w").close()
syscalls.bind("source", "plain", read_only=False)
syscalls.bind("source", "locked", read_only=True)
found["writable"] = [writable(name) for name in ("plain", "locked")]
found["deep"] = [os.path.exists(f"{name}/inner/deep") for name in ("plain", "locked")]
kept = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME | os.ST_RELATIME
found["kept"] = [os.statvfs("locked").f_flag & kept, os.statvfs("source").f_flag & kept]
syscalls.bind("source/inner", "lax", read_only=True)
found["lax"] = [os.statvfs("lax").f_flag & kept, os.statvfs("source/inner").f_flag & kept]
os.mkdir("strict")
syscalls.mount("tmpfs", "strict", "tmpfs", MS["strictatime"])
found["strict"] = os.statvfs("strict").f_flag & kept
syscalls.bind("strict", "strict", read_only=True)
found["strict_after"] = os.statvfs("strict").f_flag & kept
syscalls.setns(before, syscalls.CLONE_NEWNS)
found["back"] = [os.path.exists("source/inner"), os.getcwd()]
at_first = status()
both = syscalls.CAP_SYS_ADMIN, syscalls.CAP_SYS_CHROOT
syscalls.raise_ambient(both)
raised = status()
found["passed_on"] = [raised["Inh"], raised["Amb"], raised["Eff"] == at_first["Eff"], raised["Prm"] == at_first["Prm"]]
syscalls.clear_ambient()
found["cleared"] = status()["Amb"]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("calls")
    done = subprocess.run([sys.executable, "-c", CALLS, str(place)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_namespace_is_left_and_entered_again(found: Any) -> None:
    assert found["unshared"]
    assert found["back"] == [False, "/"], "what was mounted is in the namespace that was left"


def test_what_is_bound_is_seen_with_all_below_it_and_only_what_is_bound_read_only_cannot_be_written(found: Any) -> None:
    assert found["deep"] == [True, True]
    assert found["size"] == 64 * 1024, "options reach the file system"
    assert found["writable"] == [True, errno.EROFS]


def test_a_remount_keeps_the_flags_of_the_mount(found: Any) -> None:
    # In a user namespace the kernel refuses one that drops any of them.
    assert found["kept"][0] == found["kept"][1]
    assert found["kept"][0] & os.ST_NOEXEC
    assert found["lax"][0] == found["lax"][1]
    assert found["lax"][0] & os.ST_NOATIME
    assert found["strict"] & os.ST_RELATIME == 0


def test_capabilities_are_passed_on_and_taken_back(found: Any) -> None:
    both = 1 << syscalls.CAP_SYS_ADMIN | 1 << syscalls.CAP_SYS_CHROOT
    assert found["passed_on"] == [both, both, True, True], "and this process keeps what it has"
    assert found["cleared"] == 0


def test_a_refusal_names_what_was_mounted_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=f"mount bind on {tmp_path}/none: No such file"):
        syscalls.bind(str(tmp_path), str(tmp_path / "none"), read_only=False)
    with pytest.raises(OSError, match=f"mount no-such-kind on {tmp_path}: No such device"):
        syscalls.mount("x", str(tmp_path), "no-such-kind", 0)
    monkeypatch.setattr(ctypes, "get_errno", lambda: 0)
    with pytest.raises(OSError, match="setns: Invalid argument") as refused:
        syscalls.setns(-1, syscalls.CLONE_NEWNS)
    assert refused.value.errno == errno.EINVAL, "one without a reason is a refusal all the same"
