from pathlib import Path

import pytest

from rigging.process.control_groups import cgroup_limits


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


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
@pytest.mark.parametrize("quota", [None, "-1 100000", "50000", "50000 0", "50000 x", "1 2 3", "x 100000"])
def test_no_limit(tmp_path: Path, own: str, quota: str | None) -> None:
    if quota is not None:
        write(tmp_path, {"cpu.max": quota, "memory.max": "" if quota == "50000" else str(1 << 60)})
    assert cgroup_limits(tmp_path, own) == (None, None)
    write(tmp_path, {"box/memory.max": str((1 << 60) - 1)})
    assert cgroup_limits(tmp_path, "0::/box") == (None, (1 << 60) - 1), "the largest that a machine may have"
