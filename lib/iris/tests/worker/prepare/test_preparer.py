"""What is made ready for a job, when that counts as ready, and how tools run; what does the work is played."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iris.domain.runtime import TaskRuntime
from iris.domain.states import FailureKind
from iris.worker.isolation.plan import IsolationMode
from iris.worker.isolation.seals import Seals
from iris.worker.paths import WorkPaths
from iris.worker.prepare.preparer import BundlePreparer, RuntimeTools
from iris.worker.processes import Exit, Listener, ProcessSpec, StartFailed
from iris.worker.types import Launch, PreparationFailed

BUNDLE, PAYLOAD = "b" * 64, "c" * 64
COMMAND = Launch("/u/job", ("true",), bundle_digest=BUNDLE)
CALLABLE = Launch("/u/job", payload_digest=PAYLOAD)

PROJECT = """
[project]
name = "shop"
version = "1.0"

[project.scripts]
shop = "shop:main"
"""


class Part:
    """Bundles, environments or compiled trees that are there, and the tools that make them; notes what is closed."""

    def __init__(self, name: str, closed: list[str]) -> None:
        self._name, self._closed = name, closed
        self.interpreters = None

    async def close(self) -> None:
        self._closed.append(self._name)

    def over(self, tree: Path, python: str) -> str:
        return f"{python} of {tree}"


class Bundles(Part):
    def __init__(self, paths: WorkPaths, closed: list[str]) -> None:
        super().__init__("bundles", closed)
        self._paths = paths
        self.sound = True
        self.seen = True

    def was_just_seen(self, digest: str) -> bool:
        assert digest == BUNDLE
        return self.seen

    async def bundle(self, digest: str) -> Path:
        return self._paths.bundles / digest

    async def blob(self, digest: str) -> Path:
        path = self._paths.blobs / digest
        path.touch()
        return path

    def is_sound(self, digest: str) -> bool:
        assert digest == PAYLOAD
        return self.sound


class Bench:
    def __init__(self, root: Path, seals: Seals | None = None) -> None:
        self.paths = WorkPaths(root)
        self.paths.make()
        self.tree = self.paths.bundles / BUNDLE
        self.tree.mkdir()
        self.closed: list[str] = []
        self.bundles = Bundles(self.paths, self.closed)
        parts: list[Any] = [Part(name, self.closed) for name in ("environments", "compiled")]
        self.preparer = BundlePreparer(self.paths, self.bundles, *parts, seals)  # type: ignore[arg-type]

    def add_project(self, place: str = "", text: str = PROJECT) -> None:
        (self.tree / place / "src" / "shop").mkdir(parents=True)
        (self.tree / place / "src" / "shop" / "__init__.py").touch()
        (self.tree / place / "pyproject.toml").write_text(text)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


class TestReady:
    """Only what was prepared here and is still there is used without a look."""

    async def test_a_bundle_is_until_it_is_gone_also_for_jobs_that_begin_elsewhere(self, bench: Bench) -> None:
        assert bench.preparer.ready(COMMAND) is None
        prepared = await bench.preparer.prepare(COMMAND)
        assert bench.preparer.ready(COMMAND) == prepared
        assert (prepared.bundle_dir, prepared.payload_path) == (bench.tree, "")
        assert prepared.python_path == (str(bench.tree),)
        assert bench.preparer.ready(replace(COMMAND, argv=("false",), job_id="/u/other")) == prepared
        assert bench.preparer.ready(replace(COMMAND, runtime=TaskRuntime(working_dir="a/b"))) == prepared
        bench.bundles.seen = False
        assert bench.preparer.ready(COMMAND) is None, "it is time to look whether its files are as they were"
        bench.bundles.seen = True
        bench.tree.rmdir()
        assert bench.preparer.ready(COMMAND) is None

    async def test_a_payload_is_until_its_file_is_another(self, bench: Bench) -> None:
        prepared = await bench.preparer.prepare(CALLABLE)
        assert prepared.payload_path == str(bench.paths.blobs / PAYLOAD)
        assert (prepared.bundle_dir, prepared.python_path) == (None, ())
        assert bench.preparer.ready(CALLABLE) == prepared
        bench.bundles.sound = False
        assert bench.preparer.ready(CALLABLE) is None
        bench.bundles.sound = True
        (bench.paths.blobs / PAYLOAD).unlink()
        assert bench.preparer.ready(CALLABLE) is None

    async def test_an_environment_is_until_it_is_gone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "venv" / "bin").mkdir(parents=True)
        monkeypatch.setattr("sys.executable", str(tmp_path / "venv" / "bin" / "python"))
        bench = Bench(tmp_path / "work")
        prepared = await bench.preparer.prepare(CALLABLE)
        assert prepared.bin_dirs == (str(tmp_path / "venv" / "bin"),)
        assert bench.preparer.ready(CALLABLE) == prepared
        (tmp_path / "venv" / "bin").rmdir()
        assert bench.preparer.ready(CALLABLE) is None

    @pytest.mark.parametrize(
        "other",
        [
            replace(COMMAND, bundle_digest="d" * 64),
            replace(COMMAND, extras=("gpu",)),
            replace(COMMAND, pip_packages=("six",)),
            replace(COMMAND, payload_digest=PAYLOAD),
            *(
                replace(COMMAND, runtime=TaskRuntime(**{name: "x"}))
                for name in ("project_dir", "python", "interpreter")
            ),
        ],
    )
    async def test_what_needs_anything_else_is_not(self, bench: Bench, other: Launch) -> None:
        await bench.preparer.prepare(COMMAND)
        assert bench.preparer.ready(other) is None

    async def test_nothing_is_where_tasks_may_have_changed_it(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path, Seals())
        await bench.preparer.prepare(COMMAND)
        assert bench.preparer.ready(COMMAND) is None


class TestWorkspaces:
    async def test_packages_of_a_workspace_are_found_before_their_metadata(self, bench: Bench) -> None:
        bench.add_project()
        prepared = await bench.preparer.prepare(COMMAND)
        site = bench.paths.sites / BUNDLE
        assert prepared.bin_dirs[1:] == (str(site / "bin"),)
        assert prepared.python_path == (str(bench.tree), str(bench.tree / "src"), str(site))
        (site / "bin" / "shop").chmod(0o755)
        (site / "bin" / "shop").write_text("a task's")
        await bench.preparer.prepare(COMMAND)
        assert (site / "bin" / "shop").read_text() == "a task's", "with mounts no task can have been there"

    async def test_what_a_task_may_have_changed_of_the_metadata_is_written_anew(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path, Seals())
        bench.add_project()
        await bench.preparer.prepare(COMMAND)
        script = bench.paths.sites / BUNDLE / "bin" / "shop"
        right, inode = script.read_text(), script.stat().st_ino
        await bench.preparer.prepare(COMMAND)
        assert script.stat().st_ino == inode, "nobody has changed it"
        script.chmod(0o755)
        script.write_text("666")
        (script.parent / "more").touch()
        await bench.preparer.prepare(COMMAND)
        assert script.read_text() == right
        assert [path.name for path in script.parent.iterdir()] == ["shop"]

    async def test_a_bundle_is_read_once_and_a_directory_that_was_not_sent_is_named(self, bench: Bench) -> None:
        bench.add_project()
        prepared = await bench.preparer.prepare(COMMAND)
        (bench.tree / "pyproject.toml").unlink()
        again = await bench.preparer.prepare(replace(COMMAND, job_id="/u/other"))
        assert again.python_path == prepared.python_path, "what was sent is what counts"
        with pytest.raises(PreparationFailed, match="the job's bundle has no directory 'none'") as failed:
            await bench.preparer.prepare(replace(COMMAND, runtime=TaskRuntime(project_dir="none")))
        assert failed.value.kind is FailureKind.ENVIRONMENT

    async def test_each_project_of_a_bundle_has_metadata_of_its_own(self, bench: Bench) -> None:
        bench.add_project("one")
        bench.add_project("two")
        environments = [
            await bench.preparer.prepare(replace(COMMAND, runtime=TaskRuntime(project_dir=place)))
            for place in ("one", "two")
        ]
        assert [prepared.bundle_dir for prepared in environments] == [bench.tree / "one", bench.tree / "two"]
        first, second = (Path(prepared.python_path[-1]) for prepared in environments)
        assert first != second
        assert first.parent == second.parent == bench.paths.sites
        assert first.name.startswith(f"{BUNDLE}-")


async def test_a_workspace_being_read_is_given_up_with_the_rest(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()

    async def read(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "to_thread", read)
    preparing = asyncio.create_task(bench.preparer.prepare(COMMAND))
    await begun.wait()
    await asyncio.wait_for(bench.preparer.close(), 20)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(preparing, 20)


async def test_all_that_it_works_with_is_closed(bench: Bench) -> None:
    assert bench.preparer.compiled(Path("/tree"), "/python") == "/python of /tree"
    await bench.preparer.close()
    assert sorted(bench.closed) == ["bundles", "compiled", "environments"]


@pytest.mark.parametrize("mode", list(IsolationMode))
async def test_what_tasks_can_write_is_looked_at(
    tmp_path: Path, mode: IsolationMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iris.worker.prepare.bundle_check.SoundTrees.was_just_seen", lambda *_: True)
    paths = WorkPaths(tmp_path)
    paths.make()
    (paths.bundles / BUNDLE).mkdir()
    (paths.bundles / f"{BUNDLE}.complete").touch()
    runtime: Any = SimpleNamespace(isolation=mode)
    preparer = BundlePreparer.over(paths, None, runtime, {})  # type: ignore[arg-type]
    if mode is IsolationMode.COPY:
        with pytest.raises(AttributeError):  # it would unpack it anew, and there is no source here
            await preparer.prepare(COMMAND)
    else:
        assert await preparer.prepare(COMMAND) == preparer.ready(COMMAND)
    await preparer.close()


class Runtime:
    """Runs nothing."""

    def __init__(self) -> None:
        self.specs: list[ProcessSpec] = []
        self.listeners: list[Listener] = []
        self.told: list[int] = []

    def start(self, spec: ProcessSpec, listener: Listener) -> Any:
        self.specs.append(spec)
        self.listeners.append(listener)
        return SimpleNamespace(terminate=self.told.append)

    async def run(self) -> "asyncio.Task[tuple[bool, str]]":
        task = asyncio.create_task(RuntimeTools(self).run(["uv", "sync"], {"A": "1"}, Path("/work")))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        return task


class TestTools:
    """Tools of the worker run as attempts do, but end with the worker."""

    @pytest.mark.parametrize(("exit", "result"), [(Exit(0, 0), True), (Exit(2, 0), False), (Exit(0, 9), False)])
    async def test_how_one_ended_is_told_with_its_last_words(self, exit: Exit, result: bool) -> None:
        runtime = Runtime()
        tools = RuntimeTools(runtime)  # type: ignore[arg-type]
        first, other = [asyncio.create_task(tools.run(["uv", "sync"], {"A": "1"}, Path("/work"))) for _ in range(2)]
        await asyncio.sleep(0)
        for listener in runtime.listeners:
            listener.on_started(7)
            listener.on_log(3)
            listener.on_exit(replace(exit, tail=b"no \xff version"))
            listener.on_exit(exit)
        assert await first == await other == (result, "no \ufffd version")
        spec = runtime.specs[0]
        assert (spec.argv, dict(spec.env), spec.cwd) == (("uv", "sync"), {"A": "1"}, "/work")
        assert (spec.tail_bytes, spec.dies_with_worker) == (64 * 1024, True)
        assert spec.owner != runtime.specs[1].owner, "the guardian knows them by that"
        assert runtime.told == []

    async def test_one_that_cannot_start_is_an_error_and_one_that_nobody_waits_for_is_killed(self) -> None:
        runtime = Runtime()
        refused = await runtime.run()
        for _ in range(2):
            runtime.listeners[0].on_refused(StartFailed("no uv"))
        with pytest.raises(StartFailed, match="no uv"):
            await refused
        given_up = await runtime.run()
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert runtime.told == [0]
        runtime.listeners[1].on_exit(Exit(0, 9))
