"""Tests whether a guardian can create control groups on this host."""

import contextlib
import logging
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from iris.worker.limits.groups import AttemptGroups, Tree, remove_group
from iris.worker.limits.plan import NO_LIMITS, WANTED, Hierarchy, LimitsMode, hierarchies_of, most_processes, needed
from iris.worker.limits.service_group import is_marked
from iris.worker.limits.stale import lock_group, remove_stale

logger = logging.getLogger(__name__)

_RECORD: Final = "guardian.groups"
_WANTED: Final = (("memory", "memory"), ("pids", "processes"), ("cpu", "cpu"))
_OWN: Final = "guardian"
BESIDE: Final = "iris-others"
"""The child group for the processes of a group whose children have controllers."""


@dataclass(frozen=True, slots=True)
class HostFiles:
    """The host's files about control groups and numbers of processes; tests use other paths."""

    own: Path = Path("/proc/self/cgroup")
    mounts: Path = Path("/proc/self/mountinfo")
    process_limits: tuple[Path, ...] = (Path("/proc/sys/kernel/pid_max"), Path("/proc/sys/kernel/threads-max"))


@dataclass(frozen=True, slots=True)
class LimitsAbility:
    """How attempts can be limited on this host.

    Args:
        mode: The requested mode.
        groups: Creates the attempts' groups; None without control groups.
        missing: The reason for each limit that groups do not enforce (memory, processes, cpu).
        processes: Default maximum of processes and threads of an attempt; 0 for no limit.
    """

    mode: LimitsMode
    groups: AttemptGroups | None = None
    missing: tuple[tuple[str, str], ...] = ()
    processes: int = 0

    def __str__(self) -> str:
        """Return the enforcement in words, for operators: "enforced", "off", "soft: cpu, memory"."""
        if self.mode is LimitsMode.OFF:
            return "off"
        return f"soft: {', '.join(name for name, _ in self.missing)}" if self.missing else "enforced"

    def why_soft(self, what: str) -> str:
        """Return why this limit is soft; empty if the kernel enforces it."""
        return next((why for name, why in self.missing if name == what), "")


def open_limits(
    work_dir: Path,
    mode: LimitsMode,
    own_group: Path | None = None,
    processes: int = 0,
    files: HostFiles = HostFiles(),
    make: Callable[[str], None] = os.mkdir,
) -> LimitsAbility:
    """Set up the strictest enforcement of limits that this host allows; remove an earlier guardian's groups.

    Args:
        work_dir: The guardian's work directory.
        mode: AUTO uses groups if possible. SOFT uses none. OFF enforces nothing.
        own_group: The version 2 group that the guardian created for itself, or None.
        processes: Maximum number of processes and threads of an attempt; 0 to derive it from the host.
        files: The host's files.
        make: Creates a group.
    """
    kept = _remove_recorded(work_dir)
    if mode is LimitsMode.OFF:
        return LimitsAbility(mode)
    default = processes or _default_processes(files)
    if mode is LimitsMode.SOFT:
        return LimitsAbility(mode, None, tuple((name, "soft limits are configured") for _, name in _WANTED), default)
    trees, why = _find_trees(work_dir, own_group, files, make)
    controllers = {name for tree in trees for name in tree.hierarchy.controllers}
    missing = tuple((name, why) for controller, name in _WANTED if controller not in controllers)
    if trees:
        lines = [*kept, *(tree.hierarchy.directory for tree in trees)]
        (work_dir / _RECORD).write_text("".join(f"{line}\n" for line in lines))
    for name, reason in missing:
        logger.info("soft limit on %s of tasks: %s", name, reason)
    return LimitsAbility(mode, AttemptGroups(trees, make) if trees else None, missing, default)


def close_limits(work_dir: Path, ability: LimitsAbility) -> None:
    """Remove the groups that `open_limits` created. Call it when no attempt is running."""
    if ability.groups is not None:
        ability.groups.close()
    _remove_recorded(work_dir)


def _find_trees(
    work_dir: Path, own_group: Path | None, files: HostFiles, make: Callable[[str], None]
) -> tuple[list[Tree], str]:
    """Return the trees in which groups can be created, and why the others cannot be used."""
    try:
        hierarchies = needed(hierarchies_of(files.own.read_text(), files.mounts.read_text()))
        hierarchies += _unified(hierarchies_of(files.own.read_text(), files.mounts.read_text()))
    except OSError as error:
        return [], f"this host does not list its control groups ({error})"
    if not hierarchies:
        return [], "no control groups are mounted"
    reasons: dict[str, None] = {}
    trees: list[Tree] = []
    for hierarchy in hierarchies:
        try:
            tree = _open_v1(work_dir, hierarchy, make) if hierarchy.version == 1 else _open_v2(hierarchy, own_group)
            _try(tree, make)
        except OSError as error:
            reasons[f"no control group can be created in {hierarchy.directory}: {error.strerror or error}"] = None
        else:
            trees.append(tree)
    return trees, "; ".join(reasons) or "no tree of control groups has the controller"


def _unified(hierarchies: Sequence[Hierarchy]) -> list[Hierarchy]:
    """Return the version 2 tree if it has controllers; version 1 may have taken them."""
    found = []
    for item in hierarchies:
        if item.version == 2:
            _hand_down(Path(item.directory))
            with contextlib.suppress(OSError):
                there = frozenset(Path(item.directory, "cgroup.controllers").read_text().split())
                found += needed([replace(item, controllers=there)])
    return found


def _name(work_dir: Path) -> str:
    return f"iris-{zlib.crc32(bytes(work_dir)):08x}"


def _open_v1(work_dir: Path, hierarchy: Hierarchy, make: Callable[[str], None]) -> Tree:
    remove_stale(hierarchy.directory)
    base = f"{hierarchy.directory}/{_name(work_dir)}-{os.getpid()}"
    with contextlib.suppress(FileExistsError):
        make(base)
    home = os.open(f"{hierarchy.directory}/tasks", os.O_WRONLY | os.O_CLOEXEC)
    if "cpu" in hierarchy.controllers:
        # Together they weigh as much as this host's cores, not as one process beside them.
        Path(base, "cpu.shares").write_text(str(1024 * (os.cpu_count() or 1)))
    swap = "memory" in hierarchy.controllers and os.path.exists(f"{base}/memory.memsw.limit_in_bytes")
    return Tree(replace(hierarchy, directory=base), home, swap, lock_group(base))


def _open_v2(hierarchy: Hierarchy, own_group: Path | None) -> Tree:
    """Open a version 2 tree. A group with controllers for its children cannot contain processes, so these move to a
    child group. Raises OSError.
    """
    if own_group is None:
        raise OSError("this process cannot have a group of its own")
    parent = own_group.parent
    words = " ".join(f"+{name}" for name in sorted(hierarchy.controllers))
    control = parent / "cgroup.subtree_control"
    if not hierarchy.controllers <= set(control.read_text().split()):
        _move_others(parent, hierarchy.is_root)
        control.write_text(words)
    own = own_group / _OWN
    own.mkdir(exist_ok=True)
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (own_group / "cgroup.subtree_control").write_text(words)
    home = os.open(own / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    return Tree(replace(hierarchy, directory=str(own_group)), home, True)


def _move_others(parent: Path, is_root: bool) -> None:
    """Move the processes of this worker's group (a service's or a container's) into a child group."""
    pids = [int(word) for word in (parent / "cgroup.procs").read_text().split()]
    if not pids:
        return
    if not is_root and not _is_delegated(parent):
        raise OSError(
            f"{parent} has other processes and is not delegated: run the worker as a service with Delegate=yes "
            "(`iris worker install-service`), or in a container"
        )
    beside = parent / BESIDE
    beside.mkdir(exist_ok=True)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            (beside / "cgroup.procs").write_text(f"{pid}\n")


def _is_delegated(group: Path) -> bool:
    """Return whether the group belongs only to this worker: the child group in which systemd starts a service's
    processes.

    The service's own group is not usable: no process can start in it while its child groups have controllers.
    """
    return is_marked(group.parent) or (os.geteuid() != 0 and group.parent.stat().st_uid == os.geteuid())


def _hand_down(group: Path) -> None:
    """Enable the controllers of a service's delegated group in its child group with the service's processes."""
    above = group.parent
    if is_marked(above):
        with contextlib.suppress(OSError):
            there = set((above / "cgroup.controllers").read_text().split()) & WANTED[2]
            (above / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(there)))


def _try(tree: Tree, make: Callable[[str], None]) -> None:
    """Create a group, enter it and leave it. Raises OSError, also if the process can enter but not leave."""
    groups = AttemptGroups([tree], make)
    group = groups.take(NO_LIMITS)
    try:
        with groups.inside(group):
            pass
        groups.hold(group)
    finally:
        groups.end(group)
        remove_group(f"{tree.hierarchy.directory}/{group.name}")


def _remove_recorded(work_dir: Path) -> list[str]:
    """Remove the groups that an earlier guardian recorded, and kill their processes; return the remaining groups."""
    record = work_dir / _RECORD
    try:
        lines = record.read_text().splitlines()
    except (OSError, ValueError):
        return []
    record.unlink(missing_ok=True)
    left = []
    for line in dict.fromkeys(lines):
        if os.path.basename(line).startswith(_name(work_dir)) and not remove_group(line, kill=True):
            left.append(line)
    return left


def _default_processes(files: HostFiles) -> int:
    return most_processes([*_numbers(files.process_limits), *_numbers(_pids_files(files))])


def _pids_files(files: HostFiles) -> Sequence[Path]:
    """Return the files with the process limits of this process's own group."""
    with contextlib.suppress(OSError):
        found = hierarchies_of(files.own.read_text(), files.mounts.read_text())
        return [Path(item.directory, "pids.max") for item in found if item.version == 2 or "pids" in item.controllers]
    return []


def _numbers(paths: Sequence[Path]) -> list[int]:
    found: list[int] = []
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            found.append(int(path.read_text()))
    return found
