"""One cluster however many start it, with a stand-in for its controller; and a clear line when it cannot be started."""

import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from iris.local import daemon
from iris.local.settings import LocalSettings, file_variables, write_settings
from iris.local.start import (
    LocalCluster,
    controller_command,
    controller_environment,
    daemon_environment,
    foreground_command,
    log_size,
    open_log,
)
from iris.local.state import LocalPaths, held_lock, is_locked, lock_holder, read_record, wait_unlocked, write_record
from iris.worker.host.environment import host_environment
from rigging.errors import Conflict, Unavailable

# It listens, tells so and stays; each start leaves a line in "starts".
CONTROLLER = """
import os, signal, socket, sys
from iris.local.state import *
from iris.rpc.protocol import PROTOCOL_VERSION
paths, fd, mode = LocalPaths(Path(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
if os.fork():
    os._exit(0)
with held_lock(paths.controller_lock, timeout=5):
    with open(paths.root / "starts", "a") as file:
        file.write(f"{os.getpid()}\\n")
    print("mode", mode, flush=True)
    if mode == "dies":
        sys.exit("a reason in the log")
    if mode == "complains":
        os.write(fd, b"error: no port is free\\n")
        sys.exit(1)
    if mode == "worker":
        os.write(fd, b"worker: its disk is bad\\n")
    if mode == "works":
        server = socket.create_server(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % server.getsockname()[1]
        write_record(paths, ClusterRecord(os.getpid(), address, "u", "w", PROTOCOL_VERSION, "0", 1, 5.0, True))
        os.write(fd, b"ready\\n")
        os.close(fd)
    signal.pause()
"""


@pytest.fixture
def starts(paths: LocalPaths) -> Callable[[], list[int]]:
    """The pids of the controllers started so far."""
    file = paths.root / "starts"
    return lambda: [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.fixture
def make_cluster(paths: LocalPaths, starts: Callable[[], list[int]]) -> Iterator[Callable[..., LocalCluster]]:
    def make(mode: str = "works", **options) -> LocalCluster:
        def command(state: LocalPaths, ready_fd: int, idle: float) -> list[str]:
            return [sys.executable, "-c", CONTROLLER, str(state.root), str(ready_fd), mode]

        return LocalCluster(paths, command=command, **options)

    yield make
    for pid in starts():
        if lock_holder(paths.controller_lock) == pid:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("settings", "reaches"),
    [
        (LocalSettings(), False),
        (LocalSettings(remote_state_dir="gs://bucket/iris"), True),
        (LocalSettings(config="/c.yaml"), True),  # which may name one
    ],
)
def test_only_a_remote_state_gets_what_reaches_it(paths: LocalPaths, settings: LocalSettings, reaches: bool) -> None:
    write_settings(paths, settings)
    environ = {"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "sesame", "IRIS_JOB_ID": "/ann/a"}
    given = controller_environment(environ, paths)
    assert ("AWS_SECRET_ACCESS_KEY" in given) == reaches
    assert "AWS_SECRET_ACCESS_KEY" not in daemon_environment(environ, paths)
    assert (given["PATH"], given["IRIS_STATE_DIR"]) == ("/bin", str(paths.root))
    assert "IRIS_JOB_ID" not in given


def test_the_controller_gets_the_variables_of_its_file_and_workers_do_not(paths: LocalPaths, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("name: ${MY_PASSWORD}-$${OTHER}")
    write_settings(paths, LocalSettings(config=str(tmp_path / "c.yaml")))
    environ = {"MY_PASSWORD": "sesame", "OTHER": "x"}
    given = controller_environment(environ, paths)
    assert (given.get("MY_PASSWORD"), given.get("OTHER")) == ("sesame", None)
    assert host_environment(given, names=file_variables(paths)) == {**given, "MY_PASSWORD": "sesame"}
    assert "MY_PASSWORD" not in daemon_environment(environ, paths)


def test_the_cluster_gets_nothing_of_the_job_it_was_started_from_nor_a_worker_what_reaches_storage(paths):
    shell = {
        "PATH": "/bin", "IRIS_JOB_ID": "/ann/x", "IRIS_TOKEN_FILE": "t", "MARIN_PREFIX": "p", "IRIS_STATE_DIR": "s",
        "AWS_SECRET_ACCESS_KEY": "k", "MY_PASSWORD": "p",
    }  # fmt: skip
    expected = {"PATH": "/bin", "IRIS_STATE_DIR": str(paths.root), "GRPC_VERBOSITY": "ERROR"}
    assert daemon_environment(shell, paths) == expected
    assert daemon_environment(shell, paths, storage=True) == {**expected, "AWS_SECRET_ACCESS_KEY": "k"}

    class Left(BaseException):
        pass

    class Leaves(Noted):
        def detach(self) -> None:
            raise Left

    own = Leaves()
    with pytest.raises(Left):
        daemon.main(["worker", "--state-dir", str(paths.root)], own)
    assert own.done == [("prepared", False)]


def test_a_log_goes_on_until_it_is_large_and_is_kept_once_then(paths):
    paths.make()
    log = paths.controller_log
    for text in (b"one", b"two"):
        with open_log(log) as file:
            file.write(text)
    assert (log.read_bytes(), log.stat().st_mode & 0o777) == (b"onetwo", 0o600)
    os.truncate(log, 4 * 2**20)
    open_log(log).close()
    assert log_size(log) == 4 * 2**20
    os.truncate(log, 4 * 2**20 + 1)
    open_log(log).close()
    old = log.with_name("controller.log.old")
    assert (log_size(log), log_size(old)) == (0, 4 * 2**20 + 1)
    assert log_size(paths.worker_log) == 0, "where there is none"


class Noted(daemon.OwnProcess):
    """Notes what the process would do to itself."""

    def __init__(self) -> None:
        self.done: list[object] = []

    def prepare(self, is_controller: bool, names: Collection[str] = ()) -> None:
        self.done.append(("prepared", is_controller))

    def detach(self) -> None:
        self.done.append("detached")

    def be_controller(self, *given: object) -> int:
        self.done.append(given)
        return 3


@pytest.mark.parametrize("foreground", [False, True])
def test_a_controllers_process_understands_how_it_is_started(paths, foreground):
    own = Noted()
    command = foreground_command(paths, 2.5) if foreground else controller_command(paths, 9, 2.5)
    assert command[1:3] == ["-m", "iris.local.daemon"]
    assert daemon.main(command[3:], own) == 3
    detached = [] if foreground else ["detached"]
    assert own.done == [("prepared", True), *detached, (paths, -1 if foreground else 9, 2.5, foreground)]


def test_whoever_starts_a_process_in_the_background_does_not_wait_for_all_of_its_life(paths):
    reader, writer = os.pipe()
    if not (child := os.fork()):
        # It leaves at once, and the one that stays tells which process it is.
        try:
            os.close(reader)
            daemon.OwnProcess().detach()
            os.write(writer, str(os.getpid()).encode())
        finally:
            os._exit(5)
    os.close(writer)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with open(reader) as told:
        assert int(told.read()) != child


@pytest.mark.process
class TestStarts:
    def test_the_first_starts_it_the_next_finds_it_and_a_killed_one_is_replaced(self, make_cluster, starts, paths):
        told = []
        first = make_cluster(on_event=told.append).ensure()
        again = make_cluster("dies", on_event=told.append).ensure()
        assert (first.started, again.started) == (True, False)
        assert first.record == again.record
        assert len(starts()) == 1
        assert told == [f"starting a local cluster (state in {paths.root})"]
        os.kill(first.record.pid, signal.SIGKILL)
        assert wait_unlocked(paths.controller_lock, timeout=10)
        assert read_record(paths) is not None
        assert make_cluster().find() is None
        second = make_cluster().ensure()
        assert (second.started, second.record.pid != first.record.pid) == (True, True)

    def test_many_at_once_start_one(self, make_cluster, starts):
        with ThreadPoolExecutor(6) as pool:
            found = [begun.result(30) for begun in [pool.submit(make_cluster().ensure) for _ in range(6)]]
        assert len(starts()) == 1
        assert sorted(one.started for one in found) == [False] * 5 + [True]
        assert len({one.record.address for one in found}) == 1

    def test_one_that_is_not_ready_is_waited_for_and_another_protocol_refused(self, make_cluster, paths, starts):
        record = make_cluster().ensure().record
        write_record(paths, dataclasses.replace(record, ready=False))
        found = make_cluster().find()
        assert found is not None, "its controller answers"
        assert not found.ready
        with pytest.raises(Unavailable, match=r"not ready within 0\.1 s"):
            make_cluster(start_timeout=0.1).ensure()
        joins = threading.Timer(0.1, write_record, (paths, record))
        joins.start()
        assert make_cluster().ensure().record.ready
        joins.join()
        told = []
        write_record(paths, dataclasses.replace(record, ready=False, worker_trouble="its disk is bad"))
        troubled = make_cluster(on_event=told.append).ensure()
        assert (troubled.started, troubled.record.worker_trouble, len(starts())) == (False, "its disk is bad", 1)
        assert told == ["the local cluster's worker does not start; trying again: its disk is bad"]
        write_record(paths, dataclasses.replace(record, protocol_version=99))
        with pytest.raises(Conflict, match=r"speaks protocol 99.*iris cluster stop"):
            make_cluster().ensure()

    @pytest.mark.parametrize(
        ("mode", "words", "stays"),
        [
            ("worker", r"worker does not start: its disk is bad; its controller runs and tries", True),
            ("complains", r"did not start: no port is free \(its log", False),
            ("hangs", r"not ready within 0\.2 s", True),
        ],
    )
    def test_why_it_did_not_start_is_told(self, make_cluster, paths, mode, words, stays):
        with pytest.raises(Unavailable, match=words):
            make_cluster(mode, start_timeout=0.2 if mode == "hangs" else 30).ensure()
        if stays:
            eventually(lambda: is_locked(paths.controller_lock), "it goes on")

    def test_a_controller_that_dies_shows_the_end_of_its_log(self, make_cluster):
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"exited before it was ready; its log .*\.log ends:") as died:
                make_cluster("dies").ensure()
            assert str(died.value).endswith("ends:\n  mode dies\n  a reason in the log")
            assert str(died.value).count("mode dies") == 1, "only the log of this start"

    def test_a_controller_that_holds_the_directory_but_does_not_answer_is_named(self, make_cluster, paths):
        paths.make()
        with (
            held_lock(paths.controller_lock, timeout=1),
            pytest.raises(Unavailable, match=rf"process {os.getpid()}\) holds .*iris cluster stop --force"),
        ):
            make_cluster(leaving_timeout=0.05).ensure()

    def test_a_controller_that_is_leaving_is_waited_for(self, make_cluster, paths, starts):
        paths.make()
        told, held = [], held_lock(paths.controller_lock, timeout=1)
        held.__enter__()

        def release_when_waited_for(line: str) -> None:
            told.append(line)
            if "waiting for the previous" in line:
                held.__exit__(None, None, None)

        found = make_cluster(on_event=release_when_waited_for).ensure()
        assert found.started
        assert "waiting for the previous" in told[0]
        assert is_locked(paths.controller_lock)

    def test_whoever_interrupts_a_start_is_told_that_it_may_go_on(self, make_cluster, starts, paths):
        told = []
        main = threading.get_ident()

        def interrupt() -> None:
            eventually(starts, "it has begun", timeout=30)
            signal.pthread_kill(main, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            make_cluster("hangs", on_event=told.append, start_timeout=30).ensure()
        thread.join(30)
        assert told[1:] == ["the cluster may continue to start without this command; `iris cluster stop` ends it"]
        assert is_locked(paths.controller_lock)
