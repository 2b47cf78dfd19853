"""Groups of attempts: entered for the start, held to limits, read, and used again only when nothing is left in them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from iris.worker.limits.groups import AttemptGroups, Group, GroupsFailed, Tree
from iris.worker.limits.plan import Hierarchy, LimitRequest
from support.iris.control_groups import make_v1, make_v2

LIMITS = LimitRequest(memory_bytes=10_000_000, processes=20, cpu_millis=1000)


class Fake:
    """One tree in a directory."""

    def __init__(self, root: Path, version: int) -> None:
        self.root = root
        make: Callable[[str], None] = make_v1 if version == 1 else make_v2
        make(str(root))
        self.join_file = "tasks" if version == 1 else "cgroup.procs"
        names = {"memory", "pids", "cpu"} | ({"cpuacct"} if version == 1 else set())
        hierarchy = Hierarchy(version, str(root), frozenset(names))
        self.home = os.open(root / self.join_file, os.O_WRONLY)
        self.groups = AttemptGroups([Tree(hierarchy, self.home, True)], make)

    def text(self, group: Group, name: str) -> str:
        return (self.root / group.name / name).read_text()

    def put(self, group: Group, name: str, text: str) -> None:
        (self.root / group.name / name).write_text(text)


@pytest.fixture(params=[1, 2])
def fake(tmp_path: Path, request: pytest.FixtureRequest) -> Fake:
    return Fake(tmp_path / "tree", request.param)


@pytest.fixture
def v1(tmp_path: Path) -> Fake:
    return Fake(tmp_path / "tree", 1)


def test_one_enters_starts_something_comes_home_and_only_then_sets_the_limits(fake: Fake) -> None:
    group = fake.groups.take(LIMITS)
    limit = "memory.limit_in_bytes" if fake.join_file == "tasks" else "memory.max"
    before = fake.text(group, limit)
    with fake.groups.inside(group):
        assert fake.text(group, fake.join_file) == "0", "0 is the process that writes it"
        assert (fake.root / fake.join_file).read_text() == ""
    assert (fake.root / fake.join_file).read_text() == "0"
    assert fake.text(group, limit) == before
    fake.groups.hold(group)
    assert fake.text(group, limit).startswith("10000000")
    assert fake.text(group, "pids.max").startswith("20")
    with pytest.raises(FileNotFoundError), fake.groups.inside(group):
        raise FileNotFoundError("no such program")
    assert (fake.root / fake.join_file).read_text() == "00", "whatever fails inside"


def test_a_group_that_cannot_be_made_or_entered_is_the_hosts_failure(fake: Fake, tmp_path: Path) -> None:
    group = fake.groups.take(LIMITS)
    (fake.root / group.name / fake.join_file).unlink()
    with pytest.raises(GroupsFailed, match="cannot enter its control group"), fake.groups.inside(group):
        pytest.fail("it was not entered")
    (fake.root / str(int(group.name) + 1)).write_text("in the way")
    assert int(fake.groups.take(LIMITS).name) == int(group.name) + 2, "that name is taken"
    fake.root.rename(tmp_path / "gone")
    with pytest.raises(GroupsFailed, match="cannot create its control group"):
        fake.groups.take(LIMITS)


def test_what_the_kernel_counted_is_read(fake: Fake) -> None:
    is_v1 = fake.join_file == "tasks"
    group = fake.groups.take(LIMITS)
    for name, text in (
        ("memory.usage_in_bytes" if is_v1 else "memory.current", "5000\n"),
        ("memory.max_usage_in_bytes" if is_v1 else "memory.peak", "9000\n"),
        ("memory.stat", "total_inactive_file 1000\ninactive_file 1000\n"),
        ("memory.oom_control" if is_v1 else "memory.events", "under_oom 0\noom_kill 2\n"),
        ("pids.current", "4\n"),
        ("pids.events", "max 3\n"),
        ("cpuacct.usage" if is_v1 else "cpu.stat", "7000000\n" if is_v1 else "usage_usec 7000\n"),
    ):
        fake.put(group, name, text)
    now = fake.groups.read(group)
    assert (now.cpu_ms, now.memory_bytes, now.processes, now.oom_kills, now.refused) == (7, 4000, 4, 2, 3)
    end = fake.groups.end(group)
    assert end.memory_peak_bytes == 4000, "what is left when all have ended is only cached"
    assert (end.oom_kills, end.refused, end.cpu_ms) == (2, 3, 7)


def test_a_clean_group_of_version_1_is_used_again_with_its_counters_set_back(v1: Fake) -> None:
    group = v1.groups.take(LIMITS)
    v1.groups.hold(group)
    v1.put(group, "memory.max_usage_in_bytes", "7000")
    v1.groups.end(group)
    again = v1.groups.take(LIMITS)
    assert again is group
    assert v1.text(group, "memory.max_usage_in_bytes") == "0000", "a file of the kernel's is set to 0"
    assert v1.groups.take(LIMITS) is not group


@pytest.mark.parametrize(
    ("version", "name", "text"),
    [
        (1, "cgroup.procs", "123\n"),
        (1, "memory.usage_in_bytes", "50000000"),
        (1, "memory.oom_control", "oom_kill 1\n"),
        (1, "pids.events", "max 1\n"),
        (2, "cgroup.procs", ""),  # its peak and its counts cannot be set back
    ],
)
def test_a_group_in_which_something_is_left_is_nobody_elses(tmp_path: Path, version: int, name: str, text: str) -> None:
    fake = Fake(tmp_path / "tree", version)
    group = fake.groups.take(LIMITS)
    fake.put(group, name, text)
    fake.groups.end(group)
    assert fake.groups.take(LIMITS) is not group


def test_the_limit_of_the_one_before_does_not_hold_while_the_next_one_starts(v1: Fake) -> None:
    small = v1.groups.take(LimitRequest(memory_bytes=4096))
    v1.groups.hold(small)
    v1.groups.end(small)
    large = v1.groups.take(LimitRequest(memory_bytes=1 << 30))
    assert large is small
    assert v1.text(large, "memory.limit_in_bytes").startswith("-1")
    v1.groups.hold(large)
    assert v1.text(large, "memory.limit_in_bytes") == str(1 << 30)
    # A fork of a warm interpreter is told what to write to.
    assert v1.groups.join_words(large).split("\n") == [f"{v1.root}/{large.name}/tasks"]
