"""The `.log` and `.error` of a step, wherever it runs."""

import logging
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from fray.current_client import set_current_client
from fray.local_backend import LocalClient
from fray.testing.waiting import eventually
from marin.execution import Executor, step_lease
from marin.execution.jobs.remote import remote
from marin.execution.log.files import MOST_BYTES, LocalFile, UploadedFile, Uploads
from marin.execution.log.step_log import StepLog
from marin.execution.run.step_runner import run_step
from marin.execution.step_spec import StepSpec
from rigging.errors import StepFailed
from rigging.filesystem import read_bytes_or_none
from support.marin.steps import MakeExecutor, MakeStep

HEAD = re.compile(r"=== attempt (\d+), \d{4}-\d\d-\d\dT[0-9:.+-]+, \S+, process \d+")


@pytest.fixture(autouse=True)
def no_other_log() -> Iterator[None]:
    """Log records are printed nowhere unless the test says so: another test of this process may have set up logging."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    root.handlers = [handler for handler in handlers if type(handler).__module__.startswith("_pytest.")]
    yield
    root.handlers = handlers


def lines(path: str | Path, name: str = ".log") -> list[str]:
    return [HEAD.sub(r"=== \1", line) for line in Path(path, name).read_text().splitlines()]


@pytest.mark.parametrize("as_job", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_what_a_step_prints_and_logs_is_in_its_log(
    make_step: MakeStep, make_executor: MakeExecutor, capsys: pytest.CaptureFixture[str], as_job: bool, count: int
) -> None:
    def talk(config: Any) -> None:
        print("said", config.x)
        sys.stderr.write("half ")
        sys.stderr.flush()
        sys.stderr.write("whole\n")
        logging.getLogger("user").warning("a record")
        sys.stderr.write("open")

    root, handler = logging.getLogger(), logging.StreamHandler(sys.stderr)
    stream = handler.stream
    root.addHandler(handler)
    try:
        steps = [make_step(f"s{n}", n, fn=remote(talk) if as_job else talk) for n in range(count)]
        with set_current_client(LocalClient()):
            paths = make_executor().run([*steps, make_step("silent")])
    finally:
        root.removeHandler(handler)
    assert handler.stream is stream
    for number, step in enumerate(steps):
        found = [line for line in lines(paths[step]) if "job 's" not in line]  # a record of the backend's own
        assert found == ["=== 1", f"said {number}", "half whole", "a record", "open"]
        assert not Path(paths[step], ".error").exists()
    assert "said 0" in capsys.readouterr().out
    [silent] = set(paths.values()) - {paths[step] for step in steps}
    assert os.path.exists(os.path.join(silent, ".executor_status"))
    assert not {".log", ".error"} & set(os.listdir(silent)), "a step that says nothing has none"


@pytest.fixture
def memory() -> Iterator[str]:
    root = "memory://step-logs"
    yield root
    fsspec.filesystem("memory").rm(root, recursive=True)


@pytest.mark.parametrize("storage", ["prefix", "memory"])
def test_the_history_of_attempts_is_kept(make_step: MakeStep, request: pytest.FixtureRequest, storage: str) -> None:
    calls: list[int] = []

    def work(_config: Any) -> None:
        calls.append(1)
        print("call", len(calls))
        if len(calls) < 4:
            raise ValueError(f"no cheese, api_key=sk-{'a1B2' * 8}")

    step, root = make_step("a", fn=work, retries=1), request.getfixturevalue(storage)
    with pytest.raises(StepFailed):
        Executor(root, f"{root}/experiments").run([step])
    path = Executor(root, f"{root}/experiments").run([step])[step]
    log, errors = ((read_bytes_or_none(f"{path}/{name}") or b"").decode() for name in (".log", ".error"))
    said = [HEAD.sub(r"=== \1", line).partition(" no cheese")[0] for line in log.splitlines()]
    failed, follows = "=== failed: ValueError:", "=== attempt 2 follows in 0 s"
    assert said[:6] == ["=== 1", "call 1", failed, follows, "=== 2", "call 2"]
    assert said[6:] == [failed, "=== 1", "call 3", failed, follows, "=== 2", "call 4"]
    assert errors.count("Traceback (most recent call last)") == 3
    assert 'raise ValueError(f"no cheese' in errors
    assert "a1B2a1B2" not in errors + log, "secrets are taken out of errors"


def test_a_step_that_removes_its_directory_keeps_its_log(
    make_step: MakeStep, make_executor: MakeExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    def work(_config: Any) -> None:
        print("before")
        shutil.rmtree(step_lease().output_path)
        os.makedirs(step_lease().output_path)
        print("after")

    step = make_step("a", fn=work)
    path = make_executor().run([step])[step]
    assert lines(path) == ["=== 1", "before", "after"]
    assert "is incomplete" not in caplog.text


class Held:
    held = True

    def write(self, name: str, content: bytes) -> None:
        raise AssertionError("nothing is written under it here")


def test_who_lost_the_lease_writes_nothing(tmp_path: Path) -> None:
    lease = Held()
    log = StepLog(str(tmp_path), 1, lease)
    log.add(["mine"])
    lease.held = False
    log.add(["another's"])
    log.end(ValueError("late"))
    assert lines(tmp_path) == ["=== 1", "mine"]
    assert not Path(tmp_path, ".error").exists()


def test_an_unwritable_log(make_step: MakeStep, make_executor: MakeExecutor, caplog: pytest.LogCaptureFixture) -> None:
    def work(_config: Any) -> None:
        os.makedirs(os.path.join(step_lease().output_path, ".log"))
        print("said")

    make_executor().run([make_step("a", fn=work)])
    assert "is incomplete" in caplog.text


def test_more_logs_than_files_may_be_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    files = [LocalFile(str(tmp_path / "sub" / str(number))) for number in range(200)]
    for turn in (b"one\n", b"two\n"):
        for file in files:
            file.write(turn)
    assert len(os.listdir("/proc/self/fd")) - before < 150
    said = {Path(each).read_text() for each in (tmp_path / "sub").iterdir()}
    assert said == {"one\ntwo\n"}, "they are there though the process be killed now"
    for file in files:
        file.close(keep=True)
    assert len(os.listdir("/proc/self/fd")) == before


class Store:
    """An object store of one file that counts requests."""

    def __init__(self, content: bytes | None = None) -> None:
        self.content = content
        self.requests = 0

    def read(self, _url: str) -> bytes | None:
        self.requests += 1
        return self.content

    def upload(self, _url: str, content: bytes) -> None:
        self.requests += 1
        self.content = content


def test_a_store_is_asked_once_for_a_new_log_and_twice_for_a_longer_one() -> None:
    store, uploads = Store(), Uploads()
    new = UploadedFile("s3://b/a", True, store.read, store.upload, uploads)
    for number in range(1000):
        new.write(f"{number}\n".encode())
    new.close(keep=True)
    assert store.requests == 1
    more = UploadedFile("s3://b/a", False, store.read, store.upload, uploads)
    more.write(b"more\n")
    more.upload_now()
    assert store.content.endswith(b"999\nmore\n")
    more.upload_now()
    more.write(b"last\n")
    more.close(keep=True)
    assert store.content.endswith(b"999\nmore\nlast\n")
    assert store.requests == 4


def test_a_log_without_end_is_cut() -> None:
    store = Store()
    file = UploadedFile("s3://b/a", True, store.read, store.upload, Uploads())
    for _ in range(MOST_BYTES // (1 << 20) + 3):
        file.write(b"x" * (1 << 20))
    file.close(keep=True)
    assert store.content.endswith(f"=== {3 << 20} more bytes are omitted\n".encode())


def test_a_growing_log_is_uploaded_when_it_is_due() -> None:
    store, uploads = Store(), Uploads()
    file = UploadedFile("s3://b/a", True, store.read, store.upload, uploads)
    file.write(b"said\n")
    file.due = 0.0
    uploads.remove(file)
    uploads.add(file)
    other = UploadedFile("s3://b/b", True, store.read, store.upload, uploads)
    uploads.remove(other)
    eventually(lambda: store.content == b"said\n", "it is uploaded")
    file.close(keep=False)


def test_parallel_runs_have_their_own_logs(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that ends takes nothing away from one that goes on."""
    began, first_ended = threading.Event(), threading.Event()

    def first(_path: str) -> None:
        print("first")
        assert began.wait(20)

    def second(_path: str) -> None:
        print("second, with the first")
        began.set()
        assert first_ended.wait(20)
        print("second, alone")

    one = StepSpec(name="one", output_path_prefix=prefix, fn=first)
    two = StepSpec(name="two", output_path_prefix=prefix, fn=second)
    before = sys.stdout
    threads = [threading.Thread(target=run_step, args=(spec,)) for spec in (one, two)]
    threads[0].start()
    eventually(Path(one.output_path, ".log").exists, "the first has printed")
    threads[1].start()
    threads[0].join()
    first_ended.set()
    threads[1].join()
    assert sys.stdout is before
    assert lines(one.output_path) == ["=== 1", "first"]
    assert lines(two.output_path) == ["=== 1", "second, with the first", "second, alone"]
    assert capsys.readouterr().out.splitlines()[1:] == ["[two] second, with the first", "[two] second, alone"]
