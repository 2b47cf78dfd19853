"""Clients: shutdown, threads, forks, and leftovers."""

import contextlib
import contextvars
import gc
import os
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial

import cloudpickle
import pytest

from fray.context import CLIENT_ENV, current_client, set_current_client
from fray.protocols import Client
from fray.testing.contract.lifecycle import HOLD_LOCK, is_held
from fray.testing.fixture import LONG, BackendFixture
from fray.testing.forks import exit_code_of
from fray.testing.signals import Flag, eventually
from fray.types import Entrypoint, JobStatus
from fray.waiting import wait_all
from rigging.errors import Conflict, InvalidRequest, MarinError

SUCCEED = Entrypoint.from_binary("true")


def in_forked_child(work: Callable[[], str], answer: Flag) -> str:
    """Run `work` in a fork of this process and return its result, or the error it raised."""
    child = os.fork()
    if child == 0:
        try:
            try:
                text = work()
            except MarinError as error:
                text = f"{type(error).__name__}: {error}"
            except BaseException:  # it would be lost otherwise
                text = traceback.format_exc()
            answer.set(text)
        finally:
            os._exit(0)
    code = exit_code_of(child, LONG)
    assert code == 0, f"the forked child died: {code}"
    return answer.text()


@contextlib.contextmanager
def another_client(backend: BackendFixture) -> Iterator[Client]:
    """A client that the test may close."""
    client = backend.harness.make_client()
    try:
        yield client
    finally:
        client.shutdown(wait=False)


class TestClients:
    """Client.shutdown, current_client, threads and forks."""

    def test_it_says_what_it_offers(self, fray_backend: BackendFixture) -> None:
        assert fray_backend.client.capabilities == fray_backend.capabilities

    def test_it_is_the_current_one_where_it_is_set(self, fray_backend: BackendFixture) -> None:
        assert current_client() is fray_backend.client
        with another_client(fray_backend) as other:
            with set_current_client(other):
                assert current_client() is other
            assert current_client() is fray_backend.client

    def test_fray_client_names_the_backend(self, fray_backend: BackendFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(CLIENT_ENV, fray_backend.harness.spec)
        found: list[Client] = []

        # A new thread has none set.
        def look() -> None:
            found.append(current_client())
            found.append(current_client())

        thread = threading.Thread(target=look)
        thread.start()
        thread.join(LONG)
        client = found[0]
        assert found[1] is client
        try:
            assert type(client) is type(fray_backend.client)
            assert client.submit(fray_backend.request(SUCCEED)).wait(LONG) is JobStatus.SUCCEEDED
        finally:
            client.shutdown()

    def test_a_closed_client_refuses_work_and_may_be_closed_again(self, fray_backend: BackendFixture) -> None:
        with another_client(fray_backend) as client:
            before = client.closed
            job = client.submit(fray_backend.request(Entrypoint.from_binary("echo", ["well"])))
            client.shutdown()
            assert (before, client.closed) == (False, True)
            with pytest.raises(Conflict, match="shut down"):
                client.submit(fray_backend.request(SUCCEED))
            if fray_backend.capabilities.actors:
                for make in (client.host_actor, client.create_actor, partial(client.create_actor_group, count=1)):
                    with pytest.raises(Conflict, match="shut down"):
                        make(list, name="too-late")
            if fray_backend.capabilities.jobs_outlive_client:
                for ask in (job.status, job.wait, job.logs, job.terminate):
                    with pytest.raises(Conflict, match="shut down"):
                        ask()
            else:
                assert (job.status(), job.wait(LONG), job.logs()) == ("succeeded", "succeeded", "well\n")
            client.shutdown()
            client.shutdown(wait=False)

    def test_shutdown_waits_for_jobs(self, fray_backend: BackendFixture) -> None:
        flag, tally = fray_backend.flag("end"), fray_backend.tally("ended")
        script = 'while ! [ -e "$1" ]; do sleep 0.02; done; printf x >> "$2"'
        program = Entrypoint.from_binary("sh", ["-c", script, "sh", flag.path, tally.path])
        with another_client(fray_backend) as client:
            for _ in range(4):
                client.submit(fray_backend.request(program))
            closing = threading.Thread(target=client.shutdown)
            closing.start()
            eventually(lambda: client.closed, "the client refuses new work")
            if fray_backend.capabilities.jobs_outlive_client:
                closing.join(LONG)
                assert not closing.is_alive()
            flag.set()
            closing.join(LONG)
            assert not closing.is_alive()
            if fray_backend.capabilities.jobs_outlive_client:
                eventually(lambda: tally.count() == 4, "the jobs go on without the client")
            assert tally.count() == 4

    def test_shutdown_without_waiting(self, fray_backend: BackendFixture) -> None:
        flag = fray_backend.flag("holds")
        request = fray_backend.request(Entrypoint.from_binary("sh", ["-c", HOLD_LOCK, "sh", flag.path]))
        with another_client(fray_backend) as client:
            client.submit(request)
            flag.wait()
        if fray_backend.capabilities.jobs_outlive_client:
            assert is_held(flag)
            found = fray_backend.submit(request)  # adopted by its name
            found.terminate()
        eventually(lambda: not is_held(flag), "the job is gone")

    def test_nothing_is_left_behind(self, fray_backend: BackendFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail() -> None:
            raise LookupError("as it happens")

        # Short, as some of what is made there are sockets.
        with tempfile.TemporaryDirectory() as temporary:
            monkeypatch.setattr(tempfile, "tempdir", temporary)
            with another_client(fray_backend) as client:
                good = client.submit(fray_backend.request(Entrypoint.from_binary("echo", ["well"])))
                bad = client.submit(fray_backend.request(Entrypoint.from_callable(fail)))
                stopped = client.submit(fray_backend.request(fray_backend.waiter(fray_backend.flag("never"))))
                if fray_backend.capabilities.actors:
                    group = client.create_actor_group(list, name=fray_backend.name("lists"), count=2)
                    cloudpickle.dumps(group.wait_ready(timeout=LONG))  # given to others, who could reach it
                stopped.terminate()
                wait_all([good, bad, stopped], LONG, raise_on_failure=False)
                client.shutdown()
            fray_backend.client.shutdown()
            leftovers = fray_backend.harness.leftovers
            eventually(lambda: not leftovers(), "nothing is left", instead=leftovers)
            # What they have written is there as long as they can be asked for it.
            del good, bad, stopped, client
            gc.collect()
            assert os.listdir(temporary) == []

    def test_threads_share_a_client(self, fray_backend: BackendFixture) -> None:
        tally = fray_backend.tally("ran")
        problems: list[BaseException] = []

        def work() -> None:
            try:
                wait_all([fray_backend.call(tally.add) for _ in range(5)], LONG)
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        assert problems == []
        assert tally.count() == 20

    def test_a_forked_child_must_not_use_its_parents_client(self, fray_backend: BackendFixture) -> None:
        request = fray_backend.request(SUCCEED)
        told = in_forked_child(lambda: fray_backend.client.submit(request).job_id, fray_backend.flag("answer"))
        assert told.startswith("Conflict: ")
        assert "fork" in told
        assert "current_client()" in told

    def test_a_forked_child_must_not_use_its_parents_jobs(self, fray_backend: BackendFixture) -> None:
        job = fray_backend.submit(fray_backend.request(fray_backend.waiter(fray_backend.flag("never"))))

        def stop() -> str:
            job.terminate()
            return "stopped"

        asked: list[Callable[[], str]] = [lambda: job.status().value, lambda: job.wait(LONG).value, stop]
        for number, ask in enumerate(asked):
            told = in_forked_child(ask, fray_backend.flag(f"answer-{number}"))
            assert told.startswith("Conflict: ")
            assert "fork" in told
        assert not job.status().finished()

    def test_current_client_in_a_forked_child(
        self, fray_backend: BackendFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(CLIENT_ENV, fray_backend.harness.spec)
        request = fray_backend.request(SUCCEED)

        def work() -> str:
            client = current_client()
            try:
                return client.submit(request).wait(LONG).value
            finally:
                client.shutdown()

        # A context of its own: the test has set its client in this one.
        told = in_forked_child(lambda: contextvars.Context().run(work), fray_backend.flag("answer"))
        if fray_backend.capabilities.forked_client:
            assert told == "succeeded"
        else:
            assert told.startswith((Conflict.__name__, InvalidRequest.__name__))
            assert "fork" in told
        assert fray_backend.client.submit(fray_backend.request(SUCCEED)).wait(LONG) is JobStatus.SUCCEEDED
