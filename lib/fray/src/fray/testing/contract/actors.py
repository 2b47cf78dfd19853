"""One actor: calls, order and concurrency, results, errors, handles."""

import os
import pickle
import queue
import threading
import traceback
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, assert_type

import cloudpickle
import pytest

from fray.actor import ActorFuture, ActorHandle, typed_method
from fray.context import current_client
from fray.errors import JobAlreadyExists, JobFailed
from fray.testing.contract.actor_subjects import (
    ActorTests,
    Broken,
    Caller,
    Counter,
    Log,
    Meeting,
    Namesakes,
    create,
)
from fray.testing.contract.callables import Unpicklable, fail_deeply
from fray.testing.contract.clients import in_forked_child
from fray.testing.fixture import LONG, SMALL, BackendFixture
from fray.testing.signals import Flag, eventually
from fray.types import ActorConfig, Entrypoint, JobStatus
from rigging.errors import Conflict, DeadlineExceeded, InvalidRequest


class TestActors(ActorTests):
    """Client.create_actor, host_actor, and handles."""

    def test_calls_return_values_and_state_stays(self, fray_backend: BackendFixture) -> None:
        counter = create(fray_backend, Counter, 10)
        assert counter.add(1) == 11
        assert counter.add.remote(n=2).result(LONG) == 13
        assert counter.add.submit(3).result(LONG) == 16
        assert assert_type(typed_method(counter, Counter.add)(4), int) == 20
        assert assert_type(typed_method(counter, Counter.add).remote(n=5).result(LONG), int) == 25

    def test_an_exception_comes_back_as_itself_with_its_remote_traceback(self, fray_backend: BackendFixture) -> None:
        counter = create(fray_backend, Counter, 5)
        with pytest.raises(LookupError) as caught:
            counter.fail("the bucket")
        assert "no shards in the bucket" in str(caught.value)
        assert "look_up_the_shards" in "".join(traceback.format_exception(caught.value))
        future = counter.fail.remote("another")
        for _ in range(2):
            with pytest.raises(LookupError, match="no shards in another"):
                future.result(LONG)
        assert counter.add(0) == 5

    def test_an_exception_of_the_callers_own_class_with_its_cause(self, fray_backend: BackendFixture) -> None:
        class Mistake(Exception):
            pass

        class Mistaken:
            def fail(self) -> None:
                try:
                    fail_deeply("the cellar")
                except LookupError as error:
                    raise Mistake("nobody was there") from error

        with pytest.raises(Mistake, match="nobody was there") as caught:
            create(fray_backend, Mistaken).fail()
        assert "no shards in the cellar" in "".join(traceback.format_exception(caught.value))

    def test_an_exception_that_cannot_travel_is_told_all_the_same(self, fray_backend: BackendFixture) -> None:
        counter = create(fray_backend, Counter, 5)
        with pytest.raises((Unpicklable, JobFailed), match="the device is on fire"):
            counter.fail_strangely()
        assert counter.add(0) == 5

    def test_calls_run_in_the_order_they_were_made(self, fray_backend: BackendFixture) -> None:
        log = create(fray_backend, Log)
        for n in range(200):
            log.note.remote(n, b"." * (8 << 20) if n % 60 == 0 else b"")
        assert log.all() == list(range(200))

    def test_one_at_a_time_unless_more_are_allowed(self, fray_backend: BackendFixture) -> None:
        alone = create(fray_backend, Meeting, 2)
        visits = [alone.visit.remote() for _ in range(10)]
        assert {visit.result(LONG) for visit in visits} == {1}

    def test_as_many_at_once_as_are_allowed(self, fray_backend: BackendFixture) -> None:
        together = create(fray_backend, Meeting, 3, actor_config=ActorConfig(max_concurrency=3))
        assert sorted(future.result(LONG) for future in [together.meet.remote(LONG) for _ in range(3)]) == [0, 1, 2]
        visits = [together.visit.remote() for _ in range(20)]
        assert max(visit.result(LONG) for visit in visits) <= 3

    def test_a_result_that_does_not_come_in_time(self, fray_backend: BackendFixture) -> None:
        counter, flag = create(fray_backend, Counter), fray_backend.flag("end")
        future = counter.wait_for.remote(flag)
        assert not future.done()
        with pytest.raises(DeadlineExceeded, match="wait_for"):
            future.result(0.05)
        assert not future.done()
        flag.set()
        assert future.result(LONG) is True
        assert future.done()

    def test_a_callback_is_called_when_a_call_has_ended(self, fray_backend: BackendFixture) -> None:
        counter, flag = create(fray_backend, Counter), fray_backend.flag("end")
        told: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def fail(_: object) -> None:
            raise RuntimeError("of the callback")

        def ask_again(future: ActorFuture[int]) -> None:
            # A callback may make calls, and wait for them.
            told.put(("early", future, future.result(), counter.add(1)))

        future = counter.wait_for.remote(flag)
        future.add_done_callback(fail)
        future.add_done_callback(ask_again)
        with pytest.raises(queue.Empty):
            told.get(timeout=0.05)
        flag.set()
        assert told.get(timeout=LONG) == ("early", future, True, 1)
        future.add_done_callback(lambda ended: told.put(("late", ended, ended.done())))
        assert told.get(timeout=LONG) == ("late", future, True)
        lost = counter.fail.remote("the attic")
        lost.add_done_callback(told.put)
        with pytest.raises(LookupError, match="the attic"):
            told.get(timeout=LONG).result(LONG)

    @pytest.mark.parametrize("place", ["created", "hosted", "called by a job"])
    def test_a_call_that_has_not_begun_can_be_cancelled(self, fray_backend: BackendFixture, place: str) -> None:
        def check(counter: ActorHandle, begun: Flag, end: Flag) -> None:
            told: queue.SimpleQueue[Any] = queue.SimpleQueue()
            running = counter.wait_for.remote(end, begun)
            waiting, last = counter.add.remote(10), counter.add.remote(1)
            waiting.add_done_callback(told.put)
            begun.wait()
            assert not running.cancel()
            assert waiting.cancel()
            assert waiting.cancel()
            assert waiting.cancelled()
            assert waiting.done()
            with pytest.raises(Conflict, match=r"'add' of actor .* was cancelled") as caught:
                waiting.result(LONG)
            assert isinstance(caught.value, CancelledError)
            assert told.get(timeout=LONG) is waiting
            end.set()
            assert running.result(LONG) is True
            assert last.result(LONG) == 1, "the one before it was not called"
            assert not running.cancelled()
            assert not last.cancel()

        flags = fray_backend.flag("begun"), fray_backend.flag("end")
        if place == "hosted":
            check(fray_backend.client.host_actor(Counter, name=fray_backend.name("hosted")).handle, *flags)
        elif place == "created":
            check(create(fray_backend, Counter), *flags)
        else:
            fray_backend.call(check, create(fray_backend, Counter), *flags).result(LONG)

    def test_a_constructor_that_fails_is_told_and_frees_the_name(self, fray_backend: BackendFixture) -> None:
        name = fray_backend.name("broken")
        with pytest.raises((OSError, JobFailed)) as caught:
            create(fray_backend, Broken, name=name)
        assert "no checkpoint to start from" in "".join(traceback.format_exception(caught.value))
        assert create(fray_backend, Counter, name=name).add(1) == 1

    def test_wrong_and_private_methods_are_refused_before_any_call(self, fray_backend: BackendFixture) -> None:
        counter = create(fray_backend, Counter)
        with pytest.raises(AttributeError, match="subtract"):
            _ = counter.subtract
        with pytest.raises(AttributeError, match="_hidden"):
            _ = counter._hidden

    def test_wrong_arguments_are_the_callers_mistake(self, fray_backend: BackendFixture) -> None:
        counter = create(fray_backend, Counter)
        with pytest.raises(TypeError, match="add"):
            counter.add(1, 2, 3)
        assert counter.add(1) == 1

    def test_arguments_and_results_that_cannot_be_sent(self, fray_backend: BackendFixture) -> None:
        counter, lock = create(fray_backend, Counter), threading.Lock()
        if fray_backend.capabilities.actor_restarts:
            with pytest.raises(InvalidRequest, match=r"(?s)'apply' of actor.*pickle"):
                counter.apply(lambda _: lock)
            with pytest.raises(JobFailed, match=r"(?s)'apply' of actor.*pickle"):
                counter.apply(lambda _: threading.Lock())
        else:
            # It lives where the test does, so that nothing is sent.
            assert counter.apply(lambda _: lock) is lock
        assert counter.add(1) == 1

    def test_it_knows_itself_and_gives_itself_away(self, fray_backend: BackendFixture) -> None:
        name = fray_backend.name("self")
        counter = create(fray_backend, Counter, name=name)
        assert tuple(counter.who_am_i()) == (name, 0)
        assert counter.my_handle().add(2) == 2
        counter.add_later(3)
        # Behind the call that it made itself, as calls run in order.
        assert counter.my_handle().add(0) in (2, 5)
        assert counter.add(0) == 5

    def test_handles_as_arguments_of_jobs(self, fray_backend: BackendFixture) -> None:
        counter = create(fray_backend, Counter)

        def work(handle: ActorHandle, n: int) -> None:
            handle.add(n)

        for job in [fray_backend.call(work, counter, n) for n in range(4)]:
            assert job.wait(LONG) is JobStatus.SUCCEEDED
        assert counter.add(0) == 6

    def test_handles_that_jobs_give_away(self, fray_backend: BackendFixture) -> None:
        given, end = fray_backend.flag("given"), fray_backend.flag("end")

        def work() -> None:
            counter = current_client().create_actor(Counter, 5, name="the-jobs-own", resources=SMALL)
            given.set(cloudpickle.dumps(counter).hex())
            end.wait(LONG)

        job = fray_backend.call(work)
        given.wait()
        # Unpickled here as its receiver would: an actor lives as long as the job that made it, at the least.
        counter = pickle.loads(bytes.fromhex(given.text()))  # noqa: S301
        assert counter.add(1) == 6
        end.set()
        assert job.wait(LONG) is JobStatus.SUCCEEDED

    def test_handles_in_a_forked_child(self, fray_backend: BackendFixture) -> None:
        counter = create(fray_backend, Counter)
        assert counter.add(1) == 1
        told = in_forked_child(lambda: str(counter.add.remote(1).result(LONG)), fray_backend.flag("answer"))
        assert told.startswith("Conflict: ")
        assert "fork" in told
        assert counter.add(1) == 2

    def test_handles_as_arguments_of_actors(self, fray_backend: BackendFixture) -> None:
        counter = create(fray_backend, Counter)
        caller = create(fray_backend, Caller, counter)
        assert caller.forward(7) == 7
        assert counter.add(0) == 7

    def test_what_is_no_argument_of_frays_goes_to_the_constructor(self, fray_backend: BackendFixture) -> None:
        assert create(fray_backend, Namesakes, count=5).all() == {"count": 5}
        name = fray_backend.name("hosted")
        hosted = fray_backend.client.host_actor(Namesakes, name=name, resources="mine", count=5)
        assert hosted.all() == {"resources": "mine", "count": 5}

    def test_an_actor_in_the_process_of_the_one_who_asks(self, fray_backend: BackendFixture) -> None:
        name = fray_backend.name("hosted")
        counter = fray_backend.client.host_actor(Counter, 1, name=name)
        assert counter.add(1) == 2
        here = fray_backend.capabilities.hosted_in_process
        assert (counter.apply(lambda _: os.getpid()) == os.getpid()) is here
        with pytest.raises(JobAlreadyExists, match=name):
            fray_backend.client.host_actor(Counter, name=name)
        with pytest.raises(JobAlreadyExists, match=name):
            fray_backend.client.create_actor(Counter, name=name, resources=SMALL)

        def work(handle: ActorHandle) -> None:
            handle.add(40)

        fray_backend.call(work, counter).wait(LONG)
        assert counter.add(0) == 42

    def test_a_hosted_actor_takes_no_name_of_another(self, fray_backend: BackendFixture) -> None:
        name = fray_backend.name("created")
        group = fray_backend.client.create_actor_group(Counter, name=name, count=1, resources=SMALL)
        group.wait_ready()
        with pytest.raises(JobAlreadyExists, match=name):
            fray_backend.client.host_actor(Counter, name=name)
        group.shutdown()
        eventually(group.is_done, "its end")
        assert fray_backend.client.host_actor(Counter, 3, name=name).add(1) == 4

    def test_many_callers(self, fray_backend: BackendFixture) -> None:
        counter = create(fray_backend, Counter)
        threads = [threading.Thread(target=lambda: [counter.add(1) for _ in range(25)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        assert counter.add(0) == 100

    def test_big_arguments_and_results(self, fray_backend: BackendFixture) -> None:
        data = os.urandom(1 << 20) * 64 + b"end!"
        counter = create(fray_backend, Counter, data)
        assert tuple(counter.measure(data)) == (len(data), b"end!".hex())
        assert counter.apply(bytes) == data

    def test_functions_as_arguments(self, fray_backend: BackendFixture) -> None:
        captured = 3
        assert create(fray_backend, Counter, 4).apply(lambda value: value * captured) == 12

    def test_it_submits_jobs(self, fray_backend: BackendFixture) -> None:
        class Spawner:
            def spawn(self, flag: Flag) -> str:
                from fray import Entrypoint, JobRequest, current_client

                request = JobRequest("spawned", Entrypoint.from_callable(flag.set), SMALL)
                return str(current_client().submit(request).wait(LONG))

        flag = fray_backend.flag("spawned")
        assert create(fray_backend, Spawner).spawn(flag) == "succeeded"
        assert flag.is_set()


if TYPE_CHECKING:

    def _mistakes(handle: ActorHandle) -> None:
        """Mistakes that type checkers report. If they stop, mypy reports an unused ignore."""
        typed_method(handle, Counter.add)("one")  # type: ignore[arg-type]
        Entrypoint.from_callable(fail_deeply)  # type: ignore[arg-type]
