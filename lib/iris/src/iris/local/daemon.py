"""The processes of a local cluster: `python -m iris.local.daemon controller|worker|host`, for `iris.local.start`.

The controller starts the worker in a separate session, so that the worker and its tasks survive the controller's death.
The next controller finds the worker.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from iris.local.interrupts import leaving_at_interrupt
from iris.local.settings import file_variables, read_settings
from iris.local.start import DEFAULT_IDLE_EXIT_SECONDS, WORKER_TROUBLE, daemon_environment, log_size, open_log
from iris.local.state import WORKER_ID, LocalPaths, held_lock, is_locked, read_record
from iris.local.stop import stop_worker
from iris.local.worker_keeper import WorkerStart
from iris.rpc.daemon import tune_process
from iris.worker.host.environment import hide_own_environment
from rigging.errors import MarinError, Unavailable

_LOCK_PATIENCE: Final = 2.0


class OwnProcess:
    """Setup steps of a process of the cluster."""

    def prepare(self, is_controller: bool, names: Collection[str]) -> None:
        """Set up memory and threads, and hide the variables that tasks must not read.

        Args:
            is_controller: Whether this is the controller's process.
            names: The variables of its cluster file.
        """
        tune_process()
        hide_own_environment(storage=is_controller, names=names)

    def detach(self) -> None:
        """Continue in the background."""
        if os.fork():
            # The caller waits for this process only; the one that stays has no parent that could miss it.
            os._exit(0)

    def be_controller(self, paths: LocalPaths, ready_fd: int, idle_exit_seconds: float, foreground: bool) -> int:
        """Run `run_controller_process`."""
        return run_controller_process(paths, ready_fd, idle_exit_seconds, foreground=foreground)


def main(argv: Sequence[str] | None = None, own: OwnProcess | None = None) -> int:
    """Run one of the processes until it ends; return its exit code."""
    own = own or OwnProcess()
    options = _parser().parse_args(argv)
    paths = LocalPaths(options.state_dir)
    is_controller = options.process == "controller"
    own.prepare(is_controller, file_variables(paths) if is_controller else ())
    if not options.foreground:
        own.detach()
    if options.process == "host":
        from iris.local.fleet.host import run_host_process

        return run_host_process(paths, options.name, Pipe(options.words_fd).say)
    if options.process == "worker":
        return run_worker_process(paths, options.go_fd, Pipe(options.words_fd))
    return own.be_controller(paths, options.ready_fd, options.idle_exit, options.foreground)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m iris.local.daemon")
    parser.add_argument("process", choices=["controller", "worker", "host"])
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--name", default="", help="name of the host of a slice")
    parser.add_argument("--ready-fd", type=int, default=-1, help="descriptor for the message that the cluster is ready")
    parser.add_argument("--go-fd", type=int, default=-1, help="descriptor for the message that the controller listens")
    parser.add_argument(
        "--words-fd", type=int, default=-1, help="descriptor for the reason why the worker does not start"
    )
    parser.add_argument("--idle-exit", type=float, default=DEFAULT_IDLE_EXIT_SECONDS)
    parser.add_argument("--foreground", action="store_true")
    return parser


_STILL: Final = "the worker is stopping its tasks; `iris cluster stop --force` kills them"


class Pipe:
    """Writing end of a pipe for a single line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        if descriptor >= 0:
            os.set_inheritable(descriptor, False)

    def say(self, line: str) -> None:
        """Write the line and close. Has no effect the second time, or without a reader."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            os.write(descriptor, f"{line}\n".encode())
        except BrokenPipeError:
            pass  # the command that started this was interrupted; the cluster stays for the next one
        finally:
            os.close(descriptor)


StartWorker = Callable[[LocalPaths], tuple[Pipe, "subprocess.Popen[bytes]", WorkerStart]]


def run_worker_process(paths: LocalPaths, go_fd: int, words: Pipe) -> int:
    """Run the worker of the local cluster: import everything, wait until the controller listens, then serve.

    Args:
        paths: The files of the local cluster.
        go_fd: Descriptor that receives a line when the controller listens; -1 if it already listens.
        words: The pipe for the reason of a failure.
    """
    import logging

    from iris.rpc.controller_address import ControllerAddress
    from iris.worker.app import WorkerConfig, run_worker
    from rigging.log_setup import configure_logging

    configure_logging(logging.INFO)

    def resolve() -> ControllerAddress:
        record = read_record(paths)
        if record is None:
            raise Unavailable(f"there is no {paths.record}")
        return ControllerAddress(record.address, record.worker_token, str(paths.socket))

    if go_fd >= 0:
        # One line, or the end of file when the controller ended before it listened.
        was_told = os.read(go_fd, 64)
        os.close(go_fd)
        if not was_told and not is_locked(paths.guardian_lock):
            # Nothing runs here. What a former worker left running needs one until the next controller comes.
            logging.getLogger(__name__).info("the controller did not start, and no task is running: exiting")
            return 0
    try:
        return run_worker(WorkerConfig(work_dir=paths.worker_dir, worker_id=WORKER_ID), resolve)
    except (MarinError, OSError) as error:
        why = str(error) if isinstance(error, MarinError) else _description(error, paths)
        words.say(" ".join(why.split()))
        logging.getLogger(__name__).error("the worker exits: %s", why)
        return 1


def _description(error: OSError, paths: LocalPaths) -> str:
    """Return a description of the system's error."""
    return f"{error.filename or paths.worker_dir}: {error.strerror or error}"


def run_controller_process(
    paths: LocalPaths,
    ready_fd: int,
    idle_exit_seconds: float,
    *,
    foreground: bool,
    start_worker: StartWorker | None = None,
    lock_patience: float = _LOCK_PATIENCE,
) -> int:
    """Run the controller of the local cluster, and start its worker; return the exit code.

    Args:
        paths: The files of the local cluster.
        ready_fd: Descriptor for the message that the controller is ready, or why not.
        idle_exit_seconds: Exit after this long without jobs and clients; 0 for never.
        foreground: Stay in the terminal, and stop the worker at the end.
        start_worker: Starts a worker process that waits for a line on the pipe; None for `start_worker_process`.
        lock_patience: How long to wait for a controller that is exiting, in seconds.
    """
    start = start_worker or start_worker_process
    ready = Pipe(ready_fd)
    try:
        with held_lock(paths.controller_lock, timeout=lock_patience):
            has_slices = read_settings(paths).max_hosts > 0
            go, first = Pipe(-1), None
            if not has_slices:
                go, starting, first = start(paths)
            # Imported only now, while the worker's process pays for its own imports.
            from iris.local.controller import serve_local

            if not has_slices:
                starting.wait()
            serve_local(
                paths,
                idle_exit_seconds,
                first_worker=first,
                start_worker=lambda: _restart_worker(paths, start),
                on_listening=lambda: go.say("go"),
                on_ready=lambda: ready.say("ready"),
                on_trouble=lambda trouble: ready.say(WORKER_TROUBLE + trouble),
            )
            if foreground:
                with leaving_at_interrupt(_STILL):
                    stop_worker(paths)
    except MarinError as error:
        print(f"iris controller: {error}", file=sys.stderr, flush=True)
        ready.say("error: " + " ".join(str(error).split()))
        return 1
    return 0


def _restart_worker(paths: LocalPaths, start: StartWorker) -> WorkerStart:
    go, starting, started = start(paths)
    starting.wait()
    go.say("go")
    return started


def start_worker_process(paths: LocalPaths) -> tuple[Pipe, "subprocess.Popen[bytes]", WorkerStart]:
    """Start the worker process, which waits for a line on the returned pipe before it connects."""
    reader, writer = os.pipe()
    words, words_writer = os.pipe()
    with open_log(paths.worker_log) as log:
        start_of_log = log_size(paths.worker_log)
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "iris.local.daemon", "worker"),
                *("--state-dir", str(paths.root), "--go-fd", str(reader), "--words-fd", str(words_writer)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(reader, words_writer),
            start_new_session=True,
            cwd=paths.root,
            env=daemon_environment(os.environ, paths),
        )
    os.close(reader)
    os.close(words_writer)
    return Pipe(writer), process, WorkerStart(words, start_of_log)


if __name__ == "__main__":
    sys.exit(main())
