"""The batch script's program: run a job's attempts on its node, and store how it ended.

usage: python -m fray.backends.slurm.runner GROUP      (GROUP is the folder of the job's group)

Failures are retried here, in the same allocation. Slurm starts this program anew after a preemption, after a lost node,
and when this program asks for it before the time limit.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from fray.backends.common import child, lifeline
from fray.backends.common.processes import KILL_AFTER_SECONDS, ProcessTree, describe_exit, with_own_python
from fray.backends.slurm.folder import End, Group, Spec
from fray.context import CLIENT_ENV
from fray.output.own_output import OUTPUT_ENV
from fray.replica import REPLICA_ENV
from fray.types import JobStatus

NAME_ENV: Final = "FRAY_SLURM_JOB"
"""In jobs: their full name, the prefix of their children's names."""
WARNING_SECONDS: Final = 30
"""Seconds before the time limit at which Slurm sends SIGUSR1."""
_GRACE_SECONDS: Final = 20.0
_TAIL_BYTES: Final = 8192
_TAIL_LINES: Final = 20
_LONGEST_GRACE: Final = 3600.0
_TASK: Final = str(Path(__file__).with_name("task.py"))


class LogFile:
    """The log of one replica in one attempt."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> int:
        """Return a descriptor for appending. The caller closes it."""
        return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def tail(self, lines: int) -> str:
        """Return the last lines."""
        try:
            data = self._path.read_bytes()[-_TAIL_BYTES:]
        except FileNotFoundError:
            return ""
        return "\n".join(data.decode(errors="replace").splitlines()[-lines:])


class _Fork:
    """The leader of a forked group, which is a child of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def await_end(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def reap(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def fork_call(payload: str, result: str, env: Mapping[str, str], cwd: str, log: LogFile) -> ProcessTree:
    """Run a callable in a fork of this process, which is quicker than a new interpreter.

    Args:
        payload: The file with the callable.
        result: The path for its exception.
        env: The complete environment. Variables that Python reads at its start must be those of this process.
        cwd: The working directory.
        log: The file for its stdout and stderr.

    Raises:
        SystemExit: In the fork, when the callable has ended.
    """
    read, write = os.pipe()
    output = log.open()
    handled = (*lifeline.FORWARDED, signal.SIGUSR1)
    # A signal that comes while we fork waits until it is known who takes it.
    signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    leader = os.fork()
    if leader != 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
        os.close(read)
        os.close(output)
        return ProcessTree(_Fork(leader), write)
    os.close(write)
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    for number in lifeline.FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    called = os.fork()
    if called != 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
        os._exit(lifeline.keep(called, read))
    os.close(read)
    for number in lifeline.FORWARDED:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
    try:
        os.chdir(cwd)
    except OSError as error:
        os.write(2, f"cannot start in {cwd}: {error}\n".encode())
        os._exit(lifeline.CANNOT_START)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    raise SystemExit(child.main(payload, result))


class Runner:
    """Runs one job of a group.

    Args:
        group: The group.
        index: The job's index in it.
        environ: This process's variables, with Slurm's.
    """

    def __init__(self, group: Group, index: int, environ: Mapping[str, str]) -> None:
        self._group = group
        self._index = index
        self._environ = environ
        self._spec: Spec = group.spec()
        self._tree: ProcessTree | None = None
        self._terminated = False
        self._limit_reached = False

    def run(self) -> int:
        """Run the job to its end, or until Slurm takes the node away. Return the exit code for Slurm."""
        signal.signal(signal.SIGTERM, self._on_terminate)
        signal.signal(signal.SIGUSR1, self._on_limit)
        known = self._group.end(self._index)
        if known is not None:
            return _code_of(known)
        if self._group.is_marked("stop", self._index):
            return self._finish(End(JobStatus.STOPPED))
        self._group.mark("begun", self._index)
        if self._restarts > self._spec.max_retries_preemption:
            reason = f"preempted {self._restarts} times (max_retries_preemption={self._spec.max_retries_preemption})"
            return self._finish(End(JobStatus.FAILED, reason, len(self._group.runs(self._index)), preempted=True))
        while True:
            run = self._new_run()
            end = self._attempt(run)
            if self._group.runs(self._index)[-1] != run:
                print("fray: another start of this job has begun; this one does not count", flush=True)
                return 1
            if end.status is JobStatus.SUCCEEDED:
                return self._finish(end)
            if self._terminated:
                if self._group.is_marked("stop", self._index):
                    return self._finish(End(JobStatus.STOPPED, attempt=end.attempt))
                if self._may_restart:
                    self._group.unmark("begun", self._index)
                return 1
            if self._limit_reached and self._may_restart:
                self._group.unmark("begun", self._index)
                self._requeue()
                time.sleep(_LONGEST_GRACE)  # Slurm ends this process
                return 1
            (run / "failed").touch()
            failures = sum((each / "failed").exists() for each in self._group.runs(self._index))
            if failures > self._spec.max_retries_failure:
                return self._finish(end)
            left = self._spec.max_retries_failure - failures
            print(f"fray: attempt {run.name} failed, {left} retries left: {end.reason}", flush=True)

    @property
    def _restarts(self) -> int:
        return int(self._environ.get("SLURM_RESTART_COUNT") or 0)

    @property
    def _may_restart(self) -> bool:
        return self._restarts < self._spec.max_retries_preemption

    def _new_run(self) -> Path:
        runs = self._group.runs(self._index)
        run = self._group.path / "runs" / str(self._index) / str(int(runs[-1].name) + 1 if runs else 1)
        run.mkdir(parents=True)
        return run

    def _attempt(self, run: Path) -> End:
        code, log = self._execute(run), LogFile(run / "log.0")
        if self._spec.replicas == 1:
            return self._outcome(run, 0, code, log)
        ended: list[tuple[int, int, int]] = []
        for replica in range(self._spec.replicas):
            path = run / f"exit.{replica}"
            if path.exists():
                ended.append((path.stat().st_mtime_ns, replica, int(path.read_text())))
        for _, replica, replica_code in sorted(ended):
            end = self._outcome(run, replica, replica_code, LogFile(run / f"log.{replica}"))
            if end.status is not JobStatus.SUCCEEDED:
                return end
        if len(ended) < self._spec.replicas:
            said = LogFile(run / "srun").tail(_TAIL_LINES)
            return End(JobStatus.FAILED, f"srun ended with {describe_exit(code)}: {said}", int(run.name))
        return End(JobStatus.SUCCEEDED, attempt=int(run.name))

    def _outcome(self, run: Path, replica: int, code: int, log: LogFile) -> End:
        is_call, attempt = self._spec.argv is None, int(run.name)
        if code == 0 and (not is_call or (run / f"error.{replica}.value").exists()):
            return End(JobStatus.SUCCEEDED, attempt=attempt)
        what = "its process" if self._spec.argv is None else repr(self._spec.argv[0])
        reason = f"{what} ended with {describe_exit(code)}"
        if code == 0:
            reason += " before its function returned"
        if tail := log.tail(_TAIL_LINES):
            reason += f"; the end of its output:\n{tail}"
        return End(JobStatus.FAILED, reason, attempt, replica, code)

    def _execute(self, run: Path) -> int:
        """Run all replicas and return the exit code of the only one, or of srun."""
        spec, call = self._spec, self._spec.argv is None
        payload = str(self._group.path / "calls" / str(self._index))
        argv = list(spec.argv or [sys.executable, "-P", "-m", "fray.backends.common.child", payload])
        log = LogFile(run / "log.0")
        if spec.replicas > 1:
            words = ["srun", "--kill-on-bad-exit=1", f"--ntasks={spec.replicas}", "--chdir", spec.cwd]
            # Since 22.05, a step does not inherit it.
            words.append(f"--cpus-per-task={self._environ.get('SLURM_CPUS_PER_TASK') or 1}")
            if gpus := self._environ.get("SLURM_GPUS_PER_TASK"):
                # Without the type, with which Slurm 22.05 gives tasks no GPU of their own.
                words.append(f"--gpus-per-task={gpus.rpartition(':')[2]}")
            argv = [*words, sys.executable, "-I", "-S", _TASK, str(run), "1" if call else "0", *argv]
            log = LogFile(run / "srun")
        elif call:
            argv.append(str(run / "error.0"))
        env = self._environment(run)
        forks = (
            call
            and spec.replicas == 1
            and not any(name.startswith(child.READ_AT_START) for name, _ in env.items() ^ self._environ.items())
        )
        # Inherited: the warning of the time limit ends nobody who does not handle it.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        try:
            if forks:
                self._tree = fork_call(payload, argv[-1], env, spec.cwd, log)
            else:
                self._tree = ProcessTree.start(argv, env, spec.cwd, log, with_lifeline=True)
        except OSError as error:
            print(f"fray: cannot start in {spec.cwd}: {error}", flush=True)
            return 127
        signal.signal(signal.SIGUSR1, self._on_limit)
        if self._terminated:
            self._tree.terminate()
        return self._tree.wait()

    def _environment(self, run: Path) -> dict[str, str]:
        spec = self._spec
        env = {**self._environ, CLIENT_ENV: spec.client, **spec.env, REPLICA_ENV: "0", OUTPUT_ENV: str(run / "log.0")}
        env[NAME_ENV] = spec.names[self._index]
        env["PATH"] = with_own_python(env.get("PATH"))
        if spec.packages:
            env["PYTHONPATH"] = os.pathsep.join(filter(None, [spec.packages, env.get("PYTHONPATH")]))
            env["PATH"] = os.pathsep.join([os.path.join(spec.packages, "bin"), env["PATH"]])
        return env

    def _finish(self, end: End) -> int:
        return _code_of(self._group.set_end(self._index, end))

    def _on_terminate(self, *_: Any) -> None:
        self._terminated = True
        stopped = self._group.is_marked("stop", self._index)
        if self._tree is not None:
            grace = KILL_AFTER_SECONDS if stopped else _LONGEST_GRACE
            # Not in this thread, which may be inside the tree's own lock.
            threading.Thread(target=self._tree.terminate, args=(grace,), daemon=True).start()

    def _on_limit(self, *_: Any) -> None:
        self._limit_reached = True
        if self._tree is not None:
            os.killpg(self._tree.group, signal.SIGUSR1)
        if self._may_restart:
            timer = threading.Timer(_GRACE_SECONDS, self._requeue)
            timer.daemon = True
            timer.start()

    def _requeue(self) -> None:
        print("fray: the time limit is near; requeued", flush=True)
        subprocess.run(["scontrol", "requeue", self._environ["SLURM_JOB_ID"]], check=False)


def _code_of(end: End) -> int:
    if end.status is JobStatus.SUCCEEDED:
        return 0
    return end.exit_code if end.exit_code is not None and 0 < end.exit_code < 256 else 1


def main(folder: str) -> int:
    """Run the job that this process's variables name and return its exit code."""
    index = int(os.environ.get("SLURM_ARRAY_TASK_ID") or 0)
    return Runner(Group(Path(folder)), index, dict(os.environ)).run()


if __name__ == "__main__":
    # As an importable module, not __main__.
    from fray.backends.slurm import runner

    sys.exit(runner.main(sys.argv[1]))
