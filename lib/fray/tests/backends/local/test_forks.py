import atexit
import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

from fray.backends.common.child import write_payload
from fray.backends.local import LocalClient
from fray.backends.local.fork_server import ENDED, READY, STARTED, WORD, ForkRequest, send_request
from fray.errors import JobFailed
from fray.testing import LONG, Flag, eventually
from fray.testing.forks import exit_code_of
from fray.testing.signals import is_running
from fray.types import Entrypoint, EnvironmentConfig, JobRequest, JobStatus

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each callable gets a new interpreter"),
]


@pytest.fixture
def client() -> Iterator[LocalClient]:
    client = LocalClient(processes=True)
    yield client
    client.shutdown(wait=False)


@pytest.fixture
def flag(tmp_path: Path) -> Flag:
    return Flag(str(tmp_path / "flag"))


def call(fn: object, *args: object, name: str = "job", **fields: object) -> JobRequest:
    return JobRequest(name, Entrypoint.from_callable(fn, args), **fields)  # type: ignore[arg-type]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def tell_server(flag: Flag) -> None:
    flag.set(str(parent_of(os.getppid())))


def server_of(client: LocalClient, flag: Flag) -> int:
    Path(flag.path).unlink(missing_ok=True)
    client.submit(call(tell_server, flag, name="asking")).wait(LONG)
    return int(flag.text())


def test_a_callable_has_nothing_open_that_is_not_its_own(client: LocalClient, tmp_path: Path) -> None:
    go_on = Flag(str(tmp_path / "go-on"))
    other = client.submit(call(go_on.wait, name="other"))

    def look() -> list[str]:
        places = [f"/proc/self/fd/{number}" for number in range(3, 64)]
        return [os.readlink(place) for place in places if os.path.exists(place)]

    assert client.submit(call(look)).result(LONG) == []
    go_on.set()
    other.wait(LONG)


def test_what_an_interpreter_reads_when_it_starts_gets_a_new_one(client: LocalClient, flag: Flag) -> None:
    def tell() -> tuple[int, int]:
        return parent_of(os.getppid()), hash("shard")

    seed = {"PYTHONHASHSEED": "5"}
    environment = EnvironmentConfig(workspace=".", env_vars=seed)
    parent, told = client.submit(call(tell, environment=environment)).result(LONG)
    words = [sys.executable, "-c", "print(hash('shard'))"]
    assert told == int(subprocess.run(words, env=seed, capture_output=True, check=True).stdout)
    assert parent != server_of(client, flag)


def test_jobs_end_and_others_begin_though_the_server_died(client: LocalClient, tmp_path: Path, flag: Flag) -> None:
    begun, go_on = Flag(str(tmp_path / "begun")), Flag(str(tmp_path / "go-on"))
    server = server_of(client, flag)

    def work(code: int) -> None:
        begun.set()
        go_on.wait(LONG)
        sys.exit(code)

    job = client.submit(call(work, 7))
    begun.wait(LONG)
    os.kill(server, signal.SIGKILL)
    eventually(lambda: not is_running(server), "the server is gone")
    assert server_of(client, flag) != server
    go_on.set()
    with pytest.raises(JobFailed, match="exit code 7"):
        job.wait(LONG)


def test_a_keeper_that_is_killed_ends_its_job(client: LocalClient, flag: Flag) -> None:
    def end_keeper() -> None:
        flag.set(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()

    with pytest.raises(JobFailed, match=r"signal 9 \(SIGKILL\)"):
        client.submit(call(end_keeper)).wait(LONG)
    eventually(lambda: not is_running(int(flag.text())), "the callable's process is gone with its keeper")


def test_a_workspace_that_is_not_there_fails_the_job(client: LocalClient, tmp_path: Path) -> None:
    environment = EnvironmentConfig(workspace=str(tmp_path / "missing"))
    with pytest.raises(JobFailed, match=r"cannot start its process: No such file or directory.*missing"):
        client.submit(call(os.getpid, environment=environment)).wait(LONG)


def test_the_server_ends_with_a_client_that_is_killed(flag: Flag) -> None:
    script = """
import os, sys
sys.path.insert(0, sys.argv[2])
from test_forks import LocalClient, server_of
from fray.testing import Flag

client = LocalClient(processes=True)
print(server_of(client, Flag(sys.argv[1])), flush=True)
os.kill(os.getpid(), 9)
"""
    words = [sys.executable, "-c", script, flag.path, str(Path(__file__).parent)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=LONG, check=False)
    assert done.returncode == -signal.SIGKILL
    server = int(done.stdout)
    eventually(lambda: not is_running(server), "the server is gone")


def test_jobs_start_though_their_process_forks_at_that_moment() -> None:
    """A fork that kept open what the start of a process waits for would hold up the job, and then the shutdown."""
    script = """
import os
from fray import Entrypoint, JobRequest, LocalClient, wait_all

client = LocalClient(processes=True)
entries = Entrypoint.from_callable(os.getpid), Entrypoint.from_binary("true", [])
jobs = [client.submit(JobRequest(f"job{number}", entry)) for number, entry in enumerate(entries)]
gone, ours = os.pipe()
for _ in range(500):
    if all(job.status().finished() for job in jobs):
        break
    if os.fork() == 0:
        os.close(ours)
        os.read(gone, 1)
        os._exit(0)
try:
    print(*wait_all(jobs, 20))
finally:
    os.close(ours)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LONG, check=False)
    assert done.stdout == "succeeded succeeded\n", done.stderr


def test_callables_share_a_server_which_ends_with_its_client_though_a_fork_of_that_lives(
    flag: Flag, tmp_path: Path
) -> None:
    client = LocalClient(processes=True)
    (server,) = {server_of(client, flag) for _ in range(3)}
    assert server != os.getpid()
    begun, go_on = Flag(str(tmp_path / "begun")), Flag(str(tmp_path / "go-on"))

    def work() -> None:
        begun.set()
        go_on.wait(LONG)

    job = client.submit(call(work))
    begun.wait(LONG)
    gone, ours = os.pipe()
    if (fork := os.fork()) == 0:
        os.close(ours)
        os.read(gone, 1)
        os._exit(0)
    try:
        go_on.set()
        client.shutdown()
        assert job.wait(0) is JobStatus.SUCCEEDED
        eventually(lambda: not is_running(server), "the server is gone")
    finally:
        os.close(ours)
        os.close(gone)
        assert exit_code_of(fork, LONG) == 0


@contextlib.contextmanager
def bare_server() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            words = [sys.executable, "-P", "-m", "fray.backends.local.fork_server", str(theirs.fileno())]
            subprocess.run(words, check=True, pass_fds=[theirs.fileno()])
        ours.settimeout(LONG)
        assert ours.recv(1) == READY
        yield ours


def ask_for(server: socket.socket, request: ForkRequest) -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs, open("/dev/null", "wb") as out:
        directory = os.open("/", os.O_PATH)
        send_request(server, request, (theirs.fileno(), directory, out.fileno()))
        os.close(directory)
    ours.settimeout(LONG)
    return ours


def payload(path: Path, fn: object, *args: object) -> str:
    write_payload(str(path), cloudpickle.dumps((fn, args, {})), sys.path)
    return str(path)


def test_a_request_whose_descriptors_did_not_get_through_is_refused_alone(tmp_path: Path) -> None:
    with bare_server() as server:
        request = ForkRequest(payload(tmp_path / "p", os.getpid), str(tmp_path / "r"), dict(os.environ))
        ours, theirs = socket.socketpair()
        body = pickle.dumps(request)
        socket.send_fds(server, [struct.pack("!I", len(body))], [theirs.fileno()])
        server.sendall(body)
        theirs.close()
        ours.settimeout(LONG)
        assert ours.recv(1) == b""
        ours.close()
        with ask_for(server, request) as job:
            assert WORD.unpack(job.recv(WORD.size, socket.MSG_WAITALL))[0] == STARTED
            assert WORD.unpack(job.recv(WORD.size, socket.MSG_WAITALL)) == (ENDED, 0)


def test_what_is_to_happen_at_the_end_of_a_process_happens(client: LocalClient) -> None:
    def work() -> None:
        def late() -> None:
            threading.main_thread().join(LONG)
            print("thread")

        atexit.register(print, "exit handler")
        threading.Thread(target=late).start()
        print("returned")

    job = client.submit(call(work))
    assert job.wait(LONG) is JobStatus.SUCCEEDED
    assert job.logs() == "returned\nthread\nexit handler\n"
