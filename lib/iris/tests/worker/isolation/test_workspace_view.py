"""A task finds the files of its workspace as plain files, and what it does to them is its own: with every isolation."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris.worker.isolation.plan import IsolationMode
from support.iris.user_worker import OneTaskJobs
from support.iris.worker_fixtures import FakeController, InProcessWorker

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


@pytest.fixture(params=list(IsolationMode))
def mode(request: pytest.FixtureRequest) -> IsolationMode:
    return IsolationMode(request.param)


@pytest.fixture
def jobs(
    runner: asyncio.Runner, controller: FakeController, tmp_path: Path, mode: IsolationMode
) -> Iterator[OneTaskJobs]:
    """Jobs on a worker that keeps them apart in this way."""
    worker = runner.run(InProcessWorker.start(tmp_path / "work", controller, dict(os.environ), isolation=mode))
    runner.run(controller.until(lambda: controller.hellos))
    if worker.guardian.isolation is mode:
        yield OneTaskJobs(controller)
    runner.run(worker.close())
    if worker.guardian.isolation is not mode:
        pytest.skip(f"this host allows {worker.guardian.isolation} at best")


def check(seen: dict[str, Any]) -> None:
    assert seen["walk"] == seen["copied"] == seen["find"] == seen["rglob"] == NAMES
    assert seen["links"] == seen["links_copied"] == []
    assert seen["grep"] == ["./a/b/deep.txt:needle"]
    assert seen["module"] == [f"{seen['cwd']}/a/mod.py"]
    assert seen["script"] == [f"{seen['cwd']}/top.py"]
    assert seen["parent"] == "import os"


@pytest.mark.process
@pytest.mark.parametrize("as_callable", [False, True], ids=["command", "callable"])
async def test_programs_that_look_at_the_whole_workspace_find_plain_files_and_may_change_them(
    tmp_path: Path, jobs: OneTaskJobs, mode: IsolationMode, as_callable: bool
) -> None:
    bundle = jobs.controller.add_bundle(FILES)
    go = tmp_path / "go"
    places = set()

    def start(code: str, user: str = "ann") -> str:
        if as_callable:
            return jobs.start_call(code, user=user, bundle=bundle)
        return jobs.start("python", "-c", code, user=user, bundle=bundle)

    async def look(user: str) -> None:
        seen = json.loads(await jobs.output(start(LOOK, user)))
        check(seen)
        places.add(seen["cwd"])

    # Some callables of a row are run by a warm interpreter.
    for _ in range(4 if as_callable else 1):
        await look("ann")
    changing = start(CHANGE.replace("GO", repr(str(go))))
    await jobs.controller.until(lambda: jobs.controller.output(changing))
    # Another job looks while the first has its changes before it, and once more when it has ended.
    await look("bob")
    go.touch()
    assert await jobs.output(changing) == "['a/b/deep.txt', 'a/b/renamed.txt', 'a/new.txt'] changed\n\n"
    await look("bob")
    if mode is not IsolationMode.COPY:
        assert len(places) == 1, "caches and messages that name a path mean the same in every attempt"
