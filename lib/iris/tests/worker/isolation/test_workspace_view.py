"""A task finds the files of its workspace as plain files, and what it does to them is its own: with every isolation."""

import asyncio
import json
import os
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from iris.domain.states import TaskState
from iris.rpc import iris_pb2 as pb
from iris.testing.worker_fixtures import FakeController, InProcessWorker, run_command
from iris.worker.attempts.directories import AttemptDirectories
from iris.worker.isolation.plan import IsolationMode
from iris.worker.paths import WorkPaths
from iris.worker.prepare.task_env import PreparedEnvironment
from iris.worker.processes import StartFailed

EVERY_MODE = pytest.mark.parametrize("mode", list(IsolationMode))

FILES: dict[str, str | bytes] = {
    "a/b/deep.txt": "needle\n",
    "a/mod.py": "import os\nPLACE = os.path.realpath(__file__)\n",
    "a/gone.txt": "to be removed\n",
    "a/old.txt": "to be renamed\n",
    "run.sh*": '#!/bin/sh\necho ran in "$PWD"\n',
    "top.py": "import os\nprint(os.path.realpath(__file__))\n",
}
NAMES = sorted(name.rstrip("*") for name in FILES)

# What programs do that look at a folder as a whole. It ends with a line of JSON.
LOOK = r"""
import json, os, pathlib, subprocess, sys, tempfile
def said(*argv):
    return subprocess.run(argv, capture_output=True, text=True).stdout.splitlines()
def walked(top):
    return sorted(os.path.relpath(os.path.join(place, name), top) for place, _, names in os.walk(top) for name in names
                  if "__pycache__" not in place)
own = os.environ["IRIS_WORKSPACE_DIR"]
copy = tempfile.mkdtemp()
subprocess.run(["cp", "-r", own + "/.", copy], check=True)
os.chdir(own)
seen = {
    "cwd": os.getcwd(),
    "walk": walked("."),
    "rglob": sorted(str(path) for path in pathlib.Path(".").rglob("*.*") if path.is_file() and path.suffix != ".pyc"),
    "find": sorted(name[2:] for name in said("find", ".", "-type", "f", "-not", "-name", "*.pyc")),
    "links": said("find", ".", "-type", "l"),
    "grep": said("grep", "-r", "needle", "."),
    "copied": walked(copy),
    "links_copied": said("find", copy, "-type", "l"),
    "module": said(sys.executable, "-c", "import a.mod; print(a.mod.PLACE)"),
    "script": said(sys.executable, "top.py"),
    "parent": pathlib.Path(own, "a", "..", "top.py").read_text()[:9],
}
print(json.dumps(seen))
"""

CHANGE = r"""
import os, pathlib, time
pathlib.Path("a/b/deep.txt").write_text("changed\n")
pathlib.Path("a/new.txt").write_text("new\n")
os.remove("a/gone.txt")
os.rename("a/old.txt", "a/b/renamed.txt")
os.mkdir("a/b/folder")
pathlib.Path("a/b/folder/inside").touch()
print(sorted(str(path) for path in pathlib.Path("a").rglob("*.txt")), open("a/b/deep.txt").read(), flush=True)
while not os.path.exists(GO):
    time.sleep(0.02)
"""


@asynccontextmanager
async def worker_of(mode: IsolationMode, work_dir: Path) -> AsyncIterator[tuple[FakeController, InProcessWorker]]:
    controller = FakeController()
    await controller.start()
    worker = await InProcessWorker.start(work_dir, controller, dict(os.environ), isolation=mode)
    try:
        await controller.until(lambda: controller.hellos)
        if worker.guardian.isolation is not mode:
            pytest.skip(f"this host allows {worker.guardian.isolation} at best")
        yield controller, worker
    finally:
        await worker.close()
        await controller.stop()


async def output_of(controller: FakeController, job: str) -> str:
    (end,) = await controller.until_ended(f"{job}/0:0")
    assert end.state == TaskState.SUCCEEDED, (end.error, controller.output(f"{job}/0:0", stderr=True))
    return controller.output(f"{job}/0:0").decode()


def run(job: str, code: str, bundle: str, controller: FakeController, as_callable: bool) -> pb.RunAttempts:
    if not as_callable:
        return run_command("python", "-c", code, job_id=job, bundle=bundle)
    payload = controller.add_blob(pickle.dumps((exec, (code, {}), {})))
    return run_command(job_id=job, bundle=bundle, payload=payload)


def check(seen: dict[str, Any]) -> None:
    assert seen["walk"] == seen["copied"] == seen["find"] == seen["rglob"] == NAMES
    assert seen["links"] == seen["links_copied"] == []
    assert seen["grep"] == ["./a/b/deep.txt:needle"]
    assert seen["module"] == [f"{seen['cwd']}/a/mod.py"]
    assert seen["script"] == [f"{seen['cwd']}/top.py"]
    assert seen["parent"] == "import os"


@pytest.mark.e2e
@EVERY_MODE
@pytest.mark.parametrize("as_callable", [False, True], ids=["command", "callable"])
def test_programs_that_look_at_the_whole_workspace_find_plain_files_and_may_change_them(
    tmp_path: Path, mode: IsolationMode, as_callable: bool
) -> None:
    async def scenario() -> None:
        async with worker_of(mode, tmp_path / "work") as (controller, _):
            bundle = controller.add_bundle(FILES)
            go = tmp_path / "go"
            places = set()
            # Some callables of a row are run by a warm interpreter.
            for number in range(4 if as_callable else 1):
                controller.send(run=[run(f"/ann/look{number}", LOOK, bundle, controller, as_callable)])
                seen = json.loads(await output_of(controller, f"/ann/look{number}"))
                check(seen)
                places.add(seen["cwd"])
            changing = run("/ann/change", CHANGE.replace("GO", repr(str(go))), bundle, controller, as_callable)
            controller.send(run=[changing])
            await controller.until(lambda: controller.output("/ann/change/0:0"))
            # Another job looks while the first has its changes before it, and once more when it has ended.
            for job in ("/bob/beside", "/bob/after"):
                controller.send(run=[run(job, LOOK, bundle, controller, as_callable)])
                check(seen := json.loads(await output_of(controller, job)))
                places.add(seen["cwd"])
                go.touch()
                changed = await output_of(controller, "/ann/change")
            assert changed == "['a/b/deep.txt', 'a/b/renamed.txt', 'a/new.txt'] changed\n\n"
            if mode is not IsolationMode.COPY:
                assert len(places) == 1, "caches and messages that name a path mean the same in every attempt"

    asyncio.run(scenario())


@pytest.mark.e2e
@EVERY_MODE
def test_attempts_after_each_other_see_nothing_of_each_other(tmp_path: Path, mode: IsolationMode) -> None:
    # A copy is not in a namespace of its own: there a mount of root's would stay on this machine.
    is_own = os.geteuid() == 0 and mode is not IsolationMode.COPY
    mount = "mount -t tmpfs none a 2>/dev/null; " if is_own else ""
    steps = (
        *("true", "true", "echo x > a/deep.txt", "true", "rm -r a", "true", "chmod 700 .", "true"),
        *("touch left; rm left", "true", f"{mount}true", "true"),
    )

    async def scenario() -> None:
        async with worker_of(mode, tmp_path / "work") as (controller, _):
            bundle = controller.add_bundle({"a/deep.txt": "deep", "b": "b"})
            look = "stat -c %a . ; ls; cat a/deep.txt; "
            for number, step in enumerate(steps):
                controller.send(run=[run_command("sh", "-c", look + step, job_id=f"/ann/{number}", bundle=bundle)])
                said = (await output_of(controller, f"/ann/{number}")).splitlines()
                assert said[1:] == ["a", "b", "deep"], (number, step)
                assert mode is not IsolationMode.OVERLAY or said[0] != "700"

    asyncio.run(scenario())


@pytest.mark.e2e
@EVERY_MODE
def test_an_attempt_begins_where_its_submitter_was(tmp_path: Path, mode: IsolationMode) -> None:
    async def scenario() -> None:
        async with worker_of(mode, tmp_path / "work") as (controller, _):
            bundle = controller.add_bundle(FILES)
            look = 'pwd; ls; cat ../mod.py ../../top.py | grep -c import; echo "${PWD#"$IRIS_WORKSPACE_DIR"}"'
            for number, (argv, place) in enumerate(
                (
                    (("sh", "-c", look), "a/b"),
                    (("../../run.sh",), "a/b"),
                    (("../run.sh",), "empty"),
                    (("pwd",), "e/m/p"),
                )
            ):
                request = run_command(*argv, job_id=f"/ann/{number}", bundle=bundle)
                request.launch.runtime.working_dir = place
                controller.send(run=[request])
            begun = (await output_of(controller, "/ann/0")).splitlines()
            assert begun[0].endswith("/a/b")
            assert begun[1:] == ["deep.txt", "2", "/a/b"]
            assert (await output_of(controller, "/ann/1")).endswith("/a/b\n")
            assert (await output_of(controller, "/ann/2")).endswith("/empty\n"), (
                "a release before this one sent no empty folders"
            )
            assert (await output_of(controller, "/ann/3")).endswith("/e/m/p\n")
            request = run_command("pwd", job_id="/ann/file", bundle=bundle)
            request.launch.runtime.working_dir = "top.py/x"
            controller.send(run=[request])
            (end,) = await controller.until_ended("/ann/file/0:0")
            assert "the working directory 'top.py/x' is a file of the workspace" in end.error

    asyncio.run(scenario())


@pytest.mark.e2e
def test_a_folder_of_the_workspace_can_be_renamed_where_root_may_mount(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with worker_of(IsolationMode.OVERLAY, tmp_path / "work") as (controller, _):
            if os.geteuid() != 0:
                pytest.skip("an ordinary user's layers cannot")
            bundle = controller.add_bundle(FILES)
            code = "import os; os.rename('a', 'moved'); print(os.listdir('moved/b'), os.path.exists('a'))"
            for number in range(2):
                controller.send(run=[run_command("python", "-c", code, job_id=f"/ann/{number}", bundle=bundle)])
                assert await output_of(controller, f"/ann/{number}") == "['deep.txt'] False\n"

    asyncio.run(scenario())


@EVERY_MODE
def test_what_is_made_for_a_start_goes_with_it(tmp_path: Path, mode: IsolationMode) -> None:
    paths = WorkPaths(tmp_path)
    paths.make()
    bundle = paths.bundles / ("b" * 64)
    (bundle / "there").mkdir(parents=True)
    (bundle / "file").touch()
    (bundle / "link").symlink_to("there")
    directories = AttemptDirectories(paths, mode, lambda work: work())
    for number, (relative, message) in enumerate(
        (("", ""), ("there", ""), ("link/new", ""), ("file", "is a file"), ("file/x", "is a file"))
    ):
        name = f"/ann/job/0:{number}"
        prepared = asyncio.run(directories.copy(name, PreparedEnvironment(bundle_dir=bundle)))
        if message:
            with pytest.raises(StartFailed, match=message):
                directories.make(name, prepared, relative)
        else:
            place = directories.make(name, prepared, relative)
            assert Path(place) == Path(prepared.bundle_dir or "", relative)
            directories.mounts(name, prepared)
        directories.remove(name)
    assert sorted(found.relative_to(bundle).as_posix() for found in bundle.rglob("*")) == ["file", "link", "there"]
    assert os.listdir(paths.layers) == []
