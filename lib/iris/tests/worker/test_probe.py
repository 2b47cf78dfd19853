import os
import sys
from pathlib import Path

import psutil
import pytest

from iris.worker.probe import cgroup_limits, probe_attributes, probe_resources, python_versions


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


def test_the_tightest_limit_on_the_way_up_holds(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "cpu.max": "max 100000",
            "box/cpu.max": "150000 100000",
            "box/memory.max": "2000000\n",
            "box/inner/cpu.max": "800000 100000",
            "box/inner/memory.max": "max",
        },
    )
    assert cgroup_limits(tmp_path, "0::/box/inner\n") == (1500, 2_000_000)


def test_version_one_of_control_groups(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "cpu/box/cpu.cfs_quota_us": "50000\n",
            "cpu/box/cpu.cfs_period_us": "100000\n",
            "memory/memory.limit_in_bytes": "9223372036854771712\n",
            "memory/box/memory.limit_in_bytes": "3000000\n",
        },
    )
    assert cgroup_limits(tmp_path, "4:memory:/box\n3:cpu,cpuacct:/box\n") == (500, 3_000_000)


@pytest.mark.parametrize("own", ["", "0::/\n", "0::/../../somewhere\n", "nonsense\n"])
def test_no_limit(tmp_path: Path, own: str) -> None:
    assert cgroup_limits(tmp_path, own) == (None, None)


def test_the_pythons_of_this_machine_are_told_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("python3.77", "python3", "python3.77-config"):
        (tmp_path / "bin" / name).write_text("")
    (tmp_path / "uv" / "python" / "cpython-3.78.1-linux-x86_64-gnu").mkdir(parents=True)
    found = python_versions({"PATH": str(tmp_path / "bin"), "XDG_DATA_HOME": str(tmp_path)})
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in found
    assert found[-2:] == ["3.77", "3.78"]
