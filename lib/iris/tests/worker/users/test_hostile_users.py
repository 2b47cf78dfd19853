"""What one user's task can do to another's and to the worker where tasks have uids of their own: real workers."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from iris.domain.states import TaskState
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.key_proof import KEY_FILE, load_or_create_key
from iris.worker.connection.credential import FILE_NAME, new_credential, write_credential
from iris.worker.isolation.plan import IsolationMode
from iris.worker.paths import safe_name
from support.iris.user_worker import WorkerPlace, worker_place
from support.rigging.processes import is_gone

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: that tasks of two users are strangers needs root"),
]

RANGE = "1900000000-1900000001"
SECRET = "of ann alone"
# Ann's task keeps secrets where tasks have them, and waits.
VICTIM = """
echo "of ann alone" > secret.txt; echo "of ann alone" > "$TMPDIR/secret"; echo "of ann alone" > "$HOME/secret"
exec 7< secret.txt; echo ready; while [ ! -e stop ]; do sleep 0.05; done; cat secret.txt
"""
# Tells what worked of all that it tries. Arguments: the work directory, and pids: ann's, the guardian's, the worker's.
HOSTILE = r"""
import ctypes, json, os, signal, socket, subprocess, sys
work, *pids = sys.argv[1:]
done = []
def tries(name, act):
    try:
        found = act()
        if found is not None:
            done.append(f"{name}: {found!r:.200}")
    except (OSError, ValueError):
        pass
def read(path):
    with open(path, "rb") as file:
        return file.read(10_000)
uid = os.getuid()
mine = [f"{work}/{part}/{uid}" for part in ("users", "caches")]
def look(top):
    for directory, _, names in os.walk(top):
        if any(directory.startswith(own) for own in mine):
            continue
        for name in names:
            tries(f"read {directory}/{name}", lambda: read(f"{directory}/{name}") or None)
            tries(f"write {directory}/{name}", lambda: os.open(f"{directory}/{name}", os.O_WRONLY))
            tries(f"remove {directory}/{name}", lambda: os.unlink(f"{directory}/{name}") or "removed")
        tries(f"put into {directory}", lambda: os.open(f"{directory}/new", os.O_WRONLY | os.O_CREAT))
for other in (uid - 1, uid + 1):
    for part in ("users", "caches"):
        tries(f"list {part}/{other}", lambda: os.listdir(f"{work}/{part}/{other}"))
        for name in ("tokens", "errors", "slots", "home", "blobs", "bundles", "envs", "slots/0/work"):
            look(f"{work}/{part}/{other}/{name}")
            tries(f"list {part}/{other}/{name}", lambda: os.listdir(f"{work}/{part}/{other}/{name}"))
look(work)
for name in os.environ["KNOWN"].split(","):
    tries(f"read {name}", lambda: read(f"{work}/{name}"))
    tries(f"link {name}", lambda: os.link(f"{work}/{name}", f"{os.environ['TMPDIR']}/link") or "linked")
libc = ctypes.CDLL(None, use_errno=True)
for pid in map(int, pids):
    for name in ("environ", "maps", "auxv", "stack"):
        tries(f"/proc/{pid}/{name}", lambda: read(f"/proc/{pid}/{name}"))
    tries(f"/proc/{pid}/mem", lambda: os.open(f"/proc/{pid}/mem", os.O_RDONLY))
    tries(f"/proc/{pid}/fd", lambda: os.listdir(f"/proc/{pid}/fd"))
    for place in ("fd/7", "fd/1", "cwd/secret.txt", f"root{work}/{os.environ['KNOWN'].split(',')[0]}"):
        tries(f"/proc/{pid}/{place}", lambda: os.open(f"/proc/{pid}/{place}", os.O_RDONLY | os.O_NONBLOCK))
    for kind in ("mnt", "user"):
        tries(f"enter {kind} of {pid}", lambda: os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY))
    for number in (0, signal.SIGSTOP, signal.SIGKILL):
        tries(f"signal {number} to {pid}", lambda: os.kill(pid, number) or "sent")
    if libc.ptrace(16, pid, None, None) == 0:
        done.append(f"ptrace {pid}")
    pidfd = os.pidfd_open(pid)
    if libc.syscall(438, pidfd, 1, 0) >= 0:
        done.append(f"pidfd_getfd {pid}")
tries("kill all", lambda: os.killpg(int(pids[0]), signal.SIGKILL) or "sent")
for identity in (0, uid - 1, uid + 1):
    tries(f"setuid {identity}", lambda: os.setresuid(identity, identity, identity) or "is")
    tries(f"setgid {identity}", lambda: os.setresgid(identity, identity, identity) or "is")
tries("setgroups", lambda: os.setgroups([0]) or "is")
def guardian():
    with socket.socket(socket.AF_UNIX) as link:
        os.chdir(work)
        link.connect("guardian.sock")
    return "connected"
tries("guardian", guardian)
for path in (os.environ["IRIS_ERROR_FILE"], os.environ["TMPDIR"], os.environ["IRIS_TOKEN_FILE"]):
    above = os.path.dirname(path)
    tries(f"move {above}", lambda: os.rename(above, above + ".moved") or "moved")
    tries(f"own {above}", lambda: os.chown(above, uid, uid) if os.stat(above).st_uid != uid else None)
if "caches" in os.environ.get("IRIS_WORKSPACE_DIR", ""):
    above = os.path.dirname(os.environ["IRIS_WORKSPACE_DIR"])
    tries("put into the cache", lambda: os.mkdir(above + "/new") or "made")
    tries("change what the cache has", lambda: os.chmod(above + "/..", 0o777) or "changed")
    # As root of a user namespace, where there are any.
    unmount = 'mount -o remount,bind,rw "$1/caches"; umount -l "$1/caches" "$2"; mkdir "$2/new" "$1/new"'
    subprocess.run(["unshare", "-Urm", "sh", "-c", unmount, "sh", work, above], capture_output=True)
    tries("put into it by mounts", lambda: os.stat(above + "/new") and "made")
for module in ("iris", "cloudpickle", "os"):
    place = __import__("importlib.util").util.find_spec(module)
    if place and place.origin:
        tries(f"write {place.origin}", lambda: os.open(place.origin, os.O_WRONLY))
print(json.dumps(done))
"""
# Leaves processes that hide from whoever looks for them.
STAYS = r"""
import os, resource, sys, time
for deep in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            resource.setrlimit(resource.RLIMIT_RSS, (1 << 30, resource.RLIM_INFINITY))
            for number in (0, 1, 2):
                os.close(number)
            with open(f"{sys.argv[1]}/{deep}", "w") as file:
                file.write(str(os.getpid()))
            os.execve("/bin/sleep", ["sleep", "60"], {})
        os._exit(0)
while len([name for name in os.listdir(sys.argv[1]) if os.path.getsize(f"{sys.argv[1]}/{name}")]) < 3:
    time.sleep(0.01)
"""


def ann_has(work_dir: Path) -> list[Path]:
    """The files of ann's tasks: as root knows them, and whoever guesses their names."""
    parts = (work_dir / "users" / "1900000000", work_dir / "caches" / "1900000000")
    return [path for part in parts for path in part.rglob("*") if path.is_file() and path.stat().st_size]


@contextlib.asynccontextmanager
async def strangers(open_path: Path, mode: IsolationMode) -> AsyncIterator[tuple[WorkerPlace, str, str]]:
    """A worker with its secrets, a task of ann's that runs on it, and what she says at her end."""
    async with worker_place(open_path, True, isolation=mode, task_users=RANGE) as here:
        write_credential(here.work_dir, new_credential("w1", "c" * 64))
        load_or_create_key(here.work_dir)
        bundle = here.controller.add_bundle({"code.py": "V = 1\n"})
        secret = pb.Environment(env_vars={"API_KEY": SECRET})
        victim = here.start("sh", "-c", VICTIM, bundle=bundle, environment=secret)
        await here.controller.until(lambda: b"ready" in here.controller.output(victim))
        try:
            yield here, victim, bundle
        finally:
            pid = here.controller.observations[victim].pid
            if not here.controller.has_ended(victim):
                (Path(f"/proc/{pid}/root") / os.readlink(f"/proc/{pid}/cwd").lstrip("/") / "stop").touch()
            assert await here.output(victim) == f"ready\n{SECRET}\n"


@pytest.mark.parametrize("mode", list(IsolationMode))
async def test_a_task_reads_forges_and_disturbs_nothing_of_others(open_path: Path, mode: IsolationMode) -> None:
    async with strangers(open_path, mode) as (here, victim, bundle):
        pids = [here.controller.observations[victim].pid, here.guardian, here.worker_pid]
        of_ann = [str(path.relative_to(here.work_dir)) for path in ann_has(here.work_dir)]
        assert {"secret", safe_name(victim)} <= {os.path.basename(name) for name in of_ann}
        names = [FILE_NAME, KEY_FILE, "task-users.json", "guardian.log", "worker.lock", *of_ann]
        known = pb.Environment(env_vars={"KNOWN": ",".join(names)})
        argv = ("python", "-c", HOSTILE, str(here.work_dir), *map(str, pids))
        assert json.loads(await here.run(*argv, user="bob", bundle=bundle, environment=known)) == []
        assert json.loads(await here.run(*argv, user="bob", environment=known)) == []
        assert not any(map(is_gone, pids))
        assert await here.run("python", "-c", "import code; print(code.V)", bundle=bundle) == "1\n"
        owner = "import os; print(os.getuid(), os.getgid(), *os.getgroups(), os.path.expanduser('~'))"
        seen = {(await here.run("python", "-c", owner, user=user)).split()[0] for user in ("ann", "bob", "ann")}
        assert seen == {"1900000000", "1900000001"}


async def test_what_a_task_points_its_worker_to_is_not_told(open_path: Path) -> None:
    """The worker is root, and reads and removes what tasks leave."""
    async with strangers(open_path, IsolationMode.OVERLAY) as (here, _, _):
        secret = str(here.work_dir / FILE_NAME)
        for link in ("ln -s", "ln"):
            for name in ("", ".value"):
                act = f'{link} "$1" "$IRIS_ERROR_FILE{name}"; exit 1'
                end = await here.end(here.start("sh", "-c", act, "sh", secret, user="bob"))
                assert (end.error, end.result, end.exception) == ("exit code 1", b"", b"")
        code = f"import os; os.symlink({secret!r}, os.environ['IRIS_ERROR_FILE'] + '.value'); os._exit(0)"
        end = await here.end(here.start_call(code, user="bob"))
        assert b"cannot read it" in end.result
        trap = 'mkdir -p "$IRIS_ERROR_FILE/deep"; ln -s "$1" deep; ln -s "$1" "$TMPDIR"; exit 1'
        attempt = here.start("sh", "-c", trap, "sh", str(here.work_dir), user="bob")
        assert (await here.end(attempt)).error == "exit code 1"
        here.controller.send(forget=[attempt])
        left = here.work_dir / "users" / "1900000001" / "errors" / safe_name(attempt)
        await asyncio.to_thread(eventually, lambda: not left.exists(), "what it left is removed")
        assert (here.work_dir / FILE_NAME).stat().st_mode & 0o777 == 0o600
        assert here.work_dir.stat().st_mode & 0o777 == 0o711


async def test_what_a_user_leaves_ends_with_its_last_task_whoever_else_runs(open_path: Path) -> None:
    async with strangers(open_path, IsolationMode.OVERLAY) as (here, victim, _):
        shared = open_path / "pids"
        shared.mkdir()
        shared.chmod(0o777)
        assert await here.run("python", "-c", STAYS, str(shared), user="bob") == ""
        left = [int(path.read_text()) for path in shared.iterdir()]
        assert len(left) == 3
        # The end of a task is told at once; what it left is killed a moment later.
        await asyncio.to_thread(eventually, lambda: all(map(is_gone, left)), "what bob has left is gone")
        assert not is_gone(here.controller.observations[victim].pid)


async def test_a_health_command_is_who_its_task_is(open_path: Path) -> None:
    async with strangers(open_path, IsolationMode.OVERLAY) as (here, _, bundle):
        attempt = here.start(
            "sh", "-c", "while sleep 0.05; do :; done", user="bob", bundle=bundle,
            health_cmd=f'id -u; pwd; cat "{here.work_dir / FILE_NAME}"; exit 1',
        )  # fmt: skip
        end = await here.end(attempt)
        assert "unhealthy: the health command failed once, last with output: 1900000001" in end.error
        assert "Permission denied" in end.error
        assert "secret" not in end.error


async def test_a_user_for_whom_there_is_no_uid_gets_a_fault_of_the_host(open_path: Path) -> None:
    async with strangers(open_path, IsolationMode.OVERLAY) as (here, _, bundle):
        assert await here.run("id", "-u", user="bob") == "1900000001\n"
        for launch in ({}, {"bundle": bundle}):
            end = await here.end(here.start("id", "-u", user="cecil", **launch))
            assert TaskState(end.state) is TaskState.WORKER_FAILED
            assert "user 'cecil' gets no uid on this host: all 2 uids of --task-users 1900000000-" in end.error


async def test_environments_are_built_as_their_user_with_caches_of_their_own(
    open_path: Path, workspace_files: dict[str, str | bytes]
) -> None:
    async with worker_place(open_path, True, task_users=RANGE) as here:
        bundle = here.controller.add_bundle(workspace_files)
        look = "import os, jobs, third; print(third.VALUE, os.stat(third.__file__).st_uid, third.__file__)"
        seen = [(await here.run("python", "-c", look, user=user, bundle=bundle)).split() for user in ("ann", "bob")]
        assert [(value, uid) for value, uid, *_ in seen] == [("3", "1900000000"), ("3", "1900000001")]
        assert len({" ".join(place) for _, _, *place in seen}) == 2
        for uid in ("1900000000", "1900000001"):
            assert (here.work_dir / "users" / uid / "home" / ".cache" / "uv").stat().st_uid == int(uid)
        harm = 'T=$(python -c "import third; print(third.__file__)"); echo "VALUE = 4" > "$T"; cat "$T"'
        assert await here.run("sh", "-c", harm, bundle=bundle) == "VALUE = 4\n", "in a layer of its own"
        assert (await here.run("python", "-c", look, bundle=bundle)).split()[0] == "3"


async def test_a_worker_that_comes_back_knows_who_is_who(open_path: Path) -> None:
    async with strangers(open_path, IsolationMode.OVERLAY) as (here, victim, _):
        pid = here.controller.observations[victim].pid
        os.kill(here.worker_pid, signal.SIGKILL)
        await here.restart()
        assert await here.run("id", "-u", user="bob") == "1900000001\n"
        assert await here.run("id", "-u") == "1900000000\n"
        assert not is_gone(pid)
