"""Which environment a job runs in, from what it asks for and what was unpacked for it."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iris.domain.runtime import PackageSource, TaskRuntime
from iris.domain.states import FailureKind
from iris.worker.paths import WorkPaths
from iris.worker.prepare.interpreters import Interpreter, own_interpreter
from iris.worker.prepare.job_environment import JobEnvironment, JobEnvironments, JobSources
from iris.worker.prepare.task_env import worker_environment
from iris.worker.types import Launch, PreparationFailed

FOUND = Interpreter("/found/python", "3.12.1", "found")
PROBED = Interpreter("/probed/python", "3.11.9", "probed")
PLAIN = Launch("/u/job", ("true",))


class Store:
    """Notes what is asked for; environments are named by that."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.keys = 0
        self.probed: Interpreter | None = PROBED
        self.interpreters = SimpleNamespace(find=self._find, probe=self._probe)

    async def _find(self, request: str, hint: str) -> Interpreter:
        self.asked.append(("find", request, hint))
        return FOUND

    async def _probe(self, program: str) -> Interpreter | None:
        self.asked.append(("probe", program))
        return self.probed

    async def plain(self, packages: Any, python: Interpreter, *, over: Interpreter | None = None) -> Path:
        self.asked.append(("plain", packages, python, over))
        return Path("/envs/plain")

    def locked_key(self, workspace: Any, extras: Any, packages: Any, python: Interpreter) -> str:
        self.keys += 1
        return "locked key"

    async def locked(self, key: str, workspace: Any, bundle: Path, extras: Any, packages: Any, python: Any) -> Path:
        self.asked.append(("locked", key, bundle, extras, packages, python))
        return Path("/envs/locked")

    def required_key(self, root: Path, packages: Any, python: Interpreter) -> str:
        return "required key"

    async def required(self, key: str, root: Path, bundle: Path, packages: Any, python: Interpreter) -> Path:
        self.asked.append(("required", key, root, bundle, packages, python))
        return Path("/envs/required")


class Bench:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = WorkPaths(root / "work")
        self.paths.make()
        self.store = Store()
        self.environments = JobEnvironments(self.paths, self.store)  # type: ignore[arg-type]

    def find(self, launch: Launch = PLAIN, sources: JobSources | None = None, **runtime: Any) -> JobEnvironment:
        launch = replace(launch, runtime=TaskRuntime(**runtime))
        return asyncio.run(self.environments.find(launch, sources or JobSources()))

    def refused(self, launch: Launch = PLAIN, sources: JobSources | None = None, **runtime: Any) -> str:
        with pytest.raises(PreparationFailed) as refused:
            self.find(launch, sources, **runtime)
        assert refused.value.kind is FailureKind.ENVIRONMENT
        return str(refused.value)

    def sources(self, has_lock: bool = True) -> JobSources:
        bundle = self.root / "bundle"
        (bundle / "sub").mkdir(parents=True, exist_ok=True)
        workspace: Any = SimpleNamespace(root=bundle / "sub", has_lock=has_lock)
        return JobSources(bundle, bundle / "sub", workspace)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def at(place: str) -> JobEnvironment:
    return JobEnvironment(f"{place}/bin", place)


def test_a_lock_is_used_where_there_is_one_and_its_key_is_found_once(bench: Bench) -> None:
    launch = replace(PLAIN, extras=("gpu",), pip_packages=("six",))
    sources = bench.sources()
    for packages in (PackageSource.UNSPECIFIED, PackageSource.LOCK):
        assert bench.find(launch, sources, packages=packages, python="3.12", interpreter="/hint") == at("/envs/locked")
    assert bench.store.asked[:2] == [
        ("find", "3.12", "/hint"),
        ("locked", "locked key", sources.bundle, ("gpu",), ("six",), FOUND),
    ]
    assert bench.store.keys == 1
    bench.find(replace(launch, pip_packages=()), sources)
    assert bench.store.keys == 2


def test_what_a_job_asks_for_and_does_not_have_is_refused(bench: Bench) -> None:
    without = bench.sources(has_lock=False)
    assert bench.refused(packages=PackageSource.LOCK) == "the job's workspace has no pyproject.toml with a uv.lock"
    assert "with a uv.lock" in bench.refused(PLAIN, without, packages=PackageSource.LOCK)
    assert bench.refused(packages=PackageSource.REQUIREMENTS) == "the job's workspace has no requirements.txt"
    assert "no requirements.txt" in bench.refused(PLAIN, without, packages=PackageSource.REQUIREMENTS)
    assert without.project is not None
    (without.project / "requirements.txt").touch()
    for less in ({"bundle": None}, {"project": None}):
        assert "no requirements" in bench.refused(PLAIN, replace(without, **less), packages=PackageSource.REQUIREMENTS)
    for less in ({"bundle": None}, {"workspace": None}):
        told = bench.refused(PLAIN, replace(bench.sources(), **less), packages=PackageSource.LOCK)
        assert told == "the job's workspace has no pyproject.toml with a uv.lock"
    extras = replace(PLAIN, extras=("gpu", "tpu"))
    for packages in (PackageSource.UNSPECIFIED, PackageSource.SUBMITTER, PackageSource.REQUIREMENTS):
        assert bench.refused(extras, without, packages=packages).startswith("extras gpu, tpu were requested, but")


def test_requirements_of_the_projects_folder_or_nothing_but_packages_are_installed(bench: Bench) -> None:
    sources = bench.sources()
    assert sources.project is not None
    (sources.project / "requirements.txt").write_text("six")
    launch = replace(PLAIN, pip_packages=("attrs",))
    assert bench.find(launch, sources, packages=PackageSource.REQUIREMENTS) == at("/envs/required")
    asked = ("required", "required key", sources.project, sources.bundle, ("attrs",), FOUND)
    assert bench.store.asked[-1] == asked
    assert bench.find(launch, packages=PackageSource.NONE, python="3.12") == at("/envs/plain")
    assert bench.store.asked[-2:] == [("find", "3.12", ""), ("plain", ("attrs",), FOUND, None)]


def test_who_says_nothing_gets_the_workers_own_and_packages_on_top(bench: Bench) -> None:
    own = worker_environment()
    assert bench.find() == JobEnvironment(own.bin_dirs[0], own.virtual_env)
    assert bench.find(PLAIN, bench.sources(has_lock=False)) == JobEnvironment(own.bin_dirs[0], own.virtual_env)
    assert bench.find(replace(PLAIN, pip_packages=("six",))) == at("/envs/plain")
    assert bench.store.asked == [("plain", ("six",), own_interpreter(), own_interpreter())]


class TestTheSubmitters:
    def prefix(self, bench: Bench, *files: str) -> str:
        place = bench.root / "venv"
        (place / "bin").mkdir(parents=True, exist_ok=True)
        for name in files:
            (place / name).touch()
        return str(place)

    def test_a_virtual_environment_is_used_as_it_is_and_an_installation_is_none(self, bench: Bench) -> None:
        prefix = self.prefix(bench, "bin/python")
        submitters = {"packages": PackageSource.SUBMITTER, "environment_path": prefix}
        assert bench.find(**submitters) == JobEnvironment(f"{prefix}/bin", "")
        self.prefix(bench, "pyvenv.cfg")
        assert bench.find(**submitters) == at(prefix)
        assert bench.store.asked == []

    def test_one_without_a_python_of_that_name_gets_one(self, bench: Bench) -> None:
        prefix = self.prefix(bench, "bin/python3.12")
        program = f"{prefix}/bin/python3.12"
        runtime = {"packages": PackageSource.SUBMITTER, "environment_path": prefix, "interpreter": program}
        found = bench.find(**runtime)
        assert (Path(found.bin_dir) / "python").readlink() == Path(program)
        assert (Path(found.bin_dir).parent, found.virtual_env) == (bench.paths.envs, "")
        assert bench.find(**runtime) == found
        assert len(list(bench.paths.envs.iterdir())) == 1

    def test_what_another_attempt_made_meanwhile_is_used(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        prefix = self.prefix(bench, "bin/python3.12")
        program = f"{prefix}/bin/python3.12"
        rename = Path.rename

        def too_late(path: Path, target: Path) -> Path:
            target.mkdir()
            (target / "python").symlink_to(program)
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", too_late)
        found = bench.find(packages=PackageSource.SUBMITTER, environment_path=prefix, interpreter=program)
        assert (Path(found.bin_dir) / "python").readlink() == Path(program)
        assert [str(path) for path in bench.paths.envs.iterdir()] == [found.bin_dir], "nothing is left of the other"

    @pytest.mark.parametrize("interpreter", ["", "/nowhere/python3"])
    def test_one_that_is_gone_is_named(self, bench: Bench, interpreter: str) -> None:
        prefix = self.prefix(bench)
        for place in (prefix, "/nowhere"):
            told = bench.refused(packages=PackageSource.SUBMITTER, environment_path=place, interpreter=interpreter)
            assert told.startswith(f"the submitter's environment {place} is not on this machine (any more): submit")

    def test_packages_come_on_top_of_it(self, bench: Bench) -> None:
        prefix = self.prefix(bench, "bin/python", "pyvenv.cfg")
        launch = replace(PLAIN, pip_packages=("six",))
        runtime = {"packages": PackageSource.SUBMITTER, "environment_path": prefix}
        assert bench.find(launch, **runtime) == at("/envs/plain")
        assert bench.store.asked == [("probe", f"{prefix}/bin/python"), ("plain", ("six",), PROBED, PROBED)]
        bench.store.probed = None
        assert bench.refused(launch, **runtime) == f"the submitter's Python in {prefix}/bin does not run"
