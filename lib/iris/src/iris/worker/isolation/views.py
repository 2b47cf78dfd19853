"""Mount namespaces for tasks: shared files are read-only, or the attempt's writes go to its layer.

The guardian starts tasks and has one thread and two mount namespaces. Tools of the worker run in its original
namespace. In the tasks' namespace shared files are read-only. The guardian stays in the tasks' namespace, so a task
without mounts of its own costs nothing. For an attempt with mounts it copies that namespace, starts the attempt in the
copy, and returns. The kernel removes a namespace with its last process.
"""

import contextlib
import logging
import os
import secrets
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from iris.worker.host.removal import remove_tree
from iris.worker.isolation import syscalls
from iris.worker.isolation.layers import make_layer
from iris.worker.isolation.plan import IsolationMode, Mount

logger = logging.getLogger(__name__)

_PROTECTED: Final = ("blobs", "bundles", "caches", "compiled", "envs", "sites")
_HIDDEN: Final = "trash"
_EMPTY: Final = "empty"
MOST_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class _Ability:
    """The strongest isolation that the host allows."""

    mode: IsolationMode
    options: str = ""
    """Mount options of every overlay."""


_Marks = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class _Kept:
    """A namespace in which the layers of some mounts are mounted, reused by one attempt after another.

    Args:
        marks: Marks of the mounted directories and of the layers.
    """

    namespace: int
    marks: tuple[_Marks, _Marks]
    is_used: bool = True


class ViewFailed(OSError):
    """The kernel refused a mount, which is the host's failure, not the task's."""


class TaskViews:
    """The namespaces of one guardian. Moves the calling process, which must be single-threaded."""

    def __init__(
        self, ability: _Ability, home: int, shared: int, in_user_namespace: bool, most_kept: int = MOST_KEPT
    ) -> None:
        self._most_kept = most_kept
        self.mode = ability.mode
        self.in_user_namespace = in_user_namespace
        """Whether this process must drop capabilities for its children."""
        self._options = ability.options
        self._home = home
        self._shared = shared
        self._kept: dict[tuple[Mount, ...], _Kept] = {}

    def enter(self, mounts: Sequence[Mount]) -> None:
        """Enter the view of one attempt, until `leave`. Raises ViewFailed.

        The working directory is "/" afterwards, and after `leave`.
        """
        try:
            if not self._enter_kept(tuple(mounts)):
                sources = _source_marks(mounts)  # before something else is seen at their places
                syscalls.unshare(syscalls.CLONE_NEWNS)
                at_their_places = [_apply(mount, self._options) for mount in mounts]
                if sources and all(at_their_places):
                    self._keep(tuple(mounts), sources)
        except OSError as error:
            raise ViewFailed(error.errno, f"the host cannot mount the task's files: {error.strerror}") from error

    def enter_view_of(self, pid: int) -> None:
        """Enter the view of a process, until `leave`. Raises OSError if the process has ended."""
        if self.mode is not IsolationMode.COPY:
            namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            try:
                syscalls.setns(namespace, syscalls.CLONE_NEWNS)
            finally:
                os.close(namespace)

    def drop_unused(self) -> bool:
        """Release kept mounts that were not used since the last call; return whether any are left."""
        for mounts, kept in list(self._kept.items()):
            if kept.is_used:
                kept.is_used = False
            else:
                self._drop(mounts)
        return bool(self._kept)

    def _enter_kept(self, mounts: tuple[Mount, ...]) -> bool:
        """Enter a copy of a kept namespace with these mounts and unused layers; return False if there is none."""
        kept = self._kept.get(mounts)
        if kept is None:
            return False
        if kept.marks != (_source_marks(mounts), _marks(_layers(mounts))):
            self._drop(mounts)
            return False
        self._kept[mounts] = self._kept.pop(mounts)  # the one that was used last goes last
        kept.is_used = True
        syscalls.setns(kept.namespace, syscalls.CLONE_NEWNS)
        syscalls.unshare(syscalls.CLONE_NEWNS)
        return True

    def _keep(self, mounts: tuple[Mount, ...], sources: _Marks) -> None:
        """Keep this namespace for attempts with the same mounts, and continue in a copy, so that the task's mounts stay
        private.
        """
        with contextlib.suppress(OSError):  # without descriptors the next one is made anew
            namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            syscalls.unshare(syscalls.CLONE_NEWNS)
            self._kept[mounts] = _Kept(namespace, (sources, _marks(_layers(mounts))))
        if len(self._kept) > self._most_kept:
            self._drop(next(iter(self._kept)))

    def _drop(self, mounts: tuple[Mount, ...]) -> None:
        os.close(self._kept.pop(mounts).namespace)

    def leave(self) -> None:
        """Return to the view of all tasks."""
        if self.mode is IsolationMode.COPY:
            return
        syscalls.setns(self._shared, syscalls.CLONE_NEWNS)

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """Context manager: processes started in it can write shared files. The working directory is "/" inside."""
        if self.mode is IsolationMode.COPY:
            yield
            return
        syscalls.setns(self._home, syscalls.CLONE_NEWNS)
        try:
            yield
        finally:
            self.leave()

    def namespace(self, mounts: Sequence[Mount]) -> int:
        """Return a descriptor of a new namespace with `mounts`. Raises ViewFailed, OSError."""
        try:
            self.enter(mounts)
            return os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            self.leave()

    @contextlib.contextmanager
    def may_enter_namespaces(self) -> Iterator[None]:
        """Context manager: processes started in it may enter namespaces returned by `namespace`."""
        if self.mode is IsolationMode.COPY or not self.in_user_namespace:
            yield
            return
        syscalls.raise_ambient((syscalls.CAP_SYS_ADMIN, syscalls.CAP_SYS_CHROOT))
        try:
            yield
        finally:
            syscalls.clear_ambient()


def no_views() -> TaskViews:
    """Return views for a host that allows no mounts."""
    return TaskViews(_Ability(IsolationMode.COPY), -1, -1, False)


def open_views(work_dir: Path, best: IsolationMode = IsolationMode.OVERLAY, most_kept: int = MOST_KEPT) -> TaskViews:
    """Find the host's strongest isolation, log it, and move this process to the tasks' namespace.

    The working directory is "/" afterwards.

    Args:
        work_dir: The worker's directory, which contains the shared files.
        best: The strongest isolation to try.
        most_kept: Maximum number of namespaces that stay mounted for further attempts.
    """
    ability, reasons = _find_ability(work_dir, best)
    logger.info("isolation between tasks: %s%s", ability.mode, f" ({'; '.join(reasons)})" if reasons else "")
    if ability.mode is IsolationMode.COPY:
        return no_views()
    in_user_namespace = os.geteuid() != 0
    _enter_own_namespace(in_user_namespace)
    home = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    syscalls.unshare(syscalls.CLONE_NEWNS)
    for name in (*_PROTECTED, _HIDDEN):
        (work_dir / name).mkdir(mode=0o700, exist_ok=True)
    empty = work_dir / _EMPTY
    empty.mkdir(mode=0o500, exist_ok=True)
    for path in shared_paths(work_dir):
        syscalls.bind(path, path, read_only=True)
    syscalls.bind(str(empty), str(work_dir / _HIDDEN), read_only=True)
    shared = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    os.chdir("/")
    return TaskViews(ability, home, shared, in_user_namespace, most_kept)


def shared_paths(work_dir: Path) -> list[str]:
    """Return the directories that tasks share read-only: caches, the worker's environment and its packages."""
    found = [str(work_dir / name) for name in _PROTECTED]
    if sys.prefix != sys.base_prefix:
        found.append(sys.prefix)
    else:
        # A system's Python has no directory of its own but these.
        found += dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    for name in ("iris", "rigging"):
        module = sys.modules.get(name)
        for directory in getattr(module, "__path__", ()):
            if not any(os.path.commonpath((directory, path)) == path for path in found):
                found.append(directory)  # an editable installation
    return [path for path in found if os.path.isdir(path)]


def _apply(mount: Mount, options: str) -> bool:
    """Make a mount; return whether it is a layer in its own directory, which is reusable if this attempt writes
    nothing.
    """
    if not mount.layer:
        syscalls.bind(mount.source, mount.target, read_only=mount.source == mount.target)
        return False
    upper, work = make_layer(mount.layer, mount.source)
    lower = ":".join(_escaped(path) for path in (mount.over, mount.source) if path)
    directories = f"lowerdir={lower},upperdir={_escaped(upper)},workdir={_escaped(work)}"
    syscalls.mount("overlay", mount.target, "overlay", 0, f"{directories}{options}")
    return upper == mount.layer


def _sources(mounts: Sequence[Mount]) -> list[str]:
    return [path for mount in mounts for path in (mount.source, mount.over) if path]


def _layers(mounts: Sequence[Mount]) -> list[str]:
    return [mount.layer for mount in mounts]


def _source_marks(mounts: Sequence[Mount]) -> _Marks:
    """Return marks that also change if a directory's entries changed, because a mount keeps showing the old files."""
    try:
        changed = tuple((0, os.stat(path).st_ctime_ns) for path in _sources(mounts))
    except OSError:
        return ()
    return _marks(_sources(mounts)) + changed


def _marks(paths: Sequence[str]) -> _Marks:
    """Return marks that change if a directory was replaced; empty if one does not exist.

    A mounted directory keeps its inode, so no other directory gets the same number.
    """
    try:
        found = [os.stat(path) for path in paths]
    except OSError:
        return ()
    return tuple((status.st_dev, status.st_ino) for status in found)


def _escaped(path: str) -> str:
    for character in ("\\", ",", ":"):
        path = path.replace(character, f"\\{character}")
    return path


def _enter_own_namespace(in_user_namespace: bool) -> None:
    """Leave the host's mount namespace; later mounts on the host still appear here."""
    uid, gid = os.geteuid(), os.getegid()
    if in_user_namespace:
        syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
        # Everybody is who they were, and the only one there is.
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    else:
        syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("", "/", "", syscalls.MS_REC | syscalls.MS_SLAVE)


def _find_ability(work_dir: Path, best: IsolationMode) -> tuple[_Ability, list[str]]:
    """Return the strongest isolation that works on this host, and why no stronger one does."""
    reasons: list[str] = []
    if best is IsolationMode.COPY:
        return _Ability(IsolationMode.COPY), ["stronger isolation is not configured"]
    if best is IsolationMode.OVERLAY:
        # With "redirect_dir" a directory of the bundle can be renamed like any other; only root may have it.
        own = ",userxattr" if os.geteuid() != 0 else ",redirect_dir=on"
        # Without "volatile" the end of an attempt would wait until the whole disk is written out.
        for options in dict.fromkeys((f"{own},volatile", own, own.replace(",redirect_dir=on", ""))):
            reason = _tried(work_dir, partial(_try_overlay, options=options))
            if not reason:
                return _Ability(IsolationMode.OVERLAY, options), reasons
            reasons.append(f"no overlay with options {options!r}: {reason}")
    reason = _tried(work_dir, _try_bind)
    if not reason:
        return _Ability(IsolationMode.BIND), reasons
    return _Ability(IsolationMode.COPY), [*reasons, f"no mounts: {reason}"]


def _tried(work_dir: Path, work: Callable[[Path], None]) -> str:
    """Run `work` in a fork with its own namespace and directory; return the error, empty if it succeeded."""
    place = work_dir / f".probe-{secrets.token_hex(4)}"
    place.mkdir()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _enter_own_namespace(os.geteuid() != 0)
            work(place)
        except BaseException as error:
            os.write(write_end, (str(error) or repr(error)).encode(errors="replace"))
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as answer:
        reason = answer.read().decode(errors="replace")
    os.waitpid(pid, 0)
    remove_tree(str(place))
    return reason


def _try_overlay(place: Path, options: str) -> None:
    """Try the file operations of tasks on this file system. Raises OSError."""
    lower, seen, layer = place / "lower", place / "seen", place / "layer"
    for directory in (lower, lower / "folder", seen):
        directory.mkdir()
    for name in ("changed", "removed", "folder/file"):
        (lower / name).write_text("lower")
    _apply(Mount(str(seen), str(lower), str(layer)), options)
    (seen / "changed").write_text("upper")
    (seen / "removed").unlink()
    shutil.rmtree(seen / "folder")
    (seen / "folder").mkdir()
    if os.listdir(seen / "folder") or (seen / "removed").exists() or (seen / "changed").read_text() != "upper":
        raise OSError("a task's changes are lost")
    if os.listdir(lower / "folder") != ["file"] or (lower / "changed").read_text() != "lower":
        raise OSError("a task's changes reach the shared directory")


def _try_bind(place: Path) -> None:
    syscalls.bind(str(place), str(place), read_only=True)
    try:
        (place / "file").touch()
    except OSError:
        return
    raise OSError("a read-only mount can be written")
