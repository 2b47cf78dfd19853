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
    place_of,
    probe_attributes,
    probe_resources,
    python_versions,
)

OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_this_machine(tmp_path: Path) -> None:
    found = probe_resources(tmp_path)
    assert 0 < found.cpu_millis <= len(os.sched_getaffinity(0)) * 1000
    assert 0 < found.memory_bytes <= psutil.virtual_memory().total
    attributes = probe_attributes()
    assert (attributes["hostname"], attributes["arch"]) == (socket.gethostname(), platform.machine())
    assert attributes["os"] == "linux"
    assert OWN in attributes[probe.PYTHON_VERSIONS_ATTRIBUTE].split(",")


@pytest.mark.parametrize(
    ("limits", "cpu", "memory"),
    [
        ({}, 3000, 4_096_000),
        ({"cpu.max": "150000 100000", "memory.max": "2000000"}, 1500, 2_000_000),
        ({"cpu.max": "800000 100000", "memory.max": "9000000"}, 3000, 4_096_000),
        ({"cpu.max": "1 100000"}, 1, 4_096_000),
    ],
)
def test_the_tightest_limit_counts(tmp_path: Path, limits: dict[str, str], cpu: int, memory: int) -> None:
    own = tmp_path / "own"
    for name, text in {**limits, "own": "0::/\n"}.items():
        (tmp_path / name).write_text(text)
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


def test_pythons_of_uv_and_of_the_path_are_found_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("chosen/cpython-3.9.1", "data/uv/python/cpython-3.100.1", ".local/share/uv/python/cpython-3.101.1"):
        (tmp_path / f"{place}-linux").mkdir(parents=True)
    for place in ("chosen/pypy-3.8.1-linux", "chosen/cpython-next", "bin"):
        (tmp_path / place).mkdir()
    for name in ("python3.102", "python3", "python3.77-config"):
        (tmp_path / "bin" / name).touch()
    assert python_versions({"PATH": f"{tmp_path}/bin"})[-1] == "3.102"
    monkeypatch.setattr(probe, "python_programs", lambda request, path: [])
    chosen, data = {"UV_PYTHON_INSTALL_DIR": f"{tmp_path}/chosen"}, {"XDG_DATA_HOME": f"{tmp_path}/data"}
    home = {"HOME": str(tmp_path)}
    assert python_versions({**chosen, **data, **home}) == ["3.9", OWN]
    assert python_versions({**data, **home}) == [OWN, "3.100"]
    assert python_versions(home) == [OWN, "3.101"]


def test_a_place_is_one_work_directory_in_one_boot(tmp_path: Path) -> None:
    for name in ("original", "copy"):
        (tmp_path / name).mkdir()
    boots = [tmp_path / "boot", tmp_path / "next"]
    for boot in boots:
        boot.write_text(f"{boot.name}\n")
    places = [place_of(tmp_path / name, boot) for name in ("original", "copy") for boot in boots]
    assert len({*places, ""}) == 5
    assert place_of(tmp_path / "original", boots[0]) == places[0]
    assert place_of(tmp_path / "original", tmp_path / "none") == ""
