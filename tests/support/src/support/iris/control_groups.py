"""A fake tree of control groups in a directory, for edge cases. Its files keep written content."""

from pathlib import Path

FILES_V1 = {
    "tasks": "", "cgroup.procs": "", "memory.limit_in_bytes": "-1", "memory.memsw.limit_in_bytes": "-1",
    "memory.usage_in_bytes": "0", "memory.max_usage_in_bytes": "0",
    "memory.oom_control": "oom_kill_disable 0\noom_kill 0\n",
    "memory.stat": "total_inactive_file 0\n", "pids.max": "max", "pids.current": "0", "pids.events": "max 0\n",
    "cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "cpuacct.usage": "0",
}  # fmt: skip
FILES_V2 = {
    "cgroup.procs": "", "cgroup.subtree_control": "", "cgroup.controllers": "cpu memory pids", "memory.max": "max",
    "memory.swap.max": "max", "memory.current": "0", "memory.peak": "0", "memory.events": "oom 0\noom_kill 0\n",
    "memory.stat": "anon 0\ninactive_file 0\n", "pids.max": "max", "pids.current": "0", "pids.events": "max 0\n",
    "cpu.weight": "100", "cpu.max": "max 100000", "cpu.stat": "usage_usec 0\n",
}  # fmt: skip


def make_v1(path: str) -> None:
    _make(path, FILES_V1)


def make_v2(path: str) -> None:
    _make(path, FILES_V2)


def _make(path: str, files: dict[str, str]) -> None:
    Path(path).mkdir()
    for name, text in files.items():
        Path(path, name).write_text(text)
