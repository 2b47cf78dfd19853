"""What one task writes reaches no other: real workers as root and as an ordinary user, with every way of isolation."""

import asyncio
import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from iris.domain.states import TaskState
from iris.testing.ordinary_user import NOBODY, ordinary_user
from iris.testing.worker_fixtures import FakeController, run_command
from iris.worker.isolation.plan import IsolationMode
from rigging.testing import eventually

pytestmark = pytest.mark.e2e

OVERLAY, BIND, COPY = IsolationMode.OVERLAY, IsolationMode.BIND, IsolationMode.COPY
WORK = "work, dir"  # with characters that options of mounts must escape

MAIN = """
import sys
from pathlib import Path
from iris.domain.resources import Resources
from iris.rpc.controller_address import ControllerAddress
from iris.worker.app import WorkerConfig, run_worker
from iris.worker.isolation.plan import IsolationMode

work_dir, port, mode = Path(sys.argv[1]), sys.argv[2], IsolationMode(sys.argv[3])
config = WorkerConfig(work_dir, "w1", Resources(4000, 1 << 30, 1 << 30), guardian_linger_s=1, isolation=mode)
sys.exit(run_worker(config, lambda: ControllerAddress(f"127.0.0.1:{port}", "w:w1:token")))
"""

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
exit 0
""".replace("exit 0", "")

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


PROBE = "import iris.worker.app"


EVERY_WAY = pytest.mark.parametrize(
    ("mode", "as_root"),
    [
        pytest.param(
            mode, as_root, id=f"{mode}-{'root' if as_root else 'user'}", marks=[] if fast else [pytest.mark.slow]
        )
        for mode, as_root, fast in (
            *((OVERLAY, True, True), (OVERLAY, False, True)),
            *((BIND, True, False), (BIND, False, False)),
            *((COPY, True, False), (COPY, False, True)),
        )
    ],
)


class Place:
    """A controller with one worker process."""

    def __init__(self, controller: FakeController, work_dir: Path) -> None:
        self.controller = controller
        self.work_dir = work_dir
        self._jobs = 0

    async def run(self, user: str, *argv: str, bundle: str = "", payload: str = "") -> str:
        """What a job of one task writes, which must succeed."""
        self._jobs += 1
        job = f"/{user}/job{self._jobs}"
        self.controller.send(run=[run_command(*argv, job_id=job, bundle=bundle, payload=payload)])
        (end,) = await self.controller.until_ended(f"{job}/0:0", timeout_s=60)
        output = self.controller.output(f"{job}/0:0").decode()
        assert end.state == TaskState.SUCCEEDED, (end.error, output, self.errors(job))
        return output

    def errors(self, job: str) -> str:
        return self.controller.output(f"{job}/0:0", stderr=True).decode()

    async def call(self, user: str, code: str, bundle: str = "") -> str:
        """What a callable writes."""
        payload = self.controller.add_blob(pickle.dumps((exec, (code, {}), {})))
        return await self.run(user, bundle=bundle, payload=payload)

    def mounts(self) -> str:
        """What is mounted in the guardian's own namespace."""
        return Path(f"/proc/{int((self.work_dir / 'guardian.lock').read_text())}/mountinfo").read_text()

    def guardian_log(self) -> str:
        return (self.work_dir / "guardian.log").read_text()


def start_worker(
    open_path: Path, controller: FakeController, mode: IsolationMode, command: list[str], variables: dict[str, str]
) -> "subprocess.Popen[bytes]":
    work_dir, home = open_path / WORK, open_path / "home"
    changes_user = os.geteuid() == 0 and command[0] != sys.executable
    for directory in (work_dir, home):
        directory.mkdir()
        if changes_user:
            os.chown(directory, NOBODY, NOBODY)
    return subprocess.Popen(
        [*command, "-c", MAIN, str(work_dir), str(controller.port), mode],
        env={**os.environ, **variables, "HOME": str(home), "UV_CACHE_DIR": str(home / "uv"), "UV_OFFLINE": "1"},
    )


@contextlib.asynccontextmanager
async def place(open_path: Path, mode: IsolationMode, as_root: bool) -> AsyncIterator[Place]:
    if as_root and os.geteuid() != 0:
        pytest.skip("needs root")
    found = ([sys.executable], {}) if as_root else ordinary_user()
    if found is None:
        pytest.skip("no Python here that an ordinary user can run (or no setpriv)")
    controller = FakeController()
    await controller.start()
    process = start_worker(open_path, controller, mode, *found)
    try:
        await controller.until(lambda: controller.hellos)
        yield Place(controller, open_path / WORK)
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, 20)
        await controller.stop()


@EVERY_WAY
def test_what_a_command_writes_stays_its_own(
    open_path: Path, workspace_files: dict[str, str | bytes], mode: IsolationMode, as_root: bool
) -> None:
    async def scenario() -> None:
        async with place(open_path, mode, as_root) as here:
            bundle = here.controller.add_bundle({**workspace_files, **FILES})
            before = await here.run("ann", "sh", "-c", LOOK, bundle=bundle)
            assert before.splitlines()[:5] == ["1 3 False", "value 1", "not empty", "moved", "mode"]
            seen = await here.run("ann", "sh", "-c", CARELESS + LOOK, "sh", str(here.work_dir), bundle=bundle)
            assert seen.startswith("666 "), seen
            if mode is OVERLAY:
                # Its view of the environment, too, is its own to write.
                assert seen.startswith("666 666 True\nvalue 666\n"), seen
            for user in ("bob", "ann"):
                assert await here.run(user, "sh", "-c", LOOK, bundle=bundle) == before
            await nothing_is_left(here)

    asyncio.run(scenario())


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
def test_what_a_callable_writes_stays_its_own(
    open_path: Path, workspace_files: dict[str, str | bytes], mode: IsolationMode, as_root: bool
) -> None:
    async def scenario() -> None:
        async with place(open_path, mode, as_root) as here:
            bundle = here.controller.add_bundle({**workspace_files, **FILES})
            warm = False
            for _ in range(20):
                *_, was_warm, seen = (await here.call("ann", WARM + LOOK_CALL, bundle)).splitlines()
                assert seen == "1 3"
                warm = was_warm == "True"
                if warm or mode is COPY:
                    break
            assert warm is (mode is not COPY), "attempts with copies of their own cannot share an interpreter"
            careless = WARM + CARELESS_CALL.format(root=str(here.work_dir))
            assert await here.call("ann", careless, bundle) == f"{warm}\n666\n"
            for user in ("ann", "bob"):
                assert (await here.call(user, WARM + LOOK_CALL, bundle)).splitlines()[1] == "1 3"
            await nothing_is_left(here)

    asyncio.run(scenario())


HARM_OWN = """
P=$(python -c 'import cloudpickle; print(cloudpickle.__file__)')
I=$(python -c 'import iris.worker; print(iris.worker.__file__)')
for file in "$P" "$I"; do echo 'raise SystemExit(66)' >> "$file"; rm -f "$file"; touch "$(dirname "$file")/new.py"; done
for file in "$1"/blobs/*; do echo 666 > "$file"; rm -f "$file"; done
ls "$1/trash"; exit 0
"""


@pytest.mark.parametrize("mode", [OVERLAY, BIND])
def test_the_workers_own_environment_and_payloads_cannot_be_written(open_path: Path, mode: IsolationMode) -> None:
    async def scenario() -> None:
        async with place(open_path, mode, as_root=os.geteuid() == 0) as here:
            calls = [await here.call("ann", "print('called')") for _ in range(3)]
            await here.run("bob", "sh", "-c", HARM_OWN, "sh", str(here.work_dir))
            calls.append(await here.call("ann", "print('called')"))
            calls.append(await here.run("bob", "python", "-c", "import cloudpickle, iris.worker; print('called')"))
            assert calls == ["called\n"] * 5

    asyncio.run(scenario())


def test_what_python_compiles_of_a_bundle_is_there_for_later_attempts_but_never_stale(open_path: Path) -> None:
    look = "import sub.m as m, os; print(m.V, os.path.exists(m.__cached__))"

    async def scenario() -> None:
        async with place(open_path, OVERLAY, as_root=os.geteuid() == 0) as here:
            bundle = here.controller.add_bundle({"sub/m.py": "V = 1\n", "bad.py": "V = = 1\n"})
            argv = ("env", "PYTHONDONTWRITEBYTECODE=1", "python", "-c")
            seen = [await here.run("ann", *argv, look, bundle=bundle) for _ in range(2)]
            assert seen == ["1 False\n"] * 2
            async with asyncio.timeout(20):
                while await here.run("ann", *argv, look, bundle=bundle) != "1 True\n":
                    pass
            edit = f"open('sub/m.py', 'w').write('V = 3'); {look}"
            assert await here.run("ann", *argv, edit, bundle=bundle) == "3 True\n"
            assert await here.run("bob", *argv, look, bundle=bundle) == "1 True\n"
            await here.run("bob", "sh", "-c", "for file in sub/__pycache__/*; do echo 666 > $file; done", bundle=bundle)
            assert await here.run("ann", *argv, look, bundle=bundle) == "1 True\n"

    asyncio.run(scenario())


def test_the_log_says_which_way_is_used_and_why_nothing_better(open_path: Path) -> None:
    async def scenario() -> None:
        async with place(open_path, COPY, as_root=os.geteuid() == 0) as here:
            assert await here.run("ann", "echo", "hi") == "hi\n"
            assert "tasks are isolated by copy (nothing better is wanted)" in here.guardian_log()

    asyncio.run(scenario())


async def nothing_is_left(here: Place) -> None:
    slots = here.work_dir / "slots"

    def left() -> list[str]:
        of_slots = [
            path for name in ("work", "tmp", "own/bundle", "own/environment") for path in slots.glob(f"*/{name}")
        ]
        places = (*(here.work_dir / name for name in ("layers", "trash")), *of_slots)
        return [f"{place}/{found}" for place in places for found in os.listdir(place)]

    await asyncio.to_thread(eventually, lambda: not left(), "the directories of ended attempts are removed")
    assert "layers" not in here.mounts()
