import subprocess
import sys
from collections.abc import Awaitable, Callable

import cloudpickle
import pytest

from iris.client.exceptions import load_exception
from iris.domain.states import TaskState
from iris.worker.testing import FakeController, InProcessWorker, run_command

pytestmark = pytest.mark.e2e

Play = Callable[[Callable[[FakeController, InProcessWorker], Awaitable[None]]], None]
JOB = "/user/job/0:0"


def call(controller: FakeController, function: Callable[..., object], *args: object, bundle: str = "") -> None:
    """Start a one-task job that calls `function`, which the task cannot import."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        payload = controller.add_blob(cloudpickle.dumps((function, args, {})))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    controller.send(run=[run_command(payload=payload, bundle=bundle)])


def fail(word: str) -> None:
    raise ValueError(f"bad {word}")


def leave(code: int) -> None:
    sys.exit(code)


def test_a_function_runs_with_its_arguments(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        call(controller, print, "called", 7)
        (end,) = await controller.until_ended(JOB)
        assert (end.state, controller.output(JOB)) == (TaskState.SUCCEEDED, b"called 7\n")

    play(scenario)


def test_an_exception_is_the_error_and_its_traceback_the_output(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        call(controller, fail, "input")
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.exit_code) == (TaskState.FAILED, 1)
        first, *frames = end.error.split("\n")
        assert first == "ValueError: bad input"
        assert frames[-2].endswith("in fail")
        assert frames[-1] == '    raise ValueError(f"bad {word}")'
        assert b"Traceback (most recent call last)" in controller.output(JOB, stderr=True)

    play(scenario)


def test_the_exception_itself_goes_along_where_it_can(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        call(controller, fail, "input")
        (end,) = await controller.until_ended(JOB)
        again = load_exception(end.exception)
        assert (type(again), str(again)) == (ValueError, "bad input")

    play(scenario)


@pytest.mark.parametrize(("code", "state"), [(0, TaskState.SUCCEEDED), (5, TaskState.FAILED)])
def test_system_exit_is_honoured(play: Play, code: int, state: TaskState) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        call(controller, leave, code)
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.exit_code) == (state, code)

    play(scenario)


def test_it_runs_in_an_environment_without_cloudpickle(play: Play, workspace_files: dict[str, str | bytes]) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        def use_third_party() -> None:
            import importlib.util

            import third

            print(importlib.util.find_spec("grpc"), third.VALUE)

        call(controller, use_third_party, bundle=controller.add_bundle(workspace_files))
        (end,) = await controller.until_ended(JOB, timeout_s=60)
        assert (end.state, controller.output(JOB)) == (TaskState.SUCCEEDED, b"None 3\n"), end.error

    play(scenario)


def test_a_payload_that_cannot_be_loaded_says_so(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[run_command(payload=controller.add_blob(b"no pickle"))])
        (end,) = await controller.until_ended(JOB)
        assert end.exit_code == 1
        assert end.error.startswith(("UnpicklingError", "_pickle.UnpicklingError"))

    play(scenario)


FORKS = """
import os, subprocess, sys, threading
from iris.worker import callable_main
from iris.worker.guardian.orphans import become_subreaper

become_subreaper()
top = os.getpid()
answer, answer_write = os.pipe()
seen, seen_write = os.pipe()
go, go_write = os.pipe()
if (helper := os.fork()) == 0:
    fork = callable_main._sibling_fork() if sys.argv[1] == "sibling" else callable_main._fork_twice
    pid = fork()
    if pid == 0:
        lock, results = threading.RLock(), []
        with lock:
            thread = threading.Thread(target=lambda: results.append(lock.acquire(blocking=False)))
            thread.start()
            thread.join()
        own = threading.get_native_id() == os.getpid()
        child = subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip()
        os.read(go, 1)  # the orphan of two forks has its parent when the process between them was reaped
        os.write(seen_write, repr((os.getppid() == top, own, results, child)).encode())
        os._exit(9)
    os.write(answer_write, str(pid).encode())
    os._exit(0)
os.waitpid(helper, 0)
os.write(go_write, b"!")
pid, status = os.wait()
print(int(os.read(answer, 100)) == pid, os.waitstatus_to_exitcode(status), os.read(seen, 1000).decode())
"""


@pytest.mark.parametrize("way", ["sibling", "orphan"])
def test_forks_of_the_warm_interpreter_are_whole_processes_and_its_parents_children(way: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORKS, way], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("True 9 (True, True, [False], 'child')\n", "")
