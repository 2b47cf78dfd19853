import ipaddress
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from iris.actor.server.server import HOST_ENV
from iris.cli.job.argv import is_own_variable
from iris.worker.host.probe import source_address
from iris.worker.paths import WorkPaths
from iris.worker.prepare.task_env import (
    ACTOR_HOST_VARIABLE,
    DEFAULT_PATH,
    PreparedEnvironment,
    TaskEnvironment,
    base_variables,
    command_line,
    worker_environment,
)
from iris.worker.types import Launch, StartRequest

# Of the block that is kept for documentation: routed like any other address, and nobody's.
ELSEWHERE = "192.0.2.7:4242"


def variables(environment: TaskEnvironment, controller: str, own: Mapping[str, str] | None = None) -> dict[str, str]:
    launch = Launch("/user/job", ("true",), env_vars=own or {})
    return environment.variables(
        StartRequest("/user/job/0:0", "/user/job/0", 0, launch), PreparedEnvironment(), controller, "", {}
    )


def test_actors_of_a_task_listen_where_other_hosts_find_its_worker_and_one_can_listen(tmp_path: Path) -> None:
    asked: list[str] = []

    def own_address(controller: str) -> str:
        asked.append(controller)
        return "" if controller.startswith("127.") else "10.0.0.5"

    environment = TaskEnvironment(WorkPaths(tmp_path), "w1", {}, own_address)
    assert ACTOR_HOST_VARIABLE == HOST_ENV
    assert variables(environment, ELSEWHERE)[HOST_ENV] == "10.0.0.5"
    assert HOST_ENV not in variables(environment, "127.0.0.1:4242")
    assert variables(environment, ELSEWHERE, {HOST_ENV: "10.1.0.5"})[HOST_ENV] == "10.1.0.5"
    assert asked == [ELSEWHERE, "127.0.0.1:4242"]
    for controller in ("127.0.0.1:4242", "localhost:4242", "[::1]:4242", "", "no-port", "host:port"):
        assert source_address(controller) == ""
    found = source_address(ELSEWHERE)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        routed = probe.connect_ex((ELSEWHERE.rpartition(":")[0], 4242)) == 0
    assert bool(found) == routed
    if routed:
        assert not ipaddress.ip_address(found).is_loopback
        with socket.socket() as listener:
            listener.bind((found, 0))


PLAIN = PreparedEnvironment()


def made(
    launch: Launch,
    prepared: PreparedEnvironment = PLAIN,
    base: Mapping[str, str] | None = None,
    index: int = 0,
    **ports: int,
) -> dict[str, str]:
    environment = TaskEnvironment(WorkPaths(Path("/work")), "w1", base or {"PATH": "/bin"})
    job = launch.job_id
    request = StartRequest(f"{job}/{index}:2", f"{job}/{index}", index, launch)
    return environment.variables(request, prepared, "c:1", "/tokens/t", ports, "/slots/7/tmp")


def test_a_task_is_told_who_it_is_and_where_to_find_what() -> None:
    launch = Launch("/u/job", ("true",), extras=("gpu",), pip_packages=("six",), bundle_digest="b1", replicas=4)
    found = made(launch, index=3, http=4711, **{"my-port.2 x": 4712})
    assert {name: value for name, value in found.items() if name.startswith("IRIS_")} == {
        "IRIS_ATTEMPT_ID": "/u/job/3:2",
        "IRIS_BUNDLE_DIGEST": "b1",
        "IRIS_CONTROLLER_ADDRESS": "c:1",
        "IRIS_ERROR_FILE": WorkPaths(Path("/work")).error("/u/job/3:2"),
        "IRIS_LOG_FILE": WorkPaths(Path("/work")).log("/u/job/3:2"),
        "IRIS_EXTRAS": '["gpu"]',
        "IRIS_JOB_ID": "/u/job",
        "IRIS_NUM_TASKS": "4",
        "IRIS_PIP_PACKAGES": '["six"]',
        "IRIS_PORT_HTTP": "4711",
        "IRIS_PORT_MY_PORT_2_X": "4712",
        "IRIS_RUNTIME": found["IRIS_RUNTIME"],
        "IRIS_TASK_ID": "/u/job/3",
        "IRIS_TASK_INDEX": "3",
        "IRIS_TOKEN_FILE": "/tokens/t",
        "IRIS_WORKER_ID": "w1",
        "IRIS_WORK_DIR": "/work",
    }
    assert found["TMPDIR"] == "/slots/7/tmp"
    assert (found["PYTHONUNBUFFERED"], found["PATH"]) == ("1", "/bin")
    assert "VIRTUAL_ENV" not in found
    assert "PYTHONPATH" not in found
    assert {name for name in found if name.startswith("IRIS_")} - {name for name in found if is_own_variable(name)} == {
        *("IRIS_PORT_HTTP", "IRIS_PORT_MY_PORT_2_X")
    }, "what nobody can set is refused where a job is made"
    plain = made(Launch("/u/job", ("true",)))
    assert (plain["IRIS_EXTRAS"], plain["IRIS_PIP_PACKAGES"]) == ("[]", "[]")


def test_the_jobs_own_variables_win_over_the_workers_and_not_over_the_truth() -> None:
    own = {"A": "job", "TMPDIR": "/mine", "IRIS_JOB_ID": "/other/job", "PATH": "/own", "PYTHONPATH": "/lib"}
    prepared = PreparedEnvironment(("/env/bin", "/uv"), ("/bundle/src", "/bundle"), Path("/bundle"), "/env")
    found = made(Launch("/u/job", ("true",), env_vars=own), prepared, {"A": "worker", "B": "worker"})
    assert (found["A"], found["B"], found["TMPDIR"], found["IRIS_JOB_ID"]) == ("job", "worker", "/mine", "/u/job")
    assert found["PATH"] == "/env/bin:/uv:/own"
    assert found["PYTHONPATH"] == "/bundle/src:/bundle:/lib"
    assert (found["VIRTUAL_ENV"], found["IRIS_WORKSPACE_DIR"]) == ("/env", "/bundle")
    assert made(Launch("/u/job", ("true",)), prepared)["PYTHONPATH"] == "/bundle/src:/bundle"


def test_a_callable_is_run_by_the_tasks_own_python_which_is_told_who_pickled_it() -> None:
    command = Launch("/u/job", ("true", "x"))
    assert command_line(command, PreparedEnvironment()) == ("true", "x")
    assert "IRIS_CLOUDPICKLE" not in made(command)
    called = Launch("/u/job", payload_digest="p1")
    program, flag, script, payload = command_line(called, PreparedEnvironment(payload_path="/blobs/p1"))
    assert (program, flag, payload) == ("python", "-P", "/blobs/p1")
    assert Path(script).name == "callable_main.py"
    assert Path(script).is_file()
    found = made(called)
    assert (Path(found["IRIS_CLOUDPICKLE"]) / "__init__.py").is_file()
    assert found["IRIS_PICKLED_BY"] == called.runtime.python


def test_what_tasks_get_of_the_workers_environment_where_nothing_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    found = base_variables({"PATH": "/p", "HOME": "/h", "AWS_SECRET_ACCESS_KEY": "s", "UV_PROJECT": "/p"})
    assert found == {"PATH": "/p", "HOME": "/h"}
    assert base_variables({})["PATH"] == DEFAULT_PATH
    prepared = worker_environment()
    assert (Path(prepared.bin_dirs[0]) / "python").exists()
    monkeypatch.setattr("sys.prefix", "/venv")
    monkeypatch.setattr("sys.base_prefix", "/usr")
    assert worker_environment().virtual_env == "/venv"
    monkeypatch.setattr("sys.base_prefix", "/venv")
    assert worker_environment().virtual_env == ""
