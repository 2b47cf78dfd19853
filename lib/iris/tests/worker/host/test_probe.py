import os
import platform
import socket
import sys
from pathlib import Path

import psutil
import pytest

from iris.worker.host import probe
from iris.worker.host.probe import (
    disk_size,
    free_disk,
    own_oom_counters,
    probe_attributes,
    probe_resources,
    python_versions,
)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_this_machine(tmp_path: Path) -> None:
    found = probe_resources(tmp_path)
    assert 0 < found.cpu_millis <= len(os.sched_getaffinity(0)) * 1000
    assert 0 < found.memory_bytes <= psutil.virtual_memory().total
    assert found.disk_bytes > 0
    assert probe_attributes()["os"] == "linux"


def test_the_pythons_of_this_machine_are_told_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("python3.77", "python3", "python3.77-config"):
        (tmp_path / "bin" / name).write_text("")
    (tmp_path / "uv" / "python" / "cpython-3.78.1-linux-x86_64-gnu").mkdir(parents=True)
    found = python_versions({"PATH": str(tmp_path / "bin"), "XDG_DATA_HOME": str(tmp_path)})
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in found
    assert found[-2:] == ["3.77", "3.78"]


@pytest.mark.parametrize(
    ("limits", "cpu", "memory"),
    [
        ({}, 3000, 4_096_000),
        ({"cpu.max": "150000 100000", "memory.max": "2000000"}, 1500, 2_000_000),
        ({"cpu.max": "800000 100000", "memory.max": "9000000"}, 3000, 4_096_000),
        ({"cpu.max": "1 100000"}, 1, 4_096_000),
    ],
)
def test_the_tightest_of_machine_affinity_and_control_groups_counts(
    tmp_path: Path, limits: dict[str, str], cpu: int, memory: int
) -> None:
    write(tmp_path, limits)
    own = tmp_path / "own"
    own.write_text("0::/\n")
    found = probe_resources(tmp_path, tmp_path, own, cpus=lambda: 3, memory=lambda: 4_096_000)
    assert (found.cpu_millis, found.memory_bytes) == (cpu, memory)


def test_what_is_free_is_offered_and_what_there_is_told(tmp_path: Path) -> None:
    of_disk = os.statvfs(tmp_path)
    total = of_disk.f_blocks * of_disk.f_frsize
    assert disk_size(tmp_path) == {probe.DISK_SIZE_ATTRIBUTE: str(total)}
    # Others write to this disk, too.
    assert abs(free_disk(tmp_path) - of_disk.f_bavail * of_disk.f_frsize) < total / 10
    assert abs(probe_resources(tmp_path).disk_bytes - free_disk(tmp_path)) < total / 10


@pytest.mark.parametrize("text", ["4:memory:/box\n0::/own\n", None])
def test_the_control_groups_of_this_process_are_looked_at_where_there_are_any(tmp_path: Path, text: str | None) -> None:
    own = tmp_path / "cgroup"
    if text is not None:
        own.write_text(text)
    (tmp_path / "fs" / "own").mkdir(parents=True)
    (tmp_path / "fs" / "own" / "cpu.max").write_text("1000 100000")
    names = ["memory/box/memory.oom_control", "own/memory.events"] if text else []
    assert own_oom_counters(tmp_path / "fs", own) == [tmp_path / "fs" / name for name in names]
    assert (probe_resources(tmp_path, tmp_path / "fs", own).cpu_millis == 10) == (text is not None)


def test_what_constraints_can_ask_for() -> None:
    found = probe_attributes()
    assert (found["hostname"], found["arch"]) == (socket.gethostname(), platform.machine())
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in found[probe.PYTHON_VERSIONS_ATTRIBUTE].split(",")


def test_pythons_of_uv_are_found_where_it_keeps_them_and_told_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "python_programs", lambda request, path: [f"{path}/python3.102"] if path else [])
    for place, version in (("chosen", "3.9"), ("data/uv/python", "3.100"), (".local/share/uv/python", "3.101")):
        (tmp_path / place / f"cpython-{version}.1-linux").mkdir(parents=True)
    (tmp_path / "chosen" / "pypy-3.8.1-linux").mkdir()
    (tmp_path / "chosen" / "cpython-next").mkdir()
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    asked = {"UV_PYTHON_INSTALL_DIR": str(tmp_path / "chosen"), "XDG_DATA_HOME": str(tmp_path / "data")}
    assert python_versions({**asked, "HOME": str(tmp_path)}) == ["3.9", own]
    asked.pop("UV_PYTHON_INSTALL_DIR")
    assert python_versions({**asked, "HOME": str(tmp_path)}) == [own, "3.100"]
    assert python_versions({"HOME": str(tmp_path)}) == [own, "3.101"]
    assert python_versions({"PATH": "/bin"}) == [own, "3.102"]
