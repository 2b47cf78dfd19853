import asyncio
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from iris.domain.states import TaskState
from iris.rpc import iris_pb2 as pb
from iris.testing.worker_fixtures import FakeController, InProcessWorker, run_command
from iris.worker.attempts.directories import AttemptDirectories, remove_tree
from iris.worker.isolation.plan import IsolationMode
from iris.worker.paths import WorkPaths
from iris.worker.prepare.task_env import PreparedEnvironment

Play = Callable[[Callable[[FakeController, InProcessWorker], Awaitable[None]]], None]


@pytest.mark.e2e
def test_nobody_finds_what_another_attempt_left(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        leave = 'pwd; echo "$TMPDIR"; echo secret > creds.txt; echo evil > json.py; echo secret > "$TMPDIR/creds"'
        controller.send(run=[run_command("sh", "-c", leave, job_id="/ann/a")])
        await controller.until_ended("/ann/a/0:0")
        directory, temporary = controller.output("/ann/a/0:0").decode().split()
        look = (
            f"pwd; ls -A . {directory} {temporary} {worker.paths.trash}; python -c 'import json; print(json.__file__)'"
        )
        controller.send(run=[run_command("sh", "-c", look, job_id="/bob/b")])
        (end,) = await controller.until_ended("/bob/b/0:0")
        seen = controller.output("/bob/b/0:0").decode()
        assert directory != seen.splitlines()[0], end.error
        assert "creds" not in seen
        assert "json.py" not in seen.replace("json/__init__.py", "")
        assert seen.splitlines()[-1].endswith("json/__init__.py")

    play(scenario)


@pytest.mark.e2e
def test_the_temporary_directory_is_the_jobs_to_choose_and_short_enough_for_sockets(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        name = f"/ann/{'x' * 100}"
        controller.send(run=[run_command("sh", "-c", 'echo "$TMPDIR"', job_id=name)])
        await controller.until_ended(f"{name}/0:0")
        own = controller.output(f"{name}/0:0").decode().strip()
        assert own.startswith(f"{worker.paths.root}/slots/")
        assert len(own) - len(str(worker.paths.root)) < 20
        environment = pb.Environment(env_vars={"TMPDIR": "/dev/shm"})
        controller.send(run=[run_command("sh", "-c", 'echo "$TMPDIR"', job_id="/ann/b", environment=environment)])
        await controller.until_ended("/ann/b/0:0")
        assert controller.output("/ann/b/0:0") == b"/dev/shm\n"

    play(scenario)


@pytest.mark.e2e
@pytest.mark.parametrize("removed", ["../../../slots", "../../../{slots,tokens,spare,layers,errors,logs}", "../../*"])
def test_a_task_that_removes_the_workers_directories_fails_no_other(play: Play, removed: str) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[run_command("true", job_id=f"/ann/{index}") for index in range(3)])
        await controller.until_ended(*(f"/ann/{index}/0:0" for index in range(3)))
        controller.send(run=[run_command("bash", "-c", f"rm -rf {removed}; true", job_id="/ann/a")])
        await controller.until_ended("/ann/a/0:0")
        for name in ("/bob/b", "/bob/c"):
            controller.send(run=[run_command("sh", "-c", "pwd", job_id=name)])
            (end,) = await controller.until_ended(f"{name}/0:0")
            assert end.state == TaskState.SUCCEEDED, end.error
            assert controller.output(f"{name}/0:0").decode().startswith(str(worker.paths.slots))

    play(scenario)


LEFT_BEHIND = """
mkdir -p locked/inner "$TMPDIR/locked" deep
touch locked/inner/file "$TMPDIR/locked/file"
chmod 000 locked/inner locked "$TMPDIR/locked" "$TMPDIR" .
"""


@pytest.mark.e2e
def test_no_modes_that_a_task_sets_keep_its_directories(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[run_command("sh", "-c", LEFT_BEHIND)])
        (end,) = await controller.until_ended("/user/job/0:0")
        assert end.state == TaskState.SUCCEEDED, controller.output("/user/job/0:0", stderr=True)
        assert os.listdir(worker.paths.slots) == []
        await asyncio.to_thread(wait_until_empty, worker.paths.trash)

    play(scenario)


def wait_until_empty(directory: Path, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while left := os.listdir(directory):
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def remove_as_an_ordinary_user(path: Path) -> None:
    """Remove a tree as `nobody` if this is root, for whom modes mean nothing."""
    code = (
        "import os, sys; from iris.worker.attempts.directories import remove_tree\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "remove_tree(sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], timeout=60, check=True)


def test_modes_depth_links_and_sockets_are_no_obstacles(open_path: Path) -> None:
    outside = open_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    trash = open_path / "trash"
    tree = trash / "tree"
    tree.mkdir(parents=True)
    (tree / "link").symlink_to(outside)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tree / "socket"))
    os.mkfifo(tree / "pipe")
    deep = tree
    before = os.getcwd()
    try:
        os.chdir(deep)
        for _ in range(300):
            os.mkdir("d" * 20)
            os.chdir("d" * 20)
    finally:
        os.chdir(before)
    locked = tree / "locked" / "inner"
    locked.mkdir(parents=True)
    (locked / "file").touch()
    if os.geteuid() == 0:
        subprocess.run(["chown", "-hR", "65534:65534", str(trash)], check=True)
    for path in (locked, locked.parent, tree):
        path.chmod(0)
    remove_as_an_ordinary_user(tree)
    assert os.listdir(trash) == []
    assert os.listdir(outside) == ["kept"]
    assert stat.S_IMODE(outside.stat().st_mode) != 0


def test_what_a_former_worker_left_is_removed_but_for_what_goes_on(tmp_path: Path) -> None:
    paths = WorkPaths(tmp_path)
    paths.make()
    directories = AttemptDirectories(paths, IsolationMode.OVERLAY, lambda work: work())
    for name in ("/a/gone/0:0", "/a/stays/0:0"):
        (Path(directories.make(name, PreparedEnvironment())) / "file").touch()
    Path(paths.attempt("/a/former/0:0")).mkdir()  # a release before kept them there
    Path(paths.attempt("/a/old/0:0")).mkdir()
    (paths.trash / "half").mkdir()
    stays = directories.slot("/a/stays/0:0")
    second = AttemptDirectories(paths, IsolationMode.OVERLAY, lambda work: work())
    second.adopt("/a/stays/0:0", stays)
    second.keep_only(["/a/stays/0:0", "/a/former/0:0"])
    assert [str(path) for path in paths.slots.iterdir()] == [stays]
    assert [path.name for path in paths.attempts.iterdir()] == ["a~former~0~~0"]
    assert list(paths.trash.iterdir()) == []
    for name in ("/a/stays/0:0", "/a/former/0:0"):
        second.remove(name)
    assert [list(place.iterdir()) for place in (paths.slots, paths.attempts, paths.trash)] == [[]] * 3
    remove_tree(str(tmp_path / "not there"))
