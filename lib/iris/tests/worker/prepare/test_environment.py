"""Environments built by the real uv, from a workspace that needs no network."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from iris.domain.states import FailureKind, TaskState
from iris.rpc import iris_pb2 as pb
from iris.testing.packages import other_python
from iris.testing.worker_fixtures import FakeController, InProcessWorker, run_command
from iris.worker.paths import WorkPaths

pytestmark = pytest.mark.e2e

Files = dict[str, str | bytes]
Play = Callable[[Callable[[FakeController, InProcessWorker], Awaitable[None]]], None]
JOB = "/user/job/0:0"

PROBE = """
import importlib.metadata as m, json, sys, third, till
names = {d.name for d in m.distributions()}
points = [e.value for e in m.entry_points(group="shop.plugins")]
print(json.dumps({"third": third.__file__, "till": till.__file__, "version": m.version("my-till"),
                  "names": sorted(names), "points": points, "prefix": sys.prefix}))
"""


async def run(
    controller: FakeController, *argv: str, job_id: str = "/user/job", bundle: str = "", **environment: object
) -> tuple[pb.Observation, str]:
    """The end and the output of a one-task job."""
    request = run_command(*argv, job_id=job_id, bundle=bundle, environment=pb.Environment(**environment))  # type: ignore[arg-type]
    controller.send(run=[request])
    (end,) = await controller.until_ended(f"{job_id}/0:0", timeout_s=60)
    return end, controller.output(f"{job_id}/0:0").decode()


def without(files: Files, *names: str) -> Files:
    return {name: content for name, content in files.items() if name not in names}


def test_third_party_from_the_environment_own_code_from_the_bundle(play: Play, workspace_files: Files) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        bundle = controller.add_bundle(workspace_files)
        end, output = await run(controller, "python", "-c", PROBE, bundle=bundle)
        assert end.state == TaskState.SUCCEEDED, end.error
        found = json.loads(output)
        assert found["third"].startswith(str(worker.paths.envs))
        assert found["till"].startswith(str(worker.paths.bundles / bundle))
        assert found["prefix"].startswith(str(worker.paths.envs))
        assert (found["version"], found["points"]) == ("2.5", ["till.main:Coins"])
        assert {"my-till", "third"} <= set(found["names"])
        assert not {"turbo", "grpcio", "marin-iris"} & set(found["names"])

    play(scenario)


def test_a_module_and_a_script_of_the_workspace_run(play: Play, workspace_files: Files) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        bundle = controller.add_bundle(workspace_files)
        end, output = await run(controller, "python", "-m", "jobs.hello", bundle=bundle)
        assert (end.state, output) == (TaskState.SUCCEEDED, "hello 3\n")
        end, output = await run(controller, "till", bundle=bundle, job_id="/user/script")
        assert (end.exit_code, output) == (4, "till runs\n")

    play(scenario)


def test_the_second_job_with_the_same_key_builds_nothing(play: Play, workspace_files: Files) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        await run(controller, "true", bundle=controller.add_bundle(workspace_files))
        (environment,) = worker.paths.envs.iterdir()
        built = environment.stat().st_mtime_ns
        changed = {**workspace_files, "jobs/hello.py": "print('changed')\n"}
        end, output = await run(
            controller, "python", "-m", "jobs.hello", bundle=controller.add_bundle(changed), job_id="/user/second"
        )
        assert output == "changed\n", end.error
        assert list(worker.paths.envs.iterdir()) == [environment]
        assert environment.stat().st_mtime_ns == built
        bundle = controller.add_bundle(changed)
        end, _ = await run(controller, "python", "-m", "jobs.hello", bundle=bundle, job_id="/user/third")
        assert TaskState.BUILDING not in controller.states["/user/third/0:0"]

    play(scenario)


def test_attempts_that_start_together_share_one_build(play: Play, workspace_files: Files) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        bundle = controller.add_bundle(workspace_files)
        controller.send(run=[run_command("python", "-c", "import third", bundle=bundle, indexes=range(5))])
        ends = await controller.until_ended(*(f"/user/job/{index}:0" for index in range(5)), timeout_s=60)
        assert {end.state for end in ends} == {TaskState.SUCCEEDED}, ends[0].error
        assert len(list(worker.paths.envs.iterdir())) == 1
        assert controller.states[JOB][0] == TaskState.BUILDING

    play(scenario)


def test_an_extra_of_a_member_is_installed(play: Play, workspace_files: Files) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        bundle = controller.add_bundle(workspace_files)
        end, output = await run(
            controller, "python", "-c", "import turbo; print(turbo.VALUE)", bundle=bundle, extras=["fast"]
        )
        assert output == "fast\n", end.error
        end, _ = await run(controller, "python", "-c", "import turbo", bundle=bundle, job_id="/user/plain")
        assert "No module named 'turbo'" in controller.output("/user/plain/0:0", stderr=True).decode()

    play(scenario)


def test_an_unknown_extra_fails_in_uvs_words_and_names_the_known(play: Play, workspace_files: Files) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        bundle = controller.add_bundle(workspace_files)
        end, _ = await run(controller, "true", bundle=bundle, extras=["fsat"])
        assert (end.state, end.failure) == (TaskState.FAILED, FailureKind.ENVIRONMENT)
        assert "Extra `fsat` is not defined" in end.error.partition("\n")[0], "which is all that lists show"
        assert "extras of this workspace: fast" in end.error
        assert list(worker.paths.envs.iterdir()) == []
        assert "Extra `fsat`" in controller.output(JOB, stderr=True).decode()

    play(scenario)


def test_extras_without_a_lock_are_refused(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        end, _ = await run(controller, "true", extras=["fast"])
        assert end.failure == FailureKind.ENVIRONMENT
        assert "no pyproject.toml with a uv.lock" in end.error

    play(scenario)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"uv.lock": "version = [[["}, "Failed to parse `uv.lock`"),
        ({"vendor/third-1.0-py3-none-any.whl": b"no wheel"}, "third"),
        ({"pyproject.toml": "[project"}, "pyproject.toml of the bundle cannot be read"),
    ],
)
def test_a_broken_workspace_fails_the_task_with_the_reason(
    play: Play, workspace_files: Files, change: Mapping[str, str | bytes], words: str
) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        bundle = controller.add_bundle({**workspace_files, **change})
        end, _ = await run(controller, "true", bundle=bundle)
        assert (end.state, end.failure) == (TaskState.FAILED, FailureKind.ENVIRONMENT)
        assert words in end.error
        assert list(worker.paths.envs.iterdir()) == []

    play(scenario)


def test_a_failed_build_is_tried_again_by_the_next_attempt(play: Play, workspace_files: Files) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        wheel = "vendor/third-1.0-py3-none-any.whl"
        bundle = controller.add_bundle(workspace_files)
        broken = controller.add_bundle(without(workspace_files, wheel))
        end, _ = await run(controller, "true", bundle=broken)
        assert end.failure == FailureKind.ENVIRONMENT
        end, _ = await run(controller, "true", bundle=bundle, job_id="/user/again")
        assert end.state == TaskState.SUCCEEDED, end.error

    play(scenario)


def test_a_package_beside_the_lock(play: Play, workspace_files: Files) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        bundle = controller.add_bundle(workspace_files)
        packages = ["./vendor/turbo-1.0-py3-none-any.whl"]
        program = "import third, turbo; print(turbo.VALUE)"
        end, output = await run(controller, "python", "-c", program, bundle=bundle, pip_packages=packages)
        assert output == "fast\n", end.error
        end, _ = await run(
            controller, "true", bundle=bundle, pip_packages=["./vendor/none.whl"], job_id="/user/missing"
        )
        assert end.failure == FailureKind.ENVIRONMENT
        assert "none.whl" in end.error

    play(scenario)


def test_without_a_lock_the_workers_own_environment_is_used(play: Play, workspace_files: Files) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        bundle = controller.add_bundle(without(workspace_files, "uv.lock"))
        program = "import grpc, sys, till; print(sys.prefix)"
        end, _ = await run(controller, "python", "-c", program, bundle=bundle)
        assert end.state == TaskState.SUCCEEDED, controller.output(JOB, stderr=True)
        assert list(worker.paths.envs.iterdir()) == []
        wheel = str(worker.paths.bundles / bundle / "vendor/turbo-1.0-py3-none-any.whl")
        program = "import cloudpickle, grpc, turbo; print(turbo.VALUE)"
        end, output = await run(controller, "python", "-c", program, pip_packages=[wheel], job_id="/user/pip")
        assert output == "fast\n", end.error or controller.output("/user/pip/0:0", stderr=True)

    play(scenario)


def test_the_same_packages_have_one_key_and_others_another(workspace_files: Files, tmp_path: Path) -> None:
    from iris.worker.prepare.environment import EnvironmentStore
    from iris.worker.prepare.interpreters import own_interpreter
    from iris.worker.prepare.workspace import read_workspace

    def key(files: Files, extras: list[str], packages: list[str]) -> str:
        bundle = tmp_path / "bundle"
        for name, content in files.items():
            (bundle / name).parent.mkdir(parents=True, exist_ok=True)
            (bundle / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        workspace = read_workspace(bundle)
        assert workspace is not None
        return store.locked_key(workspace, extras, packages, python)

    python = own_interpreter()
    store = EnvironmentStore(WorkPaths(tmp_path / "work"), tools=None, base={})  # type: ignore[arg-type]
    plain = key(workspace_files, [], [])
    assert key({**workspace_files, "jobs/hello.py": "other"}, [], []) == plain
    assert key(workspace_files, ["b", "a"], ["y", "x"]) == key(workspace_files, ["a", "b"], ["x", "y"])
    lock = workspace_files["uv.lock"]
    assert isinstance(lock, bytes)
    others = [key(workspace_files, ["a"], []), key(workspace_files, [], ["a"])]
    others.append(key({**workspace_files, "uv.lock": lock + b"\n# changed\n"}, [], []))
    wheel = "vendor/third-1.0-py3-none-any.whl"
    others.append(key({**workspace_files, wheel: b"another"}, [], []))
    key(workspace_files, [], [])
    others.append(key({**workspace_files, "uv.toml": "[pip]"}, [], []))
    python = replace(python, identity="another Python")
    others.append(key(workspace_files, [], []))
    assert len({plain, *others}) == 7


PICKLE = """
import cloudpickle, sys
def report():
    import sys
    print("ran on", "%d.%d" % sys.version_info[:2])
sys.stdout.buffer.write(cloudpickle.dumps((report, (), {})))
"""


def pickled_by(version: str) -> bytes:
    """A callable as the Python `version` of this machine pickles it; skips without one."""
    folder = other_python(version)
    if folder is None:
        pytest.skip(f"LOUD: no Python {version} on this machine")
    spec = importlib.util.find_spec("cloudpickle")
    assert spec is not None
    assert spec.origin is not None
    env = {"PYTHONPATH": str(Path(spec.origin).parents[1])}
    return subprocess.run([folder / "python3", "-c", PICKLE], env=env, check=True, capture_output=True).stdout


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_a_callable_runs_on_the_python_that_pickled_it(play: Play, version: str) -> None:
    payload = pickled_by(version)

    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        request = run_command(payload=controller.add_blob(payload))
        request.launch.runtime.CopyFrom(pb.Runtime(python=version, packages=pb.PACKAGE_SOURCE_NONE))
        controller.send(run=[request])
        (end,) = await controller.until_ended(JOB, timeout_s=60)
        assert end.state == TaskState.SUCCEEDED, end.error
        assert controller.output(JOB).decode() == f"ran on {version}\n"

    play(scenario)


def test_nothing_is_unpickled_by_another_python(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        payload = controller.add_blob(b"never read")
        request = run_command(payload=payload)
        request.launch.runtime.CopyFrom(pb.Runtime(python="3.99", packages=pb.PACKAGE_SOURCE_NONE))
        wrong = run_command(payload=payload, job_id="/user/wrong")
        # As when the submitter's environment was made anew meanwhile.
        wrong.launch.runtime.CopyFrom(
            pb.Runtime(python="3.99", packages=pb.PACKAGE_SOURCE_SUBMITTER, environment_path=sys.prefix)
        )
        controller.send(run=[request, wrong])
        nowhere, other = await controller.until_ended(JOB, "/user/wrong/0:0", timeout_s=60)
        own = ".".join(map(str, sys.version_info[:3]))
        assert nowhere.failure == FailureKind.ENVIRONMENT
        assert f"needs Python 3.99, and this worker has {own}" in nowhere.error
        assert "pickled by Python 3.99, and its task runs on Python" in other.error

    play(scenario)


def test_a_submitters_environment_that_is_gone_is_named(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        request = run_command("true")
        request.launch.runtime.CopyFrom(
            pb.Runtime(packages=pb.PACKAGE_SOURCE_SUBMITTER, environment_path="/no/such/venv")
        )
        controller.send(run=[request])
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.failure) == (TaskState.FAILED, FailureKind.ENVIRONMENT)
        assert "environment /no/such/venv is not on this machine" in end.error

    play(scenario)


def test_a_bare_python_has_no_packages_but_those_asked_for(play: Play, workspace_files: Files) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        request = run_command("python", "-c", "import grpc")
        request.launch.runtime.packages = pb.PACKAGE_SOURCE_NONE
        controller.send(run=[request])
        await controller.until_ended(JOB, timeout_s=60)
        assert "No module named 'grpc'" in controller.output(JOB, stderr=True).decode()

    play(scenario)


def test_requirements_have_a_key_of_all_that_decides_them(tmp_path: Path) -> None:
    from iris.worker.prepare.environment import EnvironmentStore
    from iris.worker.prepare.interpreters import own_interpreter

    root = tmp_path / "bundle" / "proj"
    base = {"UV_INDEX_URL": "http://one"}
    store = EnvironmentStore(WorkPaths(tmp_path / "work"), tools=None, base=base)  # type: ignore[arg-type]
    files = {
        "requirements.txt": "-r ../common.txt\n-e ../lib\n",
        "../common.txt": "numpy\n",
        "../lib/a.py": "1",
        "uv.toml": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    def key(*packages: str) -> str:
        return store.required_key(root, packages, own_interpreter())

    keys = {key(), key("x")}
    (root / "main.py").write_text("not asked for")
    assert key() in keys
    for name in files:
        with (root / name).open("a") as file:
            file.write("\n# changed\n")
        keys.add(key())
    base["UV_INDEX_URL"] = "http://two"
    keys.add(key())
    assert len(keys) == 2 + len(files) + 1
