"""What uv is asked for an environment, once a key, again after a failure, in uv's words; some by the real uv."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from iris.domain.states import FailureKind, TaskState
from iris.rpc.generated import iris_pb2 as pb
from iris.worker.isolation.seals import Seals
from iris.worker.paths import WorkPaths
from iris.worker.prepare.environment import EnvironmentStore
from iris.worker.prepare.interpreters import Interpreter
from iris.worker.prepare.workspace import Workspace, read_workspace
from iris.worker.types import PreparationFailed
from support.iris.worker_fixtures import FakeController, InProcessWorker, run_command

Files = dict[str, str | bytes]
PYTHON = Interpreter("/py/bin/python", "3.12.1", "this python", ("/below/site",))


class Tools:
    """Does what uv would do to an environment, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.env: list[Mapping[str, str]] = []
        self.cwd: list[Path] = []
        self.answers: list[tuple[bool, str]] = []
        self.seen: list[str] = []
        self.look: Callable[[Path], object] = lambda place: None
        self.go = asyncio.Event()
        self.go.set()
        self.begun = asyncio.Event()

    async def run(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> tuple[bool, str]:
        if "-c" in argv:
            Path(argv[-2]).write_text(argv[-1])
            return True, ""
        self.asked.append(argv[1:])
        self.env.append(env)
        self.cwd.append(cwd)
        place = Path(env["UV_PROJECT_ENVIRONMENT"])
        (place / "bin").mkdir(parents=True, exist_ok=True)
        (place / "bin" / "python").touch()
        (place / "lib" / "python3.12" / "site-packages").mkdir(parents=True, exist_ok=True)
        self.seen = sorted(os.listdir(cwd))
        self.look(cwd)
        self.begun.set()
        await self.go.wait()
        return self.answers.pop(0) if self.answers else (True, "done")


class Bench:
    def __init__(self, root: Path, seals: Seals | None = None, **options: Any) -> None:
        self.root = root
        self.paths = WorkPaths(root / "work")
        self.paths.make()
        self.tools = Tools()
        self.store = EnvironmentStore(self.paths, self.tools, {"PATH": "/bin"}, seals, **options)

    def workspace(self, lock: str = "version = 1\n") -> Workspace:
        bundle = self.root / "bundle"
        bundle.mkdir(exist_ok=True)
        (bundle / "pyproject.toml").write_text(
            "[project]\nname = 'shop'\n[project.optional-dependencies]\ngpu = []\ncash = []\n"
        )
        (bundle / "uv.lock").write_text(lock)
        found = read_workspace(bundle)
        assert found is not None
        return found

    async def locked(self, *extras: str, packages: tuple[str, ...] = (), lock: str = "version = 1\n") -> Path:
        workspace = self.workspace(lock)
        key = self.store.locked_key(workspace, extras, packages, PYTHON)
        return await self.store.locked(key, workspace, workspace.root, extras, packages, PYTHON)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def failure(work: Awaitable[object], output: str = "") -> str:
    with pytest.raises(PreparationFailed) as failed:
        await work
    assert failed.value.kind is FailureKind.ENVIRONMENT
    assert output in failed.value.output
    return str(failed.value)


async def test_a_locked_workspace_is_synced_with_its_extras_and_packages_once(bench: Bench) -> None:
    path = await bench.locked("gpu", "cash", "gpu", packages=("six", "attrs", "six"))
    assert await bench.locked("cash", "gpu", packages=("attrs", "six")) == path
    assert bench.tools.asked == [
        (
            *("sync", "--frozen", "--no-install-workspace", "--all-packages", "--no-default-groups"),
            *("--no-editable", "--extra", "cash", "--extra", "gpu", "--python", "/py/bin/python"),
        ),
        ("pip", "install", "--python", str(path / "bin/python"), "--", "attrs", "six"),
    ]
    assert set(bench.tools.cwd) == {bench.root / "bundle"}
    env = bench.tools.env[0]
    assert (env["UV_PROJECT_ENVIRONMENT"], env["PATH"], env["NO_COLOR"]) == (str(path), "/bin", "1")
    assert "UV_COMPILE_BYTECODE" not in env
    assert "UV_LINK_MODE" not in env
    assert path.parent == bench.paths.envs
    other = await bench.locked("gpu")
    assert other != path
    assert await bench.locked("gpu", lock="version = 2\n") not in (path, other)
    folders = [f'name = "{name}"\nsource = {{ editable = "{at}till" }}\n' for name, at in (("a", "/x/"), ("b", "../"))]
    await bench.locked(lock="\n".join(folders))
    assert bench.tools.asked[-1][-3:] == ("--refresh-package=a", "--python", "/py/bin/python"), "uv caches by path"


async def test_what_a_build_puts_in_the_markers_place_is_its_failure_and_leads_nowhere(bench: Bench) -> None:
    """Code of the job's runs there, and the worker may be root."""
    elsewhere = bench.root / "elsewhere"
    bench.tools.look = lambda _: Path(bench.tools.env[-1]["UV_PROJECT_ENVIRONMENT"], ".ready").symlink_to(elsewhere)
    assert "an installed package has created a file .ready" in await failure(bench.locked())
    assert not elsewhere.exists()
    assert [*bench.paths.envs.iterdir(), *bench.paths.trash.iterdir()] == []


async def test_many_at_once_share_one_build_and_each_python_has_its_own(bench: Bench) -> None:
    paths = await asyncio.gather(*(bench.locked() for _ in range(4)))
    assert len(set(paths)) == len(bench.tools.asked) == 1
    await bench.store.close()
    other = Interpreter(PYTHON.program, PYTHON.version, "that python")
    paths = {await bench.store.plain((), python) for python in (PYTHON, other, PYTHON)}
    assert len(paths) == 2


@pytest.mark.parametrize("compiles", [True, False])
async def test_without_mounts_it_is_sealed_copied_and_made_anew_when_changed(tmp_path: Path, compiles: bool) -> None:
    bench = Bench(tmp_path, Seals(), compiles=compiles)
    path = await bench.locked()
    assert ("UV_COMPILE_BYTECODE" in bench.tools.env[0]) == compiles
    assert bench.tools.env[0]["UV_LINK_MODE"] == "copy"
    await bench.locked()
    assert len(bench.tools.asked) == 1
    (path / "bin" / "python").write_text("spoiled")
    await bench.locked()
    assert len(bench.tools.asked) == 2


async def test_sources_in_the_bundle_are_built_in_a_copy_of_it_that_can_be_written(bench: Bench) -> None:
    found: list[tuple[int, int, str]] = []

    def look(place: Path) -> None:
        vendor = place / "vendor"
        modes = [path.stat().st_mode & 0o777 for path in (vendor, vendor / "a.py")]
        found.append((modes[0], modes[1], str((vendor / "link").readlink())))

    bench.workspace()
    vendor = bench.root / "bundle" / "vendor"
    vendor.mkdir()
    (vendor / "a.py").touch(mode=0o400)
    (vendor / "link").symlink_to("nowhere")
    vendor.chmod(0o555)
    bench.tools.look = look
    path = await bench.locked(lock='source = { directory = "vendor" }\n')
    (place,) = set(bench.tools.cwd)
    assert place.parent == bench.paths.envs
    assert bench.tools.seen == ["pyproject.toml", "uv.lock", "vendor"]
    assert not place.exists(), "it is removed"
    assert path.exists()
    assert found == [(0o755, 0o600, "nowhere")]
    assert (vendor / "a.py").stat().st_mode & 0o777 == 0o400, "the bundle is as it was"


async def test_a_build_that_is_given_up_leaves_nothing(bench: Bench) -> None:
    bench.tools.go.clear()
    building = asyncio.create_task(bench.locked())
    await bench.tools.begun.wait()
    await bench.store.close()
    with pytest.raises(asyncio.CancelledError):
        await building
    assert os.listdir(bench.paths.envs) == []


async def test_a_worker_without_uv_is_at_fault_itself(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise FileNotFoundError("uv")

    monkeypatch.setattr("iris.worker.prepare.environment.uv_program", missing)
    with pytest.raises(PreparationFailed, match="the worker's uv program is missing: uv") as failed:
        await bench.locked()
    assert failed.value.kind is FailureKind.WORKER


class TestFailures:
    async def test_a_failure_is_told_in_uvs_words_and_the_next_one_or_the_cache_is_tried(self, bench: Bench) -> None:
        bench.tools.answers = [(False, "note\nerror: it is broken\n")]
        text = await failure(bench.locked("gpu"), output="error: it is broken")
        reason = "the environment could not be built (uv sync --frozen): it is broken"
        assert text == f"{reason}\nextras of this workspace: cash, gpu"
        assert os.listdir(bench.paths.envs) == []
        await bench.locked("gpu")
        assert len(bench.tools.asked) == 2
        away = "error: Failed to fetch: `https://packages.example/simple/six/`\n  Caused by: dns error"
        bench.tools.answers = [(False, away), (True, "")]
        await bench.locked()
        assert [words[0] for words in bench.tools.asked[2:]] == ["sync", "--offline"]
        bench.tools.answers = [(False, away), (False, "not in the cache")]
        assert "Failed to fetch" in await failure(bench.locked("cash"))

    async def test_of_a_version_that_is_not_there_the_newest_is_told(self, bench: Bench) -> None:
        missing = "Because there is no version of six==99 and you require six==99, it cannot be."
        bench.tools.answers = [(True, ""), (False, missing), (True, "Would install 1\n + six==1.17.0\n")]
        text = await failure(bench.store.plain(("six==99",), PYTHON))
        assert text.split("\n")[-1] == "the newest version is six==1.17.0"
        assert bench.tools.asked[-1][:4] == ("pip", "install", "--dry-run", "--no-deps")
        assert bench.tools.asked[-1][-1] == "six"
        bench.tools.answers = [(True, ""), (False, missing), (False, "+ six==1.17.0")]
        assert "the newest" not in await failure(bench.store.plain(("six==99",), PYTHON))


async def test_what_a_job_of_another_user_names_outside_of_its_bundle_is_not_read(tmp_path: Path) -> None:
    """Its uv reads it as that user; the worker, as root, would read what that user may not, or all of /proc/kcore."""
    for owner, is_read in ((0, True), (70_001, False)):
        bench = Bench(tmp_path / str(owner), owner=owner)
        project = bench.paths.bundles / "b1"
        project.mkdir()
        (project / "requirements.txt").write_text("-r ../credential\n-r own.txt\n./here.whl\n../there.whl\n")
        (project / "pyproject.toml").write_text("[project]\n")
        (project / "uv.lock").write_text('source = { path = "../there.whl" }\n')
        keys = []
        for name in ("../credential", "../there.whl", "own.txt", "here.whl"):
            (project / name).write_text("six")
            workspace = read_workspace(project)
            assert workspace is not None
            store = bench.store
            keys.append((store.required_key(project, (), PYTHON), store.locked_key(workspace, (), (), PYTHON)))
        required, locked = zip(*keys, strict=True)
        assert len(set(required)) == (4 if is_read else 3)
        assert len(set(locked)) == (2 if is_read else 1)


class TestPlainOnes:
    async def test_packages_come_on_top_of_those_of_another_and_their_source_is_in_the_key(self, bench: Bench) -> None:
        path = await bench.store.plain(("six",), PYTHON, over=PYTHON)
        venv, install = bench.tools.asked
        assert venv == ("venv", "--no-project", "--python", "/py/bin/python", str(path))
        assert install == ("pip", "install", "--python", str(path / "bin/python"), "--", "six")
        below = path / "lib/python3.12/site-packages/_iris_below.pth"
        assert below.read_text() == "import site; site.addsitedir('/below/site')\n"
        alone = await bench.store.plain(("six",), PYTHON)
        bare = await bench.store.plain((), PYTHON)
        assert len({path, alone, bare}) == 3
        assert bench.tools.asked[-1][0] == "venv", "there is nothing to install"
        assert not (alone / "lib/python3.12/site-packages/_iris_below.pth").exists()

        async def keys(**variables: str) -> list[str]:
            store = EnvironmentStore(bench.paths, bench.tools, variables)
            return [(await store.plain(packages, PYTHON)).name for packages in (("six",), ())]

        plain, own, other = [await keys(**found) for found in ({}, {"UV_INDEX": "x"}, {"A": "x"})]
        assert plain == other
        assert plain[0] != own[0]
        assert plain[1] == own[1], "nothing is installed"


class TestRequirements:
    async def test_they_are_installed_in_a_copy_of_the_bundle(self, bench: Bench) -> None:
        root = write_requirements(bench.root / "bundle", "six\n")
        key = bench.store.required_key(root, ("attrs",), PYTHON)
        path = await bench.store.required(key, root, root.parent, ("attrs",), PYTHON)
        venv, install = bench.tools.asked
        assert venv[0] == "venv"
        assert install == (
            *("pip", "install", "--python", str(path / "bin/python"), "--no-editable"),
            *("--requirements", "requirements.txt", "--", "attrs"),
        )
        assert bench.tools.cwd[0].name == "sub"
        assert bench.tools.cwd[0] != root

    def test_what_decides_what_is_installed_is_in_the_key(self, bench: Bench) -> None:
        root = write_requirements(bench.root / "bundle", "-r more.txt\n-e ../lib\n")
        (bench.root / "bundle" / "lib").mkdir()
        seen = set()
        for name, text in (
            ("more.txt", "six\n"),
            ("more.txt", "six==1.17\n"),
            ("../lib/a.py", "1"),
            ("requirements.txt", "-r more.txt\n-e ../lib\nattrs\n"),
            ("uv.toml", "index = 1"),
            ("pyproject.toml", "[tool.uv]\n"),
        ):
            (root / name).write_text(text)
            seen.add(bench.store.required_key(root, (), PYTHON))
        assert len(seen) == 6
        (root / "a.py").write_text("code")
        assert bench.store.required_key(root, (), PYTHON) in seen
        assert bench.store.required_key(root, ("six",), PYTHON) not in seen
        elsewhere = EnvironmentStore(bench.paths, bench.tools, {"UV_INDEX_URL": "http://two"})
        assert elsewhere.required_key(root, (), PYTHON) not in seen


def write_requirements(bundle: Path, text: str) -> Path:
    (bundle / "sub").mkdir(parents=True)
    (bundle / "sub" / "requirements.txt").write_text(text)
    return bundle / "sub"


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


@pytest.mark.process
class TestOfTheRealUv:
    async def test_third_party_from_the_environment_own_code_from_the_bundle_and_the_next_builds_nothing(
        self, controller: FakeController, worker: InProcessWorker, workspace_files: Files
    ) -> None:
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
        (environment,) = worker.paths.envs.iterdir()
        built = environment.stat().st_mtime_ns
        bundle = controller.add_bundle({**workspace_files, "more.py": ""})
        _, output = await run(controller, "python", "-m", "jobs.hello", bundle=bundle, job_id="/user/module")
        assert output == "hello 3\n"
        end, output = await run(controller, "till", bundle=bundle, job_id="/user/script")
        assert (end.exit_code, output) == (4, "till runs\n")
        assert list(worker.paths.envs.iterdir()) == [environment]
        assert environment.stat().st_mtime_ns == built
        assert TaskState.BUILDING not in controller.states["/user/script/0:0"]

    async def test_without_a_lock_the_workers_own_environment_is_used_with_packages_on_top(
        self, controller: FakeController, worker: InProcessWorker, workspace_files: Files
    ) -> None:
        bundle = controller.add_bundle({name: data for name, data in workspace_files.items() if name != "uv.lock"})
        end, _ = await run(controller, "python", "-c", "import grpc, till", bundle=bundle)
        assert end.state == TaskState.SUCCEEDED, end.error
        assert os.listdir(worker.paths.envs) == []
        wheel = str(worker.paths.bundles / bundle / "vendor/turbo-1.0-py3-none-any.whl")
        program = "import cloudpickle, grpc, turbo; print(turbo.VALUE)"
        end, output = await run(controller, "python", "-c", program, pip_packages=[wheel], job_id="/user/pip")
        assert output == "fast\n", end.error


async def test_one_that_is_not_there_in_time_is_the_jobs_failure(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit_s=0)
    bench.tools.go.clear()
    assert (await failure(bench.locked())).endswith("(uv sync --frozen): the build took more than 0 minutes")
    assert not any(bench.paths.envs.iterdir())
