"""Starts, watches, reads and ends attempts as processes of this host, without threads or helper processes."""

import errno
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from iris.worker.guardian.descriptors import keep_descriptors_private, knowing_its_pipes
from iris.worker.guardian.executables import find_executable, start_error, start_forked
from iris.worker.guardian.joining import spawn_inside
from iris.worker.guardian.reactor import READ, Reactor
from iris.worker.guardian.running_process import CommandProcess, ProcessListener
from iris.worker.guardian.warm_pool import HELPER_SOCKET, WarmPool
from iris.worker.isolation.plan import Mount
from iris.worker.isolation.views import TaskViews, ViewFailed, no_views
from iris.worker.limits.groups import JOIN_VARIABLE, AttemptGroups, Group, GroupsFailed, OverLimit
from iris.worker.limits.plan import MEMORY, Breach, GroupReading
from iris.worker.output.pace import OutputPace
from iris.worker.processes import JoinSpec, ProcessSpec, StartFailed, StartFailure
from iris.worker.strays.orphans import OrphanReaper
from iris.worker.users.identity import kill_all_of

logger = logging.getLogger(__name__)

_LISTEN_LATE_S: Final = 0.01
"""Delay before a process's output is watched. Shorter processes are read only at their end."""
_VIEWS_IDLE_S: Final = 60.0
_SWEEP_AGAIN_S: Final = 0.002
SWEEP_TRIES: Final = 500
_HOSTS_FAULT: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
_DEFAULT_SIGNALS: Final = tuple(map(int, (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM)))


class ProcessRuntime:
    """Starts processes and tracks which owners are live.

    Args:
        reactor: Watches pipes and exits.
        orphans: Finds descendants that left their process group.
        own_cwd: This process's working directory, if nothing in the process depends on it. Commands are then started
            with posix_spawn, which takes half the time of subprocess. Because posix_spawn cannot change directory, this
            process changes to the command's directory until the end of the turn.
        warm: Keep warm interpreters for callables; only in a subreaper with `own_cwd`.
        views: The tasks' views of the file system; None to share this process's. With views `own_cwd` must be "/".
        sweep_tries: Maximum number of sweeps for an ended command's descendants before its end is reported.
        groups: Control groups of commands; None for none.
        pace: Creates the rate limit of each command's output.
    """

    def __init__(
        self,
        reactor: Reactor,
        orphans: OrphanReaper,
        own_cwd: str | None = None,
        warm: bool = False,
        views: TaskViews | None = None,
        sweep_tries: int = SWEEP_TRIES,
        groups: AttemptGroups | None = None,
        pace: Callable[[], OutputPace] = OutputPace,
    ) -> None:
        self._new_pace = pace
        self._groups = groups
        self._sweep_tries = sweep_tries
        self._reactor = reactor
        self._orphans = orphans
        self._own_cwd = own_cwd
        self._views = views or no_views()
        if own_cwd is not None:
            keep_descriptors_private()  # subprocess closes them in the child; posix_spawn cannot
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._processes: dict[str, CommandProcess] = {}
        self._joined: dict[str, str] = {}  # attempts by the commands inside them
        self._uids: dict[str, int] = {}  # by owner, of those that are somebody else
        self._left_uids: set[int] = set()
        self._young: list[CommandProcess] = []
        self._ended: list[CommandProcess] = []
        self._mark = 0
        self._is_away = False  # from `own_cwd`
        self._looks_after_views = False
        self._warm_pool = WarmPool(self) if warm and own_cwd is not None else None

    @property
    def live_count(self) -> int:
        return len(self._processes)

    def start(self, spec: ProcessSpec, listener: ProcessListener) -> CommandProcess:
        """Start `spec` as leader of its own session. Raises StartFailed, or OSError if a resource is exhausted."""
        if spec.join is not None:
            return self._start_inside(spec, spec.join, listener)
        executable = spec.argv[0]
        if "/" not in executable:
            executable = find_executable(executable, spec.env.get("PATH", ""), spec.cwd)
        elif not executable.startswith("/"):
            executable = os.path.join(spec.cwd, executable)  # may be there only in what the task sees
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        try:
            err_read, err_write = os.pipe2(os.O_CLOEXEC)
        except OSError:
            os.close(out_read)
            os.close(out_write)
            raise
        # Only our ends are non-blocking: programs do not expect that of their stdout.
        os.set_blocking(out_read, False)
        os.set_blocking(err_read, False)
        mark = self._mark = self._orphans.expect(spec.owner)
        spec = knowing_its_pipes(spec, out_write, err_write)
        group = None
        try:
            is_apart = spec.dies_with_worker or spec.is_contained
            group = None if self._groups is None or is_apart else self._groups.take(spec.limits)
            pid = self._spawn(executable, spec, out_write, err_write, group)
        except OSError as error:
            os.close(out_read)
            os.close(err_read)
            self._orphans.forget(mark)
            self._end_group(group)
            if isinstance(error, ViewFailed | GroupsFailed):
                raise StartFailed(error.strerror or str(error), why=StartFailure.HOST) from error
            if error.errno in _HOSTS_FAULT:
                raise
            find_executable(spec.argv[0], spec.env.get("PATH", ""), spec.cwd)  # says what is wrong with it
            raise StartFailed(start_error(executable, spec, error)) from error
        finally:
            self._mark = 0
            os.close(out_write)
            os.close(err_write)
        try:
            process = CommandProcess(
                pid, spec.owner, mark, out_read, err_read, listener, self, spec.limits, group, self._new_pace()
            )
        except OSError:  # no descriptor is left
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(out_read)
            os.close(err_read)
            self._end_group(group)
            raise
        if group is not None:
            self._hold(process, group)
        self._track(process)
        if spec.run_as is not None:
            self._uids[spec.owner] = spec.run_as.uid
        if not self._young:
            self._reactor.call_later(_LISTEN_LATE_S, self._listen)
        self._young.append(process)
        return process

    def _start_inside(self, spec: ProcessSpec, join: JoinSpec, listener: ProcessListener) -> CommandProcess:
        target = self._processes.get(join.attempt)
        if target is None:
            raise StartFailed(f"{join.attempt} has ended", why=StartFailure.STOPPED)
        files = [] if target.group is None or self._groups is None else self._groups.join_files(target.group)
        mark = self._orphans.expect(spec.owner)
        self._go_home()
        self._orphans.put_mark_on(mark)
        try:
            pid = spawn_inside(spec, join, target.pid, files, self._views)
        except BaseException:
            self._orphans.forget(mark)
            raise
        finally:
            self._orphans.take_mark_off()
        process = CommandProcess(pid, spec.owner, mark, None, None, listener, self, spec.limits)
        self._joined[spec.owner] = join.attempt
        self._track(process)
        return process

    def _track(self, process: CommandProcess) -> None:
        self._orphans.add_own(process.pid)
        self._processes[process.owner] = process
        self._reactor.watch(process.pid_descriptor, process.check_exit)

    def _listen(self) -> None:
        young, self._young = self._young, []
        for process in young:
            for descriptor, read in process.outputs():
                self._reactor.watch(descriptor, read)

    def sweep(self) -> bool:
        """Reap and kill orphans; return whether no process of an ended owner is left."""
        return self._orphans.sweep(self._processes.keys())

    def close(self) -> None:
        """Release descriptors; running processes continue."""
        self._go_home()
        if self._warm_pool is not None:
            self._warm_pool.close()
        os.close(self._null)
        self._orphans.close()

    def leader_ended(self, process: CommandProcess) -> None:
        """Finish a process whose leader has been reaped, once its descendants are gone; called by the process."""
        self._orphans.remove_own(process.pid)
        self._reactor.unwatch(process.pid_descriptor)
        os.close(process.pid_descriptor)
        del self._processes[process.owner]
        self._joined.pop(process.owner, None)
        for name in [name for name, attempt in self._joined.items() if attempt == process.owner]:
            self._processes[name].kill()
        if process.owner in self._uids:
            self._left_uids.add(self._uids.pop(process.owner))
        if not self._ended:
            self._reactor.call_last(self._finish_ended)  # one look at what is left serves all that end in a turn
        self._ended.append(process)

    def stop_reading(self, descriptor: int) -> None:
        """Stop watching a pipe and close it."""
        self._reactor.unwatch(descriptor)
        os.close(descriptor)

    def pause_reading(self, descriptor: int, seconds: float, resume: Callable[[], bool]) -> None:
        """Stop reading a pipe for some time. If all its writers have exited, the rest is read at the task's end
        instead.

        Args:
            descriptor: Descriptor of the pipe.
            seconds: Duration of the pause.
            resume: Called afterwards; returns whether to read on.
        """

        def again() -> None:
            if resume():
                self._reactor.want(descriptor, READ)

        self._reactor.want(descriptor, 0)
        self._reactor.call_later(seconds, again)

    def _finish_ended(self) -> None:
        ended, self._ended = self._ended, []
        for uid in self._left_uids.difference(self._uids.values()):
            # Its last one: whatever it has left, with whatever parent and marks.
            try:
                kill_all_of(uid)
            except OSError as error:
                logger.warning("processes of uid %d may still be running: %s", uid, error)
        self._left_uids.clear()
        self._finish(ended, self._sweep_tries)

    def _finish(self, ended: Sequence[CommandProcess], tries: int) -> None:
        if not self.sweep():
            if tries:
                self._reactor.call_later(_SWEEP_AGAIN_S, lambda: self._finish(ended, tries - 1))
                return
            owners = ", ".join(process.owner for process in ended)
            logger.warning("%s: some descendants cannot be killed; reporting the end without them", owners)
        for process in ended:
            self._orphans.forget(process.mark)
            process.finish(self._end_group(process.group))

    def _end_group(self, group: Group | None) -> GroupReading | None:
        return None if group is None or self._groups is None else self._groups.end(group)

    def _hold(self, process: CommandProcess, group: Group) -> None:
        """Set the limits of a started command."""
        assert self._groups is not None
        try:
            self._groups.hold(group)
        except OSError as error:
            # Without its limits it must not go on.
            logger.warning("%s is killed: %s", process.owner, error)
            if isinstance(error, OverLimit):
                process.early_breach = Breach(MEMORY, f"out of memory: {error.strerror}")
            process.kill()

    def measure(self, process: CommandProcess) -> GroupReading | None:
        """Return the counters of a command's control groups, or None."""
        return None if process.group is None or self._groups is None else self._groups.read(process.group)

    def group_pids(self, process: CommandProcess) -> list[int]:
        """Return the processes in a command's control groups; empty if it has none."""
        return [] if process.group is None or self._groups is None else self._groups.pids(process.group)

    def owners(self) -> dict[int, str]:
        """Return the owner of each pid with a known owner, without descendants. Commands inside an attempt count as
        its own.
        """
        known = {process.pid: owner for owner, process in self._processes.items()}
        found = self._orphans.owners(self._processes.keys()) | known
        return {pid: self._joined.get(owner, owner) for pid, owner in found.items()}

    def spawn_helper(self, executable: str, argv: tuple[str, ...], env: Mapping[str, str], descriptor: int) -> int:
        self._go_home()
        with self._views.may_enter_namespaces():
            pid = os.posix_spawn(  # without a mark: an orphan of its own belongs to no attempt
                executable,
                argv,
                env,
                file_actions=[
                    *((os.POSIX_SPAWN_DUP2, self._null, number) for number in range(3)),
                    (os.POSIX_SPAWN_DUP2, descriptor, HELPER_SOCKET),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=_DEFAULT_SIGNALS,
            )
        self._orphans.add_own(pid)
        return pid

    def namespace(self, mounts: Sequence[Mount]) -> int | None:
        if not mounts:
            return None
        self._look_after_views()
        return self._views.namespace(mounts)

    def _look_after_views(self) -> None:
        if not self._looks_after_views:
            self._looks_after_views = True
            self._reactor.call_later(_VIEWS_IDLE_S, self._drop_unused_views)

    def _drop_unused_views(self) -> None:
        self._looks_after_views = False
        if self._views.drop_unused():
            self._look_after_views()

    def adopt(self, pid: int) -> None:
        self._orphans.mark(pid, self._mark)
        self._orphans.add_own(pid)

    def watch_helper(self, pid: int, ended: Callable[[], None]) -> None:
        descriptor = os.pidfd_open(pid)

        def reap() -> None:
            if os.waitpid(pid, os.WNOHANG)[0] != pid:
                return
            self._orphans.remove_own(pid)
            self._reactor.unwatch(descriptor)
            os.close(descriptor)
            ended()

        self._reactor.watch(descriptor, reap)

    def call_later(self, seconds: float, work: Callable[[], None]) -> None:
        self._reactor.call_later(seconds, work)

    def _spawn(self, executable: str, spec: ProcessSpec, out: int, err: int, group: Group | None) -> int:
        if self._warm_pool is not None and spec.sharer and spec.run_as is None:
            env = spec.env
            if group is not None and self._groups is not None:
                env = {**env, JOIN_VARIABLE: self._groups.join_words(group)}
            pid = self._warm_pool.start(spec.sharer, executable, spec.argv, env, spec.cwd, out, err, spec.mounts)
            if pid is not None:
                return pid
        if group is None or self._groups is None:
            return self._spawn_here(executable, spec, out, err)
        with self._groups.inside(group):
            return self._spawn_here(executable, spec, out, err)

    def _spawn_here(self, executable: str, spec: ProcessSpec, out: int, err: int) -> int:
        by_fork = self._own_cwd is None or spec.run_as is not None
        spawn = self._spawn_by_subprocess if by_fork else self._spawn_from_own_cwd
        if spec.dies_with_worker:
            # A tool of the worker makes what tasks share.
            with self._views.outside():
                if spec.mounts:
                    self._views.enter(spec.mounts)
                return spawn(executable, spec, out, err)
        if not spec.mounts:
            return spawn(executable, spec, out, err)
        self._look_after_views()
        try:
            self._views.enter(spec.mounts)
            return spawn(executable, spec, out, err)
        finally:
            self._views.leave()

    def _spawn_by_subprocess(self, executable: str, spec: ProcessSpec, out: int, err: int) -> int:
        self._orphans.put_mark_on(self._mark)
        try:
            return start_forked(executable, spec, (self._null, out, err))
        finally:
            self._orphans.take_mark_off()

    def _spawn_from_own_cwd(self, executable: str, spec: ProcessSpec, out: int, err: int) -> int:
        if not self._is_away:
            self._is_away = True
            self._reactor.call_last(self._go_home)
        os.chdir(spec.cwd)
        self._orphans.put_mark_on(self._mark)
        return os.posix_spawn(
            executable,
            spec.argv,
            spec.env,
            file_actions=(
                (os.POSIX_SPAWN_DUP2, self._null, 0),
                (os.POSIX_SPAWN_DUP2, out, 1),
                (os.POSIX_SPAWN_DUP2, err, 2),
            ),
            setsid=True,
            setsigmask=(),
            setsigdef=_DEFAULT_SIGNALS,
        )

    def _go_home(self) -> None:
        """Undo the changes that a start made in this process."""
        self._orphans.take_mark_off()
        if self._is_away and self._own_cwd is not None:
            os.chdir(self._own_cwd)
        self._is_away = False
