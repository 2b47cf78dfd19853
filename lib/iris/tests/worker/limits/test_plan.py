import pytest

from iris.domain.resources import Resources
from iris.worker.limits.plan import (
    NO_LIMITS,
    LimitRequest,
    hierarchies_of,
    limits_from,
    most_processes,
    needed,
    requested_limits,
    shares_of,
    writes,
)

HYBRID_OWN = """\
9:name=systemd:/
8:pids:/
4:memory:/box/a
2:cpu,cpuacct:/
0::/
"""
HYBRID_MOUNTS = """\
25 30 0:22 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs rw,mode=755
31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 25 0:28 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
33 25 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
34 25 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
35 25 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
"""


def found(own: str, mounts: str) -> dict[str, tuple[int, frozenset[str]]]:
    return {item.directory: (item.version, item.controllers) for item in hierarchies_of(own, mounts)}


class TestTrees:
    def test_each_mounted_tree_is_found_with_the_group_of_this_process(self) -> None:
        assert found(HYBRID_OWN, HYBRID_MOUNTS) == {
            "/sys/fs/cgroup/cpu,cpuacct": (1, frozenset({"cpu", "cpuacct"})),
            "/sys/fs/cgroup/memory/box/a": (1, frozenset({"memory"})),
            "/sys/fs/cgroup/pids": (1, frozenset({"pids"})),
            "/sys/fs/cgroup/systemd": (1, frozenset({"name=systemd"})),
            "/sys/fs/cgroup/unified": (2, frozenset()),
        }

    def test_only_trees_with_controllers_that_limit_are_used(self) -> None:
        used = needed(hierarchies_of(HYBRID_OWN, HYBRID_MOUNTS))
        assert {item.directory.rpartition("/")[2] for item in used} == {"cpu,cpuacct", "a", "pids"}

    def test_a_container_sees_its_own_part_of_the_tree(self) -> None:
        mounts = "32 25 0:28 /docker/c1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        assert list(found("4:memory:/docker/c1/x\n", mounts)) == ["/sys/fs/cgroup/memory/x"]
        (top,) = hierarchies_of("4:memory:/docker/c1\n", mounts)
        assert (top.directory, top.is_root) == ("/sys/fs/cgroup/memory", True)

    def test_version_2_alone(self) -> None:
        mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
        assert found("0::/system/iris.service\n", mounts) == {"/sys/fs/cgroup/system/iris.service": (2, frozenset())}

    @pytest.mark.parametrize("mounts", ["", "nonsense\n", "1 2 3 - cgroup", "1 2 0:1 / /proc rw - proc proc rw\n"])
    def test_a_host_without_groups_has_no_trees(self, mounts: str) -> None:
        assert hierarchies_of(HYBRID_OWN, mounts) == []

    def test_a_mount_whose_name_has_a_blank(self) -> None:
        mounts = "32 25 0:28 / /my\\040groups rw - cgroup cgroup rw,memory\n"
        assert list(found("4:memory:/\n", mounts)) == ["/my groups"]


LIMITS = LimitRequest(memory_bytes=1000, processes=7, cpu_millis=500)


ALL = frozenset({"memory", "pids", "cpu"})
V1 = {"memory.limit_in_bytes": "1000", "memory.memsw.limit_in_bytes": "1000", "pids.max": "7", "cpu.shares": "512"}
V2 = {"memory.max": "1000", "memory.swap.max": "0", "pids.max": "7", "cpu.weight": "20", "cpu.max": "max 100000"}
NONE_V1 = {"memory.limit_in_bytes": "-1", "memory.memsw.limit_in_bytes": "-1", "pids.max": "max"}
NONE_V2 = {"memory.max": "max", "memory.swap.max": "max", "pids.max": "max"}
QUOTA = LimitRequest(cpu_millis=1500, cpu_quota=True)


class TestWrites:
    @pytest.mark.parametrize(
        ("version", "controllers", "limits", "written"),
        [
            (1, ALL, LIMITS, {**V1, "cpu.cfs_quota_us": "-1"}),
            (2, ALL, LIMITS, V2),
            # A tree gets only what its controllers know.
            (1, {"pids"}, LIMITS, {"pids.max": "7"}),
            (1, {"cpuacct"}, LIMITS, {}),
            # What is not limited is said, too, because groups are used again.
            (1, {"memory", "pids"}, NO_LIMITS, NONE_V1),
            (2, {"memory", "pids"}, NO_LIMITS, NONE_V2),
            (1, {"cpu"}, QUOTA, {"cpu.shares": "1536", "cpu.cfs_quota_us": "150000"}),
            (2, {"cpu"}, QUOTA, {"cpu.weight": "59", "cpu.max": "150000 100000"}),
        ],
    )
    def test_a_group_is_told_all_of_its_limits(
        self, version: int, controllers: set[str], limits: LimitRequest, written: dict[str, str]
    ) -> None:
        found = writes(version, frozenset(controllers), limits)
        assert {name: value.decode() for name, value in found} == written

    @pytest.mark.parametrize(("version", "name"), [(1, "memory.limit_in_bytes"), (2, "memory.max")])
    def test_where_swap_is_not_counted_it_is_not_limited(self, version: int, name: str) -> None:
        assert writes(version, frozenset({"memory"}), LIMITS, has_swap_account=False) == [(name, b"1000")]

    def test_weights_stay_within_the_kernels_bounds(self) -> None:
        assert shares_of(1000) == 1024
        assert shares_of(0) >= 2, "one that asked for none gets a little, too"
        assert shares_of(10**9) == 262_144
        weights = [
            int(dict(writes(2, frozenset({"cpu"}), LimitRequest(cpu_millis=n)))["cpu.weight"]) for n in (0, 10**9)
        ]
        assert weights[0] >= 1
        assert weights[1] == 10_000


class TestRequests:
    ASKED = Resources(cpu_millis=250, memory_bytes=100, disk_bytes=200)

    @pytest.mark.parametrize(
        ("enforced", "limits"),
        [
            ("", LimitRequest(cpu_millis=250)),
            ("memory", LimitRequest(memory_bytes=100, cpu_millis=250)),
            ("disk", LimitRequest(disk_bytes=200, cpu_millis=250)),
            ("memory,disk,cpu", LimitRequest(100, 200, 0, 250, cpu_quota=True)),
            ("something-new", LimitRequest(cpu_millis=250)),
        ],
    )
    def test_a_task_is_held_to_what_was_said_and_to_nothing_else(self, enforced: str, limits: LimitRequest) -> None:
        assert requested_limits(self.ASKED, enforced) == limits

    def test_they_travel_as_words(self) -> None:
        limits = LimitRequest(1, 2, 3, 4, cpu_quota=True)
        assert limits_from(limits.words()) == limits
        assert limits_from({**limits.words(), "of a later release": 5}) == limits
        assert NO_LIMITS.words() == {}
        assert limits_from(None) == limits_from({}) == NO_LIMITS
        with pytest.raises(ValueError, match="below 0"):
            limits_from({"memory_bytes": -1})

    def test_one_attempt_leaves_processes_for_others(self) -> None:
        assert most_processes([1000, 32_768]) == 750
        assert most_processes([4_194_304]) == 32_768
        assert most_processes([]) > 0
