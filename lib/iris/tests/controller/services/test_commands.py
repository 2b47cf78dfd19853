"""Commands in running tasks, between real clients and scripted workers: who may, where it goes, and how it ends."""

import json
import os
import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import grpc
import pytest

from fray.testing.waiting import eventually
from iris.client.connection.connection import Connection
from iris.client.tasks.command import TaskCommand
from iris.client.tasks.inspection import inspect
from iris.controller.workers import commands as relays
from iris.rpc.auth import PrincipalKind
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.generated import exec_pb2 as pb
from iris.rpc.generated import iris_pb2
from iris.rpc.generated.exec_pb2_grpc import ExecServiceStub
from iris.rpc.protocol import call_metadata
from rigging.errors import Conflict, Denied, InvalidRequest, MarinError, NotFound, Unavailable
from support.iris.controller import RunningController, channel_to
from support.iris.users import User
from support.iris.worker import ScriptedWorker


class Attached:
    """A worker's half of a command."""

    def __init__(self, controller: RunningController, exec_id: str, worker_id: str = "w1") -> None:
        self._channel = channel_to(controller.address)
        self._outputs: queue.SimpleQueue[pb.ExecOutput | None] = queue.SimpleQueue()
        self.send(exec_id=exec_id)
        metadata = call_metadata(controller.worker_token(worker_id))
        self.call: Any = ExecServiceStub(self._channel).Attach(iter(self._outputs.get, None), metadata=metadata)

    def send(self, **kind: Any) -> None:
        self._outputs.put(pb.ExecOutput(**kind))

    def read(self) -> pb.ExecInput:
        return next(self.call)

    def close(self) -> None:
        self._outputs.put(None)
        self._channel.close()


class Calls:
    """A cluster with one running task, /ann/a/0, of one worker."""

    def __init__(self, controller: RunningController, worker: ScriptedWorker) -> None:
        self.controller, self.worker = controller, worker
        self.opened: list[Any] = []

    def connection(self, name: str) -> Connection:
        token = self.controller.token(PrincipalKind.ADMIN if name == "root" else PrincipalKind.USER, name)
        connection = Connection(lambda _: ControllerAddress(str(self.controller.address), token))
        self.opened.append(connection)
        return connection

    def call(self, task_id: str = "/ann/a/0", *argv: str, name: str = "ann", **options: Any) -> TaskCommand:
        return TaskCommand(self.connection(name), task_id, argv or ("ls",), **options)

    def attached(self) -> Attached:
        self.worker.wait(lambda: bool(self.worker.execs), "command")
        self.opened.append(attached := Attached(self.controller, self.worker.execs[-1]))
        return attached


@pytest.fixture
def calls(controller: RunningController, user: User, worker: ScriptedWorker) -> Iterator[Calls]:
    user.submit("/ann/a", cpu_millis=10, memory_bytes=1)
    worker.wait_for_start("/ann/a/0:0")
    worker.observe("/ann/a/0:0", iris_pb2.TASK_STATE_RUNNING)
    eventually(lambda: user.task("/ann/a/0").state == iris_pb2.TASK_STATE_RUNNING, "it runs")
    calls = Calls(controller, worker)
    yield calls
    for opened in calls.opened:
        opened.close()


def collect(command: TaskCommand) -> Callable[[], list[tuple[bytes, bool]] | MarinError]:
    """Read a command's output in a thread; the result waits for its end."""
    found: list[Any] = []

    def read() -> None:
        try:
            found.append(list(command.output()))
        except MarinError as error:
            found.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(20)
        return found[0]

    return result


@pytest.mark.parametrize("name", ["ann", "root"])
def test_messages_go_both_ways_and_the_history_names_the_caller(calls: Calls, name: str, admin: User) -> None:
    command = calls.call("/ann/a/0", "cat", "-n", name=name, terminal=(30, 90), term="xterm")
    output = collect(command)
    attached = calls.attached()
    start = attached.read().start
    assert (start.attempt_id, list(start.argv), start.term) == ("/ann/a/0:0", ["cat", "-n"], "xterm")
    assert (start.terminal.rows, start.terminal.columns) == (30, 90)
    command.write(b"x" * 100_000)
    assert [len(attached.read().stdin) for _ in range(2)] == [65_536, 34_464]
    command.resize(31, 91)
    assert attached.read().window == pb.WindowSize(rows=31, columns=91)
    command.end_input()
    assert attached.read().stdin_ends
    attached.send(stdout=b"out")
    attached.send(stderr=b"err")
    attached.send(end=pb.ExecEnd(exit_signal=9))
    assert output() == [(b"out", False), (b"err", True)]
    assert (command.exit_code, command.error) == (137, "")
    assert not command.write(b"x" * 1_000_000), "it has ended"
    query = iris_pb2.QueryRequest(sql="SELECT caller, action, subject FROM audit WHERE action LIKE '%commands%'")
    rows = eventually(lambda: admin.cluster.Query(query).rows, "the history has it")
    assert [[value.text for value in row.values] for row in rows] == [[name, "run commands in tasks", "/ann/a/0:0"]]


@pytest.mark.parametrize(
    ("task_id", "name", "argv", "error", "text"),
    [
        ("/ann/a/0", "bob", (), Denied, "user bob may not run commands in tasks of /ann/a/0: only user ann and admins"),
        ("/ann/a", "ann", (), InvalidRequest, "'/ann/a' is not a task id; the form is /user/name"),
        ("/ann/a/7", "ann", (), NotFound, "/ann/a"),
        ("/ann/b/0", "ann", (), NotFound, "/ann/b"),
        ("/ann/a/0", "ann", ("",), InvalidRequest, "must name a task and a command"),
    ],
)
def test_a_call_that_cannot_be_is_refused(
    calls: Calls, task_id: str, name: str, argv: tuple[str, ...], error: type[MarinError], text: str
) -> None:
    with pytest.raises(error, match=text):
        list(calls.call(task_id, *argv, name=name).output())
    assert not calls.worker.execs


def test_a_task_that_does_not_run_takes_none(calls: Calls, user: User) -> None:
    user.submit("/ann/big", cpu_millis=1990, memory_bytes=1, replicas=2)
    with pytest.raises(Conflict, match="task /ann/big/1 is pending: it must be running"):
        list(calls.call("/ann/big/1").output())
    calls.worker.observe("/ann/a/0:0", iris_pb2.TASK_STATE_SUCCEEDED)
    user.wait_one("/ann/a")
    with pytest.raises(Conflict, match="task /ann/a/0 is succeeded"):
        list(calls.call().output())


def test_a_worker_that_is_away_or_does_not_answer_is_told(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "ATTACH_S", 0.05)
    with pytest.raises(Unavailable, match=r"worker w1 did not answer within 0.05 s"):
        list(calls.call().output())
    calls.worker.wait(lambda: calls.worker.exec_ends == calls.worker.execs, "end")
    calls.worker.disconnect()

    def is_away() -> bool:
        with pytest.raises(Unavailable) as refused:
            list(calls.call().output())
        return "worker w1 is not connected now" in str(refused.value)

    eventually(is_away, "the controller knows that it is away")


def test_a_caller_that_goes_away_ends_the_command_although_it_reads_no_input(calls: Calls) -> None:
    command = calls.call()
    collect(command)
    attached = calls.attached()
    attached.read()
    threading.Thread(target=command.write, args=(bytes(20_000_000),), daemon=True).start()
    attached.read()
    command.close()
    calls.worker.wait(lambda: calls.worker.exec_ends == calls.worker.execs, "end of the command")


def test_a_worker_that_goes_away_ends_the_call(calls: Calls) -> None:
    output = collect(calls.call())
    attached = calls.attached()
    attached.read()
    attached.send(stdout=b"some")
    attached.call.cancel()
    error = output()
    assert isinstance(error, Unavailable)
    assert str(error) == "the connection to worker w1 broke, which ended the command"


@pytest.mark.parametrize(
    ("exec_id", "worker_id", "code"), [("", "w2", "PERMISSION_DENIED"), ("guess", "w1", "NOT_FOUND")]
)
def test_only_the_tasks_worker_may_attach(calls: Calls, exec_id: str, worker_id: str, code: str) -> None:
    collect(calls.call())
    calls.worker.wait(lambda: bool(calls.worker.execs), "command")
    stranger = Attached(calls.controller, exec_id or calls.worker.execs[0], worker_id)
    calls.opened.append(stranger)
    with pytest.raises(grpc.RpcError) as refused:
        stranger.read()
    assert refused.value.code().name == code  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("target", "what", "name", "error", "text"),
    [
        ("/ann/a/0", "status", "bob", Denied, "user bob may not look at tasks' processes of /ann/a/0"),
        ("worker/w1", "status", "ann", Denied, "user ann may not look at worker/w1: only an admin"),
        ("controller", "logs", "ann", Denied, "user ann may not look at controller: only an admin"),
        ("worker/w9", "status", "root", NotFound, "there is no worker 'w9'"),
        ("w1", "status", "root", InvalidRequest, "'w1' is neither a task's id, nor worker/NAME, nor controller"),
        (
            "/ann/a/0",
            "secrets",
            "ann",
            InvalidRequest,
            "'secrets' is not something to find out; use one of status, logs",
        ),
    ],
)
def test_a_look_that_cannot_be_is_refused(
    calls: Calls, target: str, what: str, name: str, error: type[MarinError], text: str
) -> None:
    with pytest.raises(error, match=text):
        list(inspect(calls.connection(name), target, what))
    assert not calls.worker.execs


def test_a_look_goes_to_the_worker_and_its_result_comes_back(calls: Calls) -> None:
    for target, name, attempt_id in (("/ann/a/0", "ann", "/ann/a/0:0"), ("worker/w1", "root", "")):
        before, found = len(calls.worker.execs), queue.SimpleQueue[Any]()
        look = partial(inspect, calls.connection(name), target, "cpu", 7)
        threading.Thread(target=lambda look=look, found=found: found.put(b"".join(look())), daemon=True).start()
        calls.worker.wait(lambda before=before: len(calls.worker.execs) > before, "request")
        attached = calls.attached()
        start = attached.read().start
        assert (start.attempt_id, start.inspect.what, start.inspect.seconds) == (attempt_id, "cpu", 7)
        attached.send(stdout=b"some")
        attached.send(stdout=b"thing")
        attached.send(end=pb.ExecEnd())
        assert found.get(timeout=20) == b"something"


def test_an_admin_sees_the_controllers_own_process(calls: Calls) -> None:
    (found,) = json.loads(b"".join(inspect(calls.connection("root"), "controller", "status")))[:1]
    assert found["pid"] == os.getpid()
