"""What one task writes reaches no other: real workers as root and as an ordinary user, with every way of isolation."""

import asyncio
import os
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from iris.worker.isolation.plan import IsolationMode
from support.iris.user_worker import WorkerPlace, worker_place

pytestmark = pytest.mark.process

OVERLAY, BIND, COPY = IsolationMode.OVERLAY, IsolationMode.BIND, IsolationMode.COPY
# What a careless task does, with all that it finds. `$1` is the worker's directory.
CARELESS = """
B=${PYTHONPATH%%:*}
harm() {
    rm -f "$1/jobs/hello.py"; echo 'V = 666' > "$1/jobs/hello.py"
    echo 'import sys; V = 666' > "$1/jobs/__init__.py"; sed -i s/1/666/ "$1/value.txt"; truncate -s 0 "$1/empty.txt"
    mv "$1/moved.txt" "$1/gone.txt"; chmod 000 "$1/mode.txt"; echo 'V = 666' > "$1/new.py"
}
harm . ; harm "$B"
T=$(python -c 'import third; print(third.__file__)')
echo 'VALUE = 666' > "$T"; sed -i 's/3/666/' "$T"; echo 'VALUE = 666' > "$(dirname "$T")/installed.py"
for name in blobs sites bundles envs; do
    for file in $(find "$1/$name" -maxdepth 2); do echo 666 > "$file"; rm -f "$file"; touch "$file/new"; done
done
rm -rf "$1"/sites/* "$1"/blobs/*
"""

LOOK = """
python -c 'import jobs, third, till.main, os, sys; print(getattr(jobs, "V", 1), third.VALUE, os.path.exists("new.py"))'
cat value.txt empty.txt moved.txt mode.txt; ls; till || true
"""

FILES: dict[str, str | bytes] = {
    "value.txt": "value 1\n",
    "empty.txt": "not empty\n",
    "moved.txt": "moved\n",
    "mode.txt": "mode\n",
}


EVERY_WAY = pytest.mark.parametrize(
    ("mode", "as_root"),
    [
        pytest.param(OVERLAY, True, id="overlay-root"),
        pytest.param(OVERLAY, False, id="overlay-user"),
        pytest.param(BIND, True, id="bind-root", marks=pytest.mark.soak),
        pytest.param(BIND, False, id="bind-user", marks=pytest.mark.soak),
        pytest.param(COPY, True, id="copy-root", marks=pytest.mark.soak),
        pytest.param(COPY, False, id="copy-user"),
    ],
)


WARM = "print('--serve' in open('/proc/self/cmdline').read())\n"
CARELESS_CALL = """
import os, subprocess, pathlib, third
root = {root!r}
def attempt(work):
    try: work()
    except OSError: pass
for path in [pathlib.Path("jobs/__init__.py"), pathlib.Path(os.environ["PYTHONPATH"].split(":")[0], "jobs/__init__.py"),
             pathlib.Path(third.__file__)]:
    attempt(path.unlink)
    attempt(lambda: path.write_text("V = VALUE = 666"))
import jobs
print(jobs.V)
for name in ("blobs", "sites", "bundles", "envs"):
    for path in sorted(pathlib.Path(root, name).rglob("*"))[:50]:
        attempt(lambda: path.write_bytes(b"666"))
        attempt(path.unlink)
"""
LOOK_CALL = "import jobs, third; print(getattr(jobs, 'V', 1), third.VALUE)"


@EVERY_WAY
async def test_what_a_task_writes_stays_its_own(
    open_path: Path, workspace_files: dict[str, str | bytes], mode: IsolationMode, as_root: bool
) -> None:
    async with worker_place(open_path, as_root, isolation=mode) as here:
        assert f"isolation between tasks: {mode}" in here.guardian_log()
        bundle = here.controller.add_bundle({**workspace_files, **FILES})
        before = await here.run("sh", "-c", LOOK, bundle=bundle)
        assert before.splitlines()[:5] == ["1 3 False", "value 1", "not empty", "moved", "mode"]
        seen = await here.run("sh", "-c", CARELESS + LOOK, "sh", str(here.work_dir), bundle=bundle)
        # In layers its view of the environment, too, is its own to write.
        assert seen.startswith("666 666 True\nvalue 666\n" if mode is OVERLAY else "666 "), seen
        for user in ("bob", "ann"):
            assert await here.run("sh", "-c", LOOK, user=user, bundle=bundle) == before
        calls = [(await here.call(WARM + LOOK_CALL, bundle=bundle)).splitlines() for _ in range(2)]
        while calls[-1][0] == "False" and len(calls) < (2 if mode is COPY else 20):
            calls.append((await here.call(WARM + LOOK_CALL, bundle=bundle)).splitlines())
        warm = mode is not COPY  # attempts with copies of their own cannot share an interpreter
        assert calls[-1][0] == str(warm)
        careless = WARM + CARELESS_CALL.format(root=str(here.work_dir))
        assert await here.call(careless, bundle=bundle) == f"{warm}\n666\n"
        for user in ("ann", "bob"):
            calls.append((await here.call(WARM + LOOK_CALL, user=user, bundle=bundle)).splitlines())
        assert {seen for _, seen in calls} == {"1 3"}
        await nothing_is_left(here)


HARM_OWN = """
P=$(python -c 'import cloudpickle; print(cloudpickle.__file__)')
I=$(python -c 'import iris.worker; print(iris.worker.__file__)')
for file in "$P" "$I"; do echo 'raise SystemExit(66)' >> "$file"; rm -f "$file"; touch "$(dirname "$file")/new.py"; done
for file in "$1"/blobs/*; do echo 666 > "$file"; rm -f "$file"; done
ls "$1/trash"; exit 0
"""


@pytest.mark.parametrize("mode", [OVERLAY, BIND])
async def test_the_workers_own_environment_and_payloads_cannot_be_written(open_path: Path, mode: IsolationMode) -> None:
    async with worker_place(open_path, os.geteuid() == 0, isolation=mode) as here:
        calls = [await here.call("print('called')") for _ in range(3)]
        await here.run("sh", "-c", HARM_OWN, "sh", str(here.work_dir), user="bob")
        calls.append(await here.call("print('called')"))
        calls.append(await here.run("python", "-c", "import cloudpickle, iris.worker; print('called')", user="bob"))
        assert calls == ["called\n"] * 5


async def nothing_is_left(here: WorkerPlace) -> None:
    names = ("layers", "trash", *(f"slots/*/{name}" for name in ("work", "tmp", "own/bundle", "own/environment")))
    places = [f"{name}/*" for name in names]

    def is_clean() -> bool:
        return not [found for place in places for found in here.work_dir.glob(place)]

    await asyncio.to_thread(eventually, is_clean, "the directories of ended attempts are removed")
    assert "layers" not in here.of_guardian("mountinfo")
