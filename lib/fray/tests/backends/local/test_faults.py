"""Jobs of the local backend whose own machinery meets something it does not expect: they end, and say why."""

import logging
import os
import signal
import threading
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from fray.backends.local import LocalClient
from fray.backends.local.slots import Slot, SlotPool
from fray.backends.local.subprocess_call import SubprocessCall
from fray.errors import JobFailed
from fray.testing import LONG, eventually
from fray.types import Entrypoint, EnvironmentConfig, JobRequest, JobStatus
from rigging.errors import Conflict

TRUE = Entrypoint.from_binary("true")


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.process)])
def test_a_job_that_cannot_be_started_fails_and_gives_its_slot_back(replicas: int, processes: bool) -> None:
    with LocalClient(max_threads=1, processes=processes) as client:
        # Past the checks of the types, as a change after construction is.
        environment = EnvironmentConfig(workspace=".", env_vars={"A": "x"})
        object.__setattr__(environment, "env_vars", {"A": "x\0"})
        job = client.submit(JobRequest("job", TRUE, environment=environment, replicas=replicas))
        with pytest.raises(ValueError, match="null byte"):
            job.wait(LONG)
        assert job.status() is JobStatus.FAILED
        assert client.submit(JobRequest("job", TRUE)).wait(LONG) is JobStatus.SUCCEEDED


def test_whatever_fails_in_a_job_ends_it(client: LocalClient) -> None:
    request = JobRequest("job", Entrypoint.from_binary("false"))
    object.__setattr__(request, "max_retries_failure", "many")
    with pytest.raises(TypeError):
        client.submit(request).wait(LONG)


def test_a_program_whose_exit_code_nobody_gets_fails_the_job() -> None:
    taken = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with LocalClient(max_threads=1) as client:
            for _ in range(2):
                with pytest.raises(JobFailed, match="the exit code of 'true' is unknown: this process ignores SIGCHLD"):
                    client.submit(JobRequest("job", TRUE)).wait(LONG)
    finally:
        signal.signal(signal.SIGCHLD, taken)


def test_a_pool_keeps_its_slots_whatever_its_functions_raise(caplog: pytest.LogCaptureFixture) -> None:
    pool = SlotPool(1, 1)
    ran = threading.Event()

    def fail(_: Slot) -> None:
        raise SystemExit(3)

    with caplog.at_level(logging.CRITICAL):
        pool.start(fail, 1)
        pool.start(lambda _: ran.set(), 1)
        assert ran.wait(LONG)
        pool.join()


class EndsItsProcess(Exception):
    """Ends the process that packs it."""

    def __reduce__(self) -> tuple[object, ...]:
        os._exit(3)


@pytest.mark.process
def test_a_process_that_dies_while_it_packs_its_exception() -> None:
    def raise_the_end() -> None:
        raise EndsItsProcess

    with LocalClient(processes=True) as client, pytest.raises(JobFailed, match="exit code 3") as caught:
        client.submit(JobRequest("job", Entrypoint.from_callable(raise_the_end))).wait(LONG)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("left", [b"", b"\x80\x04garbage", b"N."])
def test_what_is_no_exception_counts_as_none(left: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = tmp_path / "1.error"
    result.write_bytes(left)
    (tmp_path / "1.error.part").write_bytes(b"half")
    with caplog.at_level(logging.CRITICAL):
        assert SubprocessCall.raised(result, "job 'job'") is None
    assert list(tmp_path.iterdir()) == []


def test_shutdown_lets_running_jobs_submit(client: LocalClient) -> None:
    own = LocalClient(max_threads=1)
    begun, closing, done = threading.Event(), threading.Event(), threading.Event()

    def parent() -> None:
        begun.set()
        closing.wait(LONG)
        own.submit(JobRequest("child", Entrypoint.from_callable(done.set))).wait(LONG)
        own.create_actor(Cancels, name="actor")

    job = own.submit(JobRequest("parent", Entrypoint.from_callable(parent)))
    assert begun.wait(LONG)
    shutdown = threading.Thread(target=own.shutdown)
    shutdown.start()
    eventually(lambda: own.closed, "it is being shut down")
    with pytest.raises(Conflict, match="has been shut down"):
        own.submit(JobRequest("late", TRUE))

    def stranger() -> None:
        own.submit(JobRequest("strange", TRUE))

    with pytest.raises(Conflict, match="has been shut down"):
        client.submit(JobRequest("stranger", Entrypoint.from_callable(stranger))).wait(LONG)
    closing.set()
    assert job.wait(LONG) is JobStatus.SUCCEEDED
    assert done.is_set()
    shutdown.join(LONG)
    assert not shutdown.is_alive()
    with pytest.raises(Conflict, match="has been shut down"):
        own.submit(JobRequest("later", TRUE))
    own.shutdown()


class Cancels:
    """An actor whose method raises what a future raises that was cancelled."""

    def fail(self) -> None:
        """Raise it."""
        raise CancelledError("its own")


def test_an_actors_own_cancelled_error_is_its_own(client: LocalClient) -> None:
    with pytest.raises(CancelledError, match="its own"):
        client.create_actor(Cancels, name="cancels").fail()
