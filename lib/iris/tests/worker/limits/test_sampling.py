import pytest

from iris.domain.usage import NO_USAGE, Usage
from iris.worker.limits.ending import breach_of, final_usage
from iris.worker.limits.plan import Breach, GroupReading, LimitRequest
from iris.worker.limits.processes import Tally
from iris.worker.limits.sampling import (
    DELETED_S,
    DISK_S,
    DISK_UNLIMITED_S,
    DiskSchedule,
    hurt,
    is_full,
    one_to_end,
    soft_breach,
    soft_line,
    usage_of,
)

ALL = frozenset({"memory", "pids", "cpu", "cpuacct"})
MIB = 1 << 20
OOM = "out of memory"
KILLED = "the kernel killed one of its processes"


class TestUsage:
    def test_what_groups_count_is_taken_from_them_and_the_rest_from_proc(self) -> None:
        reading = GroupReading(cpu_ms=500, memory_bytes=10, processes=3)
        seen = Tally(cpu_ms=400, memory_bytes=20, processes=2)
        assert usage_of(NO_USAGE, reading, None, ALL, 1000).memory_bytes == 10
        mixed = usage_of(NO_USAGE, reading, seen, frozenset({"pids"}), 1000)
        assert (mixed.cpu_ms, mixed.memory_bytes, mixed.processes) == (400, 20, 3)
        assert usage_of(NO_USAGE, None, None, frozenset(), 1000) == Usage(at_ms=1000)

    def test_cpu_of_late_is_what_was_used_since_the_last_look(self) -> None:
        before = Usage(cpu_ms=1000, at_ms=10_000)
        now = usage_of(before, GroupReading(cpu_ms=8500), None, ALL, 15_000)
        assert now.cpu_millis == 1500, "one core and a half"
        assert usage_of(NO_USAGE, GroupReading(cpu_ms=8500), None, ALL, 15_000).cpu_millis == 0
        assert usage_of(before, GroupReading(cpu_ms=500), None, ALL, 15_000).cpu_millis == 0, "clocks may go back"

    def test_peaks_and_processor_time_never_fall(self) -> None:
        seen = Usage(100, 900, 50, 50, 7, 7, 3, 3, 1).later(Usage(90, 0, 20, 0, 5, 0, 1, 0, 2))
        assert seen == Usage(100, 0, 20, 50, 5, 7, 1, 3, 2)

    def test_at_the_end_nothing_is_held_and_the_peak_is_the_highest_of_what_is_known(self) -> None:
        seen = Usage(cpu_ms=100, memory_bytes=50, memory_peak_bytes=60, processes=4, processes_peak=9)
        end = final_usage(seen, GroupReading(cpu_ms=150, memory_peak_bytes=80), 120, 0, 7)
        assert (end.cpu_ms, end.memory_bytes, end.memory_peak_bytes) == (150, 0, 80)
        assert (end.processes, end.processes_peak, end.cpu_millis, end.at_ms) == (0, 9, 0, 7)
        assert final_usage(seen, None, 120, 99, 7).memory_peak_bytes == 99


class TestBreaches:
    LIMITS = LimitRequest(memory_bytes=10 * MIB, disk_bytes=20 * MIB, processes=5)

    def test_what_the_kernel_holds_it_to_is_not_ended_by_a_look(self) -> None:
        usage = Usage(memory_bytes=11 * MIB, processes=6)
        assert soft_breach(self.LIMITS, usage, ALL) is None
        at_most = Usage(memory_bytes=10 * MIB, processes=5, disk_bytes=20 * MIB)
        assert soft_breach(self.LIMITS, at_most, frozenset()) is None
        memory = "out of memory: limit 10 MiB (--memory), used 11 MiB; the attempt was killed"
        assert soft_breach(self.LIMITS, usage, frozenset({"pids"})) == Breach("memory", memory)
        processes = "too many processes: limit 5, used 6; the attempt was killed"
        assert soft_breach(self.LIMITS, usage, frozenset({"memory"})) == Breach("processes", processes)
        where = "in its working directory and TMPDIR"
        disk = f"out of disk: limit 20 MiB (--disk), used 21 MiB {where}; the attempt was killed"
        assert soft_breach(self.LIMITS, Usage(disk_bytes=21 * MIB), ALL) == Breach("disk", disk)

    def test_without_limits_nothing_is_too_much(self) -> None:
        assert soft_breach(LimitRequest(), Usage(10**15, 10**6, 10**15, 0, 10**15, 0, 10**6), frozenset()) is None

    @pytest.mark.parametrize(
        ("limits", "reading", "peak", "breach"),
        [
            (
                LIMITS, GroupReading(oom_kills=2, refused=1), 9 * MIB,
                Breach("memory", f"{OOM}: limit 10 MiB (--memory), peak 9 MiB; the kernel killed 2 of its processes"),
            ),
            (
                LIMITS, GroupReading(refused=4), 0,
                Breach("processes", "too many processes: limit 5; the kernel refused further processes 4 times"),
            ),
            (LIMITS, GroupReading(cpu_ms=10**9), 10**12, None),
            (
                LimitRequest(), GroupReading(oom_kills=1), MIB,
                Breach("memory", f"{OOM}: the host's memory was full, and {KILLED}; peak 1 MiB"),
            ),
        ],
    )  # fmt: skip
    def test_an_end_is_explained_by_the_attempts_own_counters(
        self, limits: LimitRequest, reading: GroupReading, peak: int, breach: Breach | None
    ) -> None:
        assert breach_of(limits, reading, peak) == breach

    def test_one_that_goes_on_hears_of_both(self) -> None:
        both = hurt(self.LIMITS, GroupReading(oom_kills=1, refused=1), 0)
        assert [item.what for item in both] == ["memory", "processes"]
        assert hurt(self.LIMITS, GroupReading(), 0) == []

    def test_deleted_files_are_looked_for_now_and_then_and_when_much_was_written(self) -> None:
        schedule = DiskSchedule(100 * MIB, 0.0, free_bytes=1000 * MIB)
        assert schedule.is_due_for_deleted(0.0, 1000 * MIB)
        schedule.looked(0.0, 0.0, 40 * MIB, 1000 * MIB)
        schedule.looked_for_deleted(0.0, 30 * MIB)
        assert schedule.deleted_bytes == 30 * MIB
        assert not schedule.is_due_for_deleted(DELETED_S - 1, 971 * MIB)
        assert schedule.is_due_for_deleted(DELETED_S - 1, 969 * MIB), "half of the 60 MiB that are left are gone"
        assert schedule.is_due_for_deleted(DELETED_S, 1000 * MIB)

    def test_the_log_begins_with_the_reason_where_limits_are_soft(self) -> None:
        assert soft_line("") == ""
        assert soft_line("no control groups are mounted").endswith("(no control groups are mounted)")


class TestDisk:
    def test_it_is_looked_at_in_time_and_less_often_when_that_takes_long(self) -> None:
        schedule = DiskSchedule(limit_bytes=100)
        assert schedule.is_due(0.0, 1000)
        schedule.looked(10.0, 0.001, 40, 1000)
        assert not schedule.is_due(10.0 + DISK_S - 0.1, 1000)
        assert schedule.is_due(10.0 + DISK_S, 1000)
        schedule.looked(20.0, 1.0, 40, 1000)
        assert not schedule.is_due(100.0, 1000), "a hundredth of the time at most"
        assert schedule.is_due(120.0, 1000)

    def test_a_disk_that_fills_brings_the_next_look_forward(self) -> None:
        schedule = DiskSchedule(limit_bytes=100)
        schedule.looked(10.0, 0.0, 40, 1000)
        assert not schedule.is_due(10.1, 970), "half of what it may still write"
        assert schedule.is_due(10.1, 969)

    def test_without_a_limit_nobody_is_in_a_hurry(self) -> None:
        schedule = DiskSchedule(limit_bytes=0)
        schedule.looked(10.0, 0.0, 40, 1000)
        assert not schedule.is_due(10.0 + DISK_UNLIMITED_S - 0.1, 0)
        assert schedule.is_due(10.0 + DISK_UNLIMITED_S, 1000)

    @pytest.mark.parametrize(
        ("used", "limits", "free", "victim"),
        [
            ({"a": 90, "b": 2}, {}, 0, ("a", 46)),
            ({"a": 2, "b": 90, "c": 4}, {"c": 10}, 4, ("b", 45)),
            ({"a": 90, "c": 2}, {"c": 10}, 0, ("a", 82)),
            ({"a": 50, "b": 50}, {}, 0, None),
            ({"a": 90}, {}, 0, None),
            ({"c": 90}, {"c": 100}, 0, None),
        ],
        ids=["the largest", "limits are kept free", "one beside a promise", "equal", "alone", "all limited"],
    )
    def test_on_a_full_disk_the_largest_beyond_its_share_ends(
        self, used: dict[str, int], limits: dict[str, int], free: int, victim: tuple[str, int] | None
    ) -> None:
        assert one_to_end(used, limits, free) == victim

    def test_a_disk_is_full_below_a_fiftieth_and_64_mib(self) -> None:
        assert [is_full(free * MIB, size * MIB) for free, size in ((63, 10**6), (64, 10**6), (3, 100), (1, 100))] == [
            True,
            False,
            False,
            True,
        ]
