"""What uv is asked for an environment, with tools that are played: once a key, again after a failure, in uv's words."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from iris.domain.states import FailureKind
from iris.worker.isolation.seals import Seals
from iris.worker.paths import WorkPaths
from iris.worker.prepare.environment import EnvironmentStore
from iris.worker.prepare.interpreters import Interpreter
from iris.worker.prepare.workspace import Workspace, read_workspace
from iris.worker.types import PreparationFailed

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
        self.asked.append(argv[1:])
        self.env.append(env)
        self.cwd.append(cwd)
        place = Path(env["UV_PROJECT_ENVIRONMENT"])
        make_environment(place)
        self.seen = sorted(names(cwd))
        self.look(cwd)
        self.begun.set()
        await self.go.wait()
        return self.answers.pop(0) if self.answers else (True, "done")


def make_environment(place: Path) -> None:
    (place / "bin").mkdir(parents=True, exist_ok=True)
    (place / "bin" / "python").touch()
    (place / "lib" / "python3.12" / "site-packages").mkdir(parents=True, exist_ok=True)


def names(place: Path) -> list[str]:
    return [path.name for path in place.iterdir()]


def is_there(path: Path) -> bool:
    return path.exists()


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


def play(bench: Bench, scenario: Callable[[Bench], Awaitable[None]]) -> None:
    asyncio.run(scenario(bench))


async def failure(work: Awaitable[object]) -> str:
    with pytest.raises(PreparationFailed) as failed:
        await work
    assert failed.value.kind is FailureKind.ENVIRONMENT
    return str(failed.value)


def test_a_locked_workspace_is_synced_with_its_extras_and_packages_once(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
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

    play(Bench(tmp_path), scenario)


def test_many_at_once_share_one_build(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        paths = await asyncio.gather(*(bench.locked() for _ in range(4)))
        assert len(set(paths)) == len(bench.tools.asked) == 1
        await bench.store.close()

    play(Bench(tmp_path), scenario)


@pytest.mark.parametrize("compiles", [True, False])
def test_where_nothing_can_be_mounted_it_is_sealed_copied_and_made_anew_when_changed(
    tmp_path: Path, compiles: bool
) -> None:
    async def scenario(bench: Bench) -> None:
        path = await bench.locked()
        assert ("UV_COMPILE_BYTECODE" in bench.tools.env[0]) == compiles
        assert bench.tools.env[0]["UV_LINK_MODE"] == "copy"
        await bench.locked()
        assert len(bench.tools.asked) == 1
        spoil(path / "bin" / "python")
        await bench.locked()
        assert len(bench.tools.asked) == 2

    play(Bench(tmp_path, Seals(), compiles=compiles), scenario)


def spoil(path: Path) -> None:
    path.write_text("spoiled")


def test_sources_in_the_bundle_are_built_in_a_copy_of_it(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.workspace()
        make_vendor(bench.root / "bundle")
        path = await bench.locked(lock='source = { directory = "vendor" }\n')
        (place,) = set(bench.tools.cwd)
        assert place.parent == bench.paths.envs
        assert bench.tools.seen == ["pyproject.toml", "uv.lock", "vendor"]
        assert not is_there(place), "it is removed"
        assert is_there(path)

    play(Bench(tmp_path), scenario)


def make_vendor(bundle: Path) -> None:
    (bundle / "vendor").mkdir()
    (bundle / "vendor" / "a.py").touch(mode=0o400)
    (bundle / "vendor" / "link").symlink_to("nowhere")
    (bundle / "vendor").chmod(0o555)


def test_the_copy_can_be_written_by_what_builds_and_its_links_are_links(tmp_path: Path) -> None:
    found: list[tuple[int, int, str]] = []

    def look(place: Path) -> None:
        vendor = place / "vendor"
        modes = [path.stat().st_mode & 0o777 for path in (vendor, vendor / "a.py")]
        found.append((modes[0], modes[1], str((vendor / "link").readlink())))

    async def scenario(bench: Bench) -> None:
        bench.workspace()
        make_vendor(bench.root / "bundle")
        bench.tools.look = look
        await bench.locked(lock='source = { directory = "vendor" }\n')

    play(Bench(tmp_path), scenario)
    assert found == [(0o755, 0o600, "nowhere")]
    assert (tmp_path / "bundle" / "vendor" / "a.py").stat().st_mode & 0o777 == 0o400, "the bundle is as it was"


def test_a_build_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.tools.go.clear()
        building = asyncio.create_task(bench.locked())
        await bench.tools.begun.wait()
        await bench.store.close()
        with pytest.raises(asyncio.CancelledError):
            await building
        assert names(bench.paths.envs) == []

    play(Bench(tmp_path), scenario)


def test_each_python_has_environments_of_its_own(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        other = Interpreter(PYTHON.program, PYTHON.version, "that python")
        paths = {await bench.store.plain((), python) for python in (PYTHON, other, PYTHON)}
        assert len(paths) == 2

    play(Bench(tmp_path), scenario)


def test_a_worker_without_uv_is_at_fault_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise FileNotFoundError("uv")

    monkeypatch.setattr("iris.worker.prepare.environment.uv_program", missing)

    async def scenario(bench: Bench) -> None:
        with pytest.raises(PreparationFailed, match="the worker's uv program is missing: uv") as failed:
            await bench.locked()
        assert failed.value.kind is FailureKind.WORKER

    play(Bench(tmp_path), scenario)


class TestFailures:
    def test_it_is_told_in_uvs_words_and_the_next_one_tries_again(self, tmp_path: Path) -> None:
        async def scenario(bench: Bench) -> None:
            bench.tools.answers = [(False, "note\nerror: it is broken\n")]
            text = await failure(bench.locked("gpu"))
            first, *rest = text.split("\n")
            assert first.startswith("the environment could not be built (uv sync --frozen): ")
            assert "error: it is broken" in "\n".join(rest)
            assert rest[-1] == "extras of this workspace: cash, gpu"
            assert names(bench.paths.envs) == []
            await bench.locked("gpu")
            assert len(bench.tools.asked) == 2

        play(Bench(tmp_path), scenario)

    def test_without_a_network_what_is_in_the_cache_is_tried(self, tmp_path: Path) -> None:
        async def scenario(bench: Bench) -> None:
            away = "error: Failed to fetch: `https://packages.example/simple/six/`\n  Caused by: dns error"
            bench.tools.answers = [(False, away), (True, "")]
            await bench.locked()
            assert [words[0] for words in bench.tools.asked] == ["sync", "--offline"]
            bench.tools.answers = [(False, away), (False, "not in the cache")]
            assert "Failed to fetch" in await failure(bench.locked("gpu"))

        play(Bench(tmp_path), scenario)

    def test_of_a_version_that_is_not_there_the_newest_is_told(self, tmp_path: Path) -> None:
        async def scenario(bench: Bench) -> None:
            missing = "Because there is no version of six==99 and you require six==99, it cannot be."
            bench.tools.answers = [(True, ""), (False, missing), (True, "Would install 1\n + six==1.17.0\n")]
            text = await failure(bench.store.plain(("six==99",), PYTHON))
            assert text.split("\n")[-1] == "the newest there is: six==1.17.0"
            assert bench.tools.asked[-1][:4] == ("pip", "install", "--dry-run", "--no-deps")
            assert bench.tools.asked[-1][-1] == "six"
            bench.tools.answers = [(True, ""), (False, missing), (False, "+ six==1.17.0")]
            assert "the newest" not in await failure(bench.store.plain(("six==99",), PYTHON))

        play(Bench(tmp_path), scenario)


class TestPlainOnes:
    def test_packages_come_on_top_of_those_of_another(self, tmp_path: Path) -> None:
        async def scenario(bench: Bench) -> None:
            path = await bench.store.plain(("six",), PYTHON, over=PYTHON)
            venv, install = bench.tools.asked
            assert venv == ("venv", "--no-project", "--python", "/py/bin/python", str(path))
            assert install == ("pip", "install", "--python", str(path / "bin/python"), "--", "six")
            below = path / "lib/python3.12/site-packages/_iris_below.pth"
            assert below_of(below) == "import site; site.addsitedir('/below/site')\n"
            alone = await bench.store.plain(("six",), PYTHON)
            bare = await bench.store.plain((), PYTHON)
            assert len({path, alone, bare}) == 3
            assert bench.tools.asked[-1][0] == "venv", "there is nothing to install"
            assert not is_there(alone / "lib/python3.12/site-packages/_iris_below.pth")

        play(Bench(tmp_path), scenario)

    def test_their_key_is_of_where_packages_come_from(self, tmp_path: Path) -> None:
        async def keys(**variables: str) -> list[str]:
            bench = Bench(tmp_path)
            bench.store = EnvironmentStore(bench.paths, bench.tools, variables)
            return [(await bench.store.plain(packages, PYTHON)).name for packages in (("six",), ())]

        plain, own, other = (asyncio.run(keys(**found)) for found in ({}, {"UV_INDEX": "x"}, {"A": "x"}))
        assert plain == other
        assert plain[0] != own[0]
        assert plain[1] == own[1], "nothing is installed"


def below_of(path: Path) -> str:
    return path.read_text()


class TestRequirements:
    def test_they_are_installed_in_a_copy_of_the_bundle(self, tmp_path: Path) -> None:
        async def scenario(bench: Bench) -> None:
            root = write_requirements(tmp_path / "bundle", "six\n")
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

        play(Bench(tmp_path), scenario)

    def test_what_decides_what_is_installed_is_in_the_key(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path)
        root = write_requirements(tmp_path / "bundle", "-r more.txt\n")
        seen = set()
        for name, text in (
            ("more.txt", "six\n"),
            ("more.txt", "six==1.17\n"),
            ("requirements.txt", "-r more.txt\nattrs\n"),
            ("uv.toml", "index = 1"),
            ("pyproject.toml", "[tool.uv]\n"),
        ):
            (root / name).write_text(text)
            seen.add(bench.store.required_key(root, (), PYTHON))
        assert len(seen) == 5
        (root / "a.py").write_text("code")
        assert bench.store.required_key(root, (), PYTHON) in seen
        assert bench.store.required_key(root, ("six",), PYTHON) not in seen


def write_requirements(bundle: Path, text: str) -> Path:
    (bundle / "sub").mkdir(parents=True)
    (bundle / "sub" / "requirements.txt").write_text(text)
    return bundle / "sub"
