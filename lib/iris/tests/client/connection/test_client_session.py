"""A client's session with a real controller, by gRPC and by socket: pushed ends, many calls a message, restarts."""

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iris.client import IrisClient, JobAlreadyExists, JobPlan, SomeRefused, Stopped
from iris.client.connection.calls import JobCalls
from iris.client.connection.connection import Connection
from iris.client.connection.session import KnownEnds
from iris.client.connection.streams import GrpcStream, SocketStream
from iris.cluster.types import Entrypoint, JobState, ResourceSpec
from iris.core.state.changes import Changes
from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.protocol import SOCKET_NAME
from iris.store.store import Store
from iris.testing.controller import RunningController, running_controller
from iris.testing.controller_process import fixed_port
from iris.testing.worker import ScriptedWorker, succeed_at_once
from rigging.errors import DeadlineExceeded, Denied, NotFound
from rigging.testing import eventually

TRUE = Entrypoint.from_command("true")
SMALL = ResourceSpec(cpu=0.001, memory="1MB", disk="1MB")


WAY = {"socket": False}


@pytest.fixture(autouse=True, params=[False, True], ids=["grpc", "socket"])
def by_socket(request: pytest.FixtureRequest) -> bool:
    """Whether clients are told of the controller's socket."""
    WAY["socket"] = request.param
    return request.param


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RunningController]:
    with running_controller(tmp_path / "state", port=fixed_port()) as controller:
        yield controller


def open_client(controller: RunningController, user: str = "ann") -> IrisClient:
    token = controller.token(PrincipalKind.USER, user)
    socket = str(controller.config.state_dir / SOCKET_NAME) if WAY["socket"] else ""
    connection = Connection(lambda _: ControllerAddress(str(controller.address), token, socket), reconnect_timeout=30)
    return IrisClient(connection, user=user)


@pytest.fixture
def busy(real: RunningController) -> Iterator[IrisClient]:
    """A client that has made so many calls that it has a session."""
    client = open_client(real)
    for number in range(3):
        client.submit(TRUE, f"first-{number}", SMALL)
    yield client
    client.shutdown()


@pytest.fixture
def worker(real: RunningController) -> Iterator[ScriptedWorker]:
    with ScriptedWorker(real.address, real.worker_token("w1")) as scripted:
        yield scripted


def plans(*names: str) -> list[JobPlan]:
    return [JobPlan(TRUE, name, resources=SMALL) for name in names]


def no_calls_of_their_own(client: IrisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a wait made a call of its own")

    monkeypatch.setattr("iris.client.connection.waiting.poll_jobs", refuse)


def committed_jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each commit from now on writes; grows."""
    sizes: list[int] = []
    commit = Store.commit

    def counting(store: Store, changes: Changes) -> None:
        sizes.append(len(changes.jobs))
        commit(store, changes)

    monkeypatch.setattr(Store, "commit", counting)
    return sizes


def in_background(work: Callable[[], object]) -> "Background":
    return Background(work)


class Background(threading.Thread):
    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.result: object = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:
            self.result = error

    def finished(self) -> object:
        self.join(20)
        assert not self.is_alive()
        return self.result


def test_waits_are_answered_by_push_without_a_call_each(
    busy: IrisClient, worker: ScriptedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_calls_of_their_own(busy, monkeypatch)
    jobs = [busy.submit(TRUE, f"job-{number}", SMALL) for number in range(4)]
    waiting = in_background(lambda: busy.wait_jobs(jobs, timeout=20))
    for job in jobs:
        worker.wait_for_start(f"{job.job_id}/0:0")
    worker.observe(f"{jobs[0].job_id}/0:0", pb.TASK_STATE_SUCCEEDED)
    worker.observe(f"{jobs[1].job_id}/0:0", pb.TASK_STATE_FAILED, exit_code=3)
    assert jobs[0].wait(20).state is JobState.SUCCEEDED
    failed = jobs[1].wait(20, raise_on_failure=False)
    assert (failed.state, failed.exit_code) == (JobState.FAILED, 3)
    for job in jobs[2:]:
        worker.observe(f"{job.job_id}/0:0", pb.TASK_STATE_SUCCEEDED)
    statuses = waiting.finished()
    assert [status.job_id for status in statuses] == [job.job_id for job in jobs]
    assert busy.wait_jobs([jobs[2].job_id], timeout=20)[0].state is JobState.SUCCEEDED


def test_the_socket_is_used_where_there_is_one(busy: IrisClient, by_socket: bool) -> None:
    assert isinstance(busy._calls._session[1]._stream, SocketStream if by_socket else GrpcStream)


def test_without_its_socket_the_controller_is_reached_by_grpc(real: RunningController) -> None:
    (real.config.state_dir / SOCKET_NAME).unlink()
    client = open_client(real)
    assert [job.job_id for job in client.submit_many(plans("a", "b"))] == ["/ann/a", "/ann/b"]
    assert isinstance(client._calls._session[1]._stream, GrpcStream)
    client.shutdown()


def test_any_of_several_and_a_timeout_tell_how_the_others_are(busy: IrisClient, worker: ScriptedWorker) -> None:
    jobs = busy.submit_many(plans("a", "b"))
    worker.wait_for_start(f"{jobs[1].job_id}/0:0")
    worker.observe(f"{jobs[1].job_id}/0:0", pb.TASK_STATE_SUCCEEDED)
    statuses = busy.wait_jobs(jobs, any=True, timeout=20)
    assert [status.state.is_terminal for status in statuses] == [False, True]
    with pytest.raises(DeadlineExceeded, match=f"not ended within 0.05 s: {jobs[0].job_id} is"):
        busy.wait_jobs(jobs, timeout=0.05)


def test_jobs_submitted_together_share_a_commit_and_fail_each_for_itself(
    busy: IrisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy.submit(TRUE, "taken", SMALL)
    commits = committed_jobs(monkeypatch)
    names = [f"many-{number}" for number in range(400)]
    names[7] = "taken"
    words = r"1 of 400 jobs were refused; the first \(place 7\): job /ann/taken"
    with pytest.raises(SomeRefused, match=words) as refused:
        busy.submit_many(plans(*names))
    assert isinstance(refused.value.errors[7], JobAlreadyExists)
    assert refused.value.jobs[7] is None
    assert refused.value.jobs[399].job_id == "/ann/many-399"
    assert [size for size in commits if size > 1] == [399]


def test_many_jobs_are_stopped_by_one_commit(busy: IrisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = busy.submit_many(plans(*(f"queued-{number}" for number in range(300))))
    commits = committed_jobs(monkeypatch)
    results = busy.stop_many([*(job.job_id for job in jobs), "/ann/nobody"], "enough")
    assert results[:300] == [Stopped((job.job_id,)) for job in jobs]
    assert isinstance(results[300], NotFound)
    assert commits == [300]
    assert {status.state for status in busy.wait_jobs(jobs, timeout=20)} == {JobState.KILLED}


def test_open_waits_and_submissions_survive_a_restart_of_the_controller(tmp_path: Path) -> None:
    port = fixed_port()
    with running_controller(tmp_path / "state", port=port) as first:
        client = open_client(first)
        job = client.submit_many(plans("lasting", "other"))[0]
        waiting = in_background(lambda: job.wait(timeout=30))
        # Whether the wait has begun or not makes no difference.
        first.crash()
    submitting = in_background(lambda: client.submit(TRUE, "meanwhile", SMALL))
    with running_controller(tmp_path / "state", port=port) as second:
        assert submitting.finished().job_id == "/ann/meanwhile"
        with ScriptedWorker(second.address, second.worker_token("w1"), script=succeed_at_once):
            assert waiting.finished().state is JobState.SUCCEEDED
    client.shutdown()


def test_an_interrupted_wait_leaves_the_session_whole(busy: IrisClient, worker: ScriptedWorker) -> None:
    job = busy.submit(TRUE, "long", SMALL)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            job.wait(timeout=20)
    finally:
        signal.signal(signal.SIGALRM, previous)
    worker.wait_for_start(f"{job.job_id}/0:0")
    worker.observe(f"{job.job_id}/0:0", pb.TASK_STATE_SUCCEEDED)
    assert job.wait(timeout=20).state is JobState.SUCCEEDED


def test_shutting_down_ends_waits(busy: IrisClient) -> None:
    job = busy.submit(TRUE, "endless", SMALL)
    waiting = in_background(lambda: job.wait(timeout=20))
    eventually(lambda: busy._calls._session[1]._waits, "it waits")
    busy.shutdown()
    assert "Unavailable" in type(waiting.finished()).__name__


def test_a_controller_without_sessions_is_called_as_ever(controller, client) -> None:
    jobs = [client.submit(TRUE, f"job-{number}") for number in range(4)]
    jobs += client.submit_many([JobPlan(TRUE, "many-1"), JobPlan(TRUE, "many-2")])
    for job in jobs:
        controller.end(job.job_id)
    assert {job.wait(timeout=20).state for job in jobs} == {JobState.SUCCEEDED}
    assert len(controller.called("SubmitJob")) == 6
    assert client.stop_many([job.job_id for job in jobs]) == [Stopped((job.job_id,)) for job in jobs]


def test_a_handle_tells_the_end_of_its_own_job_and_an_id_of_whatever_has_it(
    real: RunningController, busy: IrisClient, worker: ScriptedWorker
) -> None:
    job = busy.submit(TRUE, "again", SMALL)
    worker.wait_for_start(f"{job.job_id}/0:0")
    worker.observe(f"{job.job_id}/0:0", pb.TASK_STATE_FAILED, exit_code=1)
    assert job.wait(20, raise_on_failure=False).state is JobState.FAILED
    other = open_client(real)
    other.submit(TRUE, "again", SMALL)
    assert job.wait(20, raise_on_failure=False).state is JobState.FAILED
    with pytest.raises(DeadlineExceeded):
        busy.wait_jobs([job.job_id], timeout=0.05)
    other.shutdown()


def test_what_does_not_exist_or_is_others_cannot_be_waited_for(real: RunningController, busy: IrisClient) -> None:
    eve = open_client(real, "eve")
    eve.submit(TRUE, "hers", SMALL)
    with pytest.raises(NotFound, match="/ann/nothing"):
        busy.wait_jobs(["/ann/nothing"], timeout=20)
    with pytest.raises(Denied, match="/eve/hers"):
        busy.wait_jobs(["/eve/hers"], timeout=20)
    with pytest.raises(SomeRefused) as refused:
        busy.submit_many([*plans("mine"), JobPlan(TRUE, "x", user="eve", resources=SMALL)])
    assert isinstance(refused.value.errors[1], Denied)
    results = busy.stop_many(["/eve/hers", "/ann/mine"])
    assert isinstance(results[0], Denied)
    assert results[1] == Stopped(("/ann/mine",))
    eve.shutdown()


def test_inside_a_job_waits_lend_its_cpu_and_so_are_calls_of_their_own(connection: Connection) -> None:
    calls = JobCalls(connection, lends=True)
    assert calls.wait([("/ann/a", "")], any_of_them=False, seconds=1) is None
    assert calls.wait([("/ann/a", "")], any_of_them=False, seconds=1) is None


def test_an_unused_session_does_not_keep_a_cluster_up(tmp_path: Path) -> None:
    with running_controller(tmp_path / "state", idle_exit_s=0.5) as controller:
        client = open_client(controller)
        jobs = client.submit_many(plans("a", "b"))
        with ScriptedWorker(controller.address, controller.worker_token("w1"), script=succeed_at_once):
            client.wait_jobs(jobs, timeout=20)
            assert not client._calls._session[1].is_over
            controller.join()
        client.shutdown()


def test_ends_are_kept_by_submission_and_in_bounded_number() -> None:
    ends = KnownEnds(most=2)
    ends.submitted("/u/a", "1")
    ends.ended(pb.JobStatus(job_id="/u/a", state=pb.JOB_STATE_FAILED))
    assert ends.find("/u/a", "1").state == pb.JOB_STATE_FAILED
    assert ends.find("/u/a", "") is None
    ends.submitted("/u/a", "2")
    assert ends.find("/u/a", "1") is None
    assert ends.find("/u/a", "2") is None
    ends.submitted("/u/b", "3")
    ends.submitted("/u/c", "4")
    ends.ended(pb.JobStatus(job_id="/u/a"))
    assert ends.find("/u/a", "2") is None
