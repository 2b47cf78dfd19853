"""Callables as jobs: their arguments, exceptions and output."""

import functools
import importlib.util
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from fray.errors import JobFailed
from fray.protocols import JobHandle
from fray.testing.fixture import LONG, BackendFixture
from fray.testing.signals import Flag, eventually
from fray.types import Entrypoint, JobStatus
from rigging.errors import InvalidRequest


def write_repr(flag: Flag, *args: object, **kwargs: object) -> None:
    """Write the repr of the arguments."""
    flag.set(repr((args, kwargs)))


def fail_deeply(where: str) -> None:
    """Raise from a function whose name shows up in the traceback."""

    def look_up_the_shards() -> None:
        raise LookupError(f"no shards in {where}")

    look_up_the_shards()


class Unpicklable(Exception):
    """An exception that cannot be pickled."""

    def __init__(self, device: str, state: str) -> None:
        super().__init__(f"the {device} is {state}")
        self.callback = lambda: (_ for _ in ()).throw(self)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("this exception stays where it is")


class NotMadeAgain(Exception):
    """An exception whose constructor takes different arguments than it stores."""

    def __init__(self, device: str, state: str) -> None:
        super().__init__(f"the {device} is {state}")
        self.device = device


def raised_by(job: JobHandle) -> BaseException:
    """Return the exception that `wait` raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the callers look at what it is
        job.wait(LONG)
    return caught.value


SHOUT = """
SUFFIX = "!"

def shout(flag, text):
    flag.set(text.upper() + SUFFIX)
"""


def module_of_the_submitter_alone(directory: Path, text: str = SHOUT, name: str = "submitters_own") -> ModuleType:
    """Return a loaded module that no other process can import, like test modules and notebooks.

    Args:
        directory: The directory of its file.
        text: Its source.
        name: Its name.
    """
    source = directory / f"{name}.py"
    source.write_text(text)
    spec = importlib.util.spec_from_file_location(name, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class TestCallables:
    """Entrypoint.from_callable."""

    def test_arguments(self, fray_backend: BackendFixture) -> None:
        flag = fray_backend.flag("called")
        entrypoint = Entrypoint.from_callable(write_repr, [flag, 1, "b", None], {"deep": {"c": [3, (4,)]}})
        assert fray_backend.submit(fray_backend.request(entrypoint)).wait(LONG) is JobStatus.SUCCEEDED
        assert flag.text() == "((1, 'b', None), {'deep': {'c': [3, (4,)]}})"

    def test_closures_lambdas_partials_and_bound_methods(self, fray_backend: BackendFixture) -> None:
        captured = {"shards": [1, 2, 3]}
        flags = [fray_backend.flag(f"kind-{i}") for i in range(4)]

        def closure() -> None:
            flags[0].set(str(sum(captured["shards"])))

        kinds: list[Callable[[], object]] = [
            closure,
            lambda: flags[1].set(str(len(captured))),
            functools.partial(flags[2].set, "partial"),
            flags[3].set,
        ]
        for job in [fray_backend.call(kind) for kind in kinds]:
            assert job.wait(LONG) is JobStatus.SUCCEEDED
        assert [flag.text() for flag in flags] == ["6", "1", "partial", ""]

    def test_a_function_of_a_module_that_only_the_submitter_has(self, fray_backend: BackendFixture) -> None:
        module = module_of_the_submitter_alone(fray_backend.directory)
        try:
            flag = fray_backend.flag("shouted")
            fray_backend.call(module.shout, flag, "hear").wait(LONG)
            assert flag.text() == "HEAR!"
        finally:
            del sys.modules["submitters_own"]

    def test_a_payload_of_many_megabytes(self, fray_backend: BackendFixture) -> None:
        payload = os.urandom(1 << 20) * 80
        flag = fray_backend.flag("size")

        def measure(data: bytes) -> None:
            flag.set(f"{len(data)} {data[:4].hex()} {data[-4:].hex()}")

        fray_backend.call(measure, payload).wait(LONG)
        assert flag.text() == f"{len(payload)} {payload[:4].hex()} {payload[-4:].hex()}"

    def test_an_exception_comes_back_with_its_remote_traceback(self, fray_backend: BackendFixture) -> None:
        job = fray_backend.call(fail_deeply, "the bucket")
        error = raised_by(job)
        if fray_backend.capabilities.raises_own_exceptions:
            assert type(error) is LookupError
        else:
            assert isinstance(error, JobFailed)
            assert error.job_id == job.job_id
            assert type(error.__cause__) is LookupError
        shown = "".join(traceback.format_exception(error))
        assert "LookupError" in shown
        assert "no shards in the bucket" in str(error)
        assert "look_up_the_shards" in shown
        assert job.status() is JobStatus.FAILED

    @pytest.mark.parametrize("kind", [Unpicklable, NotMadeAgain])
    def test_an_exception_that_cannot_travel_is_told_all_the_same(
        self, fray_backend: BackendFixture, kind: type[Unpicklable] | type[NotMadeAgain]
    ) -> None:
        def fail() -> None:
            raise kind("device", "on fire")

        error = raised_by(fray_backend.call(fail))
        assert isinstance(error, (kind, JobFailed))
        assert "the device is on fire" in str(error)
        assert kind.__name__ in "".join(traceback.format_exception(error))

    def test_an_exception_whose_constructor_takes_other_arguments(self, fray_backend: BackendFixture) -> None:
        def fail() -> None:
            raise NotMadeAgain("device", "on fire")

        error = raised_by(fray_backend.call(fail))
        own = error if fray_backend.capabilities.raises_own_exceptions else error.__cause__
        assert isinstance(own, NotMadeAgain)
        assert (str(own), own.device) == ("the device is on fire", "device")

    def test_what_cannot_be_sent_is_refused_at_submission(self, fray_backend: BackendFixture) -> None:
        lock, name = threading.Lock(), fray_backend.name("stays-here")

        def use() -> None:
            with lock:
                pass

        if fray_backend.capabilities.separate_processes:
            with pytest.raises(InvalidRequest, match=f"{name}.*lock"):
                fray_backend.call(use, name=name)
        else:
            assert fray_backend.call(use, name=name).wait(LONG) is JobStatus.SUCCEEDED

    @pytest.mark.parametrize(("code", "exit_code"), [(0, 0), (None, 0), (3, 3), ("no shards", 1)])
    def test_sys_exit_ends_the_job_and_not_the_one_who_waits(
        self, fray_backend: BackendFixture, code: object, exit_code: int
    ) -> None:
        job = fray_backend.call(sys.exit, code)
        status = JobStatus.FAILED if exit_code else JobStatus.SUCCEEDED
        assert job.wait(LONG, raise_on_failure=False) is status
        if exit_code:
            error = raised_by(job)
            assert isinstance(error, JobFailed)
            assert error.exit_code == exit_code

    def test_a_crash_is_the_jobs_alone(self, fray_backend: BackendFixture) -> None:
        if not fray_backend.capabilities.separate_processes:
            # A crash would be the test's own: see that it would be, by where the callable runs.
            flag = fray_backend.flag("process")
            fray_backend.call(lambda: flag.set(str(os.getpid()))).wait(LONG)
            assert flag.text() == str(os.getpid())
            return
        job = fray_backend.call(os._exit, 9)
        error = raised_by(job)
        assert isinstance(error, JobFailed)
        assert error.exit_code == (9 if fray_backend.capabilities.crash_codes else None)
        assert ("9" if fray_backend.capabilities.crash_codes else "process ended") in str(error)
        assert fray_backend.call(os.getpid).wait(LONG) is JobStatus.SUCCEEDED

    def test_what_it_prints(self, fray_backend: BackendFixture, capfd: pytest.CaptureFixture[str]) -> None:
        def speak() -> None:
            print("first line", flush=True)
            os.system("echo from a child process")
            print("gr\u00fc\u00dfe an alle", file=sys.stderr, flush=True)

        job = fray_backend.call(speak)
        job.wait(LONG)
        if fray_backend.capabilities.callable_logs:
            assert job.logs() == "first line\nfrom a child process\ngr\u00fc\u00dfe an alle\n"
        else:
            assert job.logs() == ""
            assert "first line\nfrom a child process\n" in capfd.readouterr().out

    def test_what_it_prints_while_it_runs(self, fray_backend: BackendFixture) -> None:
        go_on = fray_backend.flag("go-on")

        def speak() -> None:
            print("begun", flush=True)
            go_on.wait(LONG)
            print("done")

        job = fray_backend.call(speak)
        expected = "begun\n" if fray_backend.capabilities.callable_logs else ""
        eventually(
            lambda: job.status() is JobStatus.RUNNING and job.logs() == expected, "the running job's log has its line"
        )
        go_on.set()
        job.wait(LONG)
        assert job.logs() == ("begun\ndone\n" if fray_backend.capabilities.callable_logs else "")
