"""How jobs on Ray end when what they run, or who watches them, does the unusual."""

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fray.client import JobHandle
from fray.errors import JobFailed
from fray.testing import LONG, Flag, eventually
from fray.types import Entrypoint, JobRequest, JobStatus, ResourceConfig

if TYPE_CHECKING:
    from fray.backends.ray.client import RayClient

pytestmark = [pytest.mark.ray, pytest.mark.soak]

# One at a time, so that all run in one process.
ALONE = ResourceConfig.with_cpu(cpu=4, ram="64m", disk="1m")
SMALL = ResourceConfig.with_cpu(cpu=0.1, ram="64m", disk="1m")


class WithoutText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class RefusesToBeLookedAt(WithoutText):
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


def say_and_raise(words: str, error: BaseException) -> None:
    print(words)
    raise error


def run(client: "RayClient", name: str, call: Entrypoint, **options: Any) -> tuple[JobFailed, str]:
    """Run a job that fails; returns how, and what it wrote."""
    job = client.submit(JobRequest(name, call, ALONE, **options))
    with pytest.raises(JobFailed) as failure:
        job.wait(LONG)
    assert job.status() is JobStatus.FAILED
    return failure.value, job.logs()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, WithoutText, RefusesToBeLookedAt])
def test_whatever_a_callable_raises_is_its_end_with_its_output(client: "RayClient", kind: type[BaseException]) -> None:
    def raise_it() -> None:
        say_and_raise("its own words", kind())

    failure, output = run(client, "first", Entrypoint.from_callable(raise_it))
    assert kind.__name__ in str(failure)
    assert "raise_it" in str(failure), "the remote traceback"
    assert output == "its own words\n"
    other = client.submit(JobRequest("other", Entrypoint.from_callable(print, ["innocent"]), ALONE))
    other.wait(LONG)
    assert other.logs() == "innocent\n"


def test_an_error_without_text_in_an_actor_and_every_public_name_is_its_own(client: "RayClient") -> None:
    class Box:
        def fail(self) -> None:
            raise WithoutText

        def call_actor(self, count: int) -> int:
            return count + 1

        def ray_actor(self) -> str:
            return "mine"

        def refuse_waiting_for_itself(self, word: str) -> str:
            return word

    box: Any = client.create_actor(Box, name="box")
    with pytest.raises(WithoutText) as raised:
        box.fail()
    assert any("Remote traceback" in note for note in raised.value.__notes__)
    assert (box.call_actor(1), box.ray_actor(), box.refuse_waiting_for_itself("so")) == (2, "mine", "so")


class Held:
    """Submits in another thread, which stops where it launches the task until it is told."""

    def __init__(self, client: "RayClient", monkeypatch: pytest.MonkeyPatch, then: BaseException | None = None) -> None:
        self.about_to, self.go = threading.Event(), threading.Event()
        self.raised: list[BaseException] = []
        self._client = client
        from fray.backends.ray.jobs.job import RayJob

        start = RayJob.start

        def held(job: RayJob) -> None:
            self.about_to.set()
            assert self.go.wait(LONG)
            if then is not None:
                raise then
            start(job)

        monkeypatch.setattr(RayJob, "start", held)
        self._thread = threading.Thread(target=self._submit)
        self._thread.start()
        assert self.about_to.wait(LONG), self.raised

    def _submit(self) -> None:
        try:
            self._client.submit(self.request())
        except BaseException as error:
            self.raised.append(error)

    @staticmethod
    def request() -> JobRequest:
        return JobRequest("race", Entrypoint.from_callable(time.sleep, [300]), SMALL)

    def adopt(self) -> JobHandle:
        return self._client.submit(self.request())

    def let_go(self) -> None:
        self.go.set()
        self._thread.join(LONG)


@pytest.mark.parametrize("by", ["terminate", "shutdown"])
def test_a_job_stopped_when_submitted_is_stopped(client: "RayClient", monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    held = Held(client, monkeypatch)
    job = held.adopt()
    stop = job.terminate if by == "terminate" else lambda: client.shutdown(wait=False)
    stopping = threading.Thread(target=stop)
    stopping.start()
    if by == "shutdown":
        eventually(lambda: client.closed, "it takes nothing more")
    else:
        stopping.join(LONG)
    held.let_go()
    stopping.join(LONG)
    assert job.wait(LONG, raise_on_failure=False) is JobStatus.STOPPED
    assert by == "shutdown" or held.raised == []


def test_a_job_that_cannot_start_fails_for_who_adopted_it(client: "RayClient", monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(client, monkeypatch, then=LookupError("no such node"))
    job = held.adopt()
    held.let_go()
    assert [type(error) for error in held.raised] == [LookupError]
    with pytest.raises(JobFailed, match="could not be started: LookupError: no such node"):
        job.wait(LONG)


def test_a_job_that_cannot_retry_fails(client: "RayClient", monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun, end = Flag(str(tmp_path / "begun")), Flag(str(tmp_path / "end"))

    def fail() -> None:
        begun.set()
        end.wait(LONG)
        raise LookupError("the first time")

    job = client.submit(JobRequest("again", Entrypoint.from_callable(fail), SMALL, max_retries_failure=3))
    begun.wait()

    def launch(*_: object) -> None:
        raise ConnectionError("Ray is not there")

    monkeypatch.setattr(client, "launch", launch)
    end.set()
    with pytest.raises(JobFailed, match="could not be tried again: ConnectionError: Ray is not there"):
        job.wait(LONG)
