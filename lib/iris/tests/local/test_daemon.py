"""The two processes of a local cluster: what they say on their pipes, and how they end."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iris.local import controller, daemon
from iris.local.daemon import Pipe, run_controller_process, run_worker_process
from iris.local.state import WORKER_ID, ClusterRecord, LocalPaths, held_lock, is_locked, write_record
from iris.local.worker_keeper import WorkerStart
from iris.worker import app
from rigging.errors import Conflict, MarinError, Unavailable

PROCESS = SimpleNamespace(wait=lambda: 0)


@pytest.fixture
def paths(tmp_path: Path) -> LocalPaths:
    return LocalPaths(tmp_path)


def said(reader: int) -> str:
    with open(reader) as file:
        return file.read()


def test_one_line_is_said_once_and_nobody_who_listens_is_no_error() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    pipe = Pipe(writer)
    assert not os.get_inheritable(writer), "what it starts does not hold the pipe open"
    for line in ("one", "two"):
        pipe.say(line)
    assert said(reader) == "one\n"
    Pipe(-1).say("nowhere")
    reader, writer = os.pipe()
    os.close(reader)
    Pipe(writer).say("one")
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(writer)


@pytest.fixture
def be_worker(paths: LocalPaths, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Runs the worker's process with a worker that is only played; returns its exit code and its words."""

    def be(run: Callable[..., int], go_fd: int = -1) -> tuple[int, str]:
        monkeypatch.setattr(app, "run_worker", run)
        monkeypatch.setattr("rigging.log_setup.configure_logging", lambda level: None)
        reader, writer = os.pipe()
        pipe = Pipe(writer)
        code = run_worker_process(paths, go_fd, pipe)
        pipe.say("")
        return code, said(reader).strip()

    return be


def test_a_worker_finds_its_controller_by_the_record(paths: LocalPaths, be_worker: Any) -> None:
    def run(config: app.WorkerConfig, resolve: Callable[[], Any]) -> int:
        assert (config.work_dir, config.worker_id) == (paths.worker_dir, WORKER_ID)
        with pytest.raises(Unavailable, match=r"there is no .*cluster\.json"):
            resolve()
        write_record(paths, ClusterRecord(1, "host:1", "u", "the worker's", 2, "0", 1, 0.0, True))
        found = resolve()
        assert (found.address, found.token) == ("host:1", "the worker's")
        return 7

    assert be_worker(run) == (7, "")


@pytest.mark.parametrize(
    ("word", "has_guardian", "begins"), [(b"go\n", False, True), (b"", True, True), (b"", False, False)]
)
def test_a_worker_waits_until_its_controller_listens_or_has_ended(
    paths: LocalPaths, be_worker: Any, word: bytes, has_guardian: bool, begins: bool
) -> None:
    """When that one could not start, a worker stays only where tasks of a former one may run."""
    reader, writer = os.pipe()
    begun = threading.Event()
    paths.worker_dir.mkdir()

    def run(*_: object) -> int:
        begun.set()
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(reader)  # it was read and closed before
        return 0

    with ExitStack() as stack:
        if has_guardian:
            stack.enter_context(held_lock(paths.guardian_lock, timeout=0))
        worker = stack.enter_context(ThreadPoolExecutor(1)).submit(be_worker, run, reader)
        assert not begun.wait(0.03)
        os.write(writer, word)
        os.close(writer)
        assert worker.result(20) == (0, "")
    assert begun.is_set() == begins


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MarinError("its disk\nis bad"), "its disk is bad"),
        (PermissionError(13, "Permission denied", "/x/y"), "/x/y: Permission denied"),
        (OSError(28, "No space left on device"), "{worker_dir}: No space left on device"),
        (OSError("odd"), "{worker_dir}: odd"),
    ],
)
def test_why_a_worker_cannot_be_one_is_said(paths: LocalPaths, be_worker: Any, error: Exception, words: str) -> None:
    def run(*_: object) -> int:
        raise error

    assert be_worker(run) == (1, words.format(worker_dir=paths.worker_dir))


@pytest.mark.parametrize("foreground", [False, True])
def test_a_controller_starts_its_worker_and_says_when_it_is_ready(
    paths: LocalPaths, monkeypatch: pytest.MonkeyPatch, foreground: bool
) -> None:
    go_reader, go_writer = os.pipe()
    started = WorkerStart(5, 0)
    go = Pipe(go_writer)
    stopped: list[LocalPaths] = []
    monkeypatch.setattr(daemon, "stop_worker", stopped.append)

    def serve_local(given: LocalPaths, idle: float, **calls: Any) -> None:
        assert (given, idle, calls["first_worker"]) == (paths, 5.0, started)
        assert is_locked(paths.controller_lock)
        calls["on_listening"]()
        calls["on_ready"]()

    monkeypatch.setattr(controller, "serve_local", serve_local)
    reader, writer = os.pipe()
    start: Any = lambda _: (go, PROCESS, started)  # noqa: E731
    assert run_controller_process(paths, writer, 5.0, foreground=foreground, start_worker=start) == 0
    assert (said(go_reader), said(reader)) == ("go\n", "ready\n")
    assert stopped == ([paths] if foreground else []), "in the background its worker waits for the next controller"
    assert not is_locked(paths.controller_lock)


def test_a_worker_that_does_not_start_is_told_to_who_waits(paths: LocalPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    again = [os.pipe() for _ in range(2)]
    pipes = [writer for _, writer in again]

    def start(_: LocalPaths) -> Any:
        return Pipe(pipes.pop(0)), PROCESS, WorkerStart(5, len(pipes))

    def serve_local(*_: object, **calls: Any) -> None:
        calls["on_trouble"]("no room")
        assert calls["start_worker"]() == WorkerStart(5, 0)
        assert said(again[1][0]) == "go\n", "one that is started later need not wait: the controller listens"

    monkeypatch.setattr(controller, "serve_local", serve_local)
    reader, writer = os.pipe()
    run_controller_process(paths, writer, 5.0, foreground=False, start_worker=start)
    assert said(reader) == "worker: no room\n"
    for descriptor in (again[0][0], again[0][1]):
        os.close(descriptor)


def test_a_controller_that_cannot_serve_says_why(paths: LocalPaths, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_: LocalPaths) -> Any:
        raise Conflict("another\ncontroller")

    reader, writer = os.pipe()
    assert run_controller_process(paths, writer, 5.0, foreground=True, start_worker=refuse) == 1
    assert said(reader) == "error: another controller\n"
    reader, writer = os.pipe()
    with held_lock(paths.controller_lock, timeout=1):
        assert run_controller_process(paths, writer, 5.0, foreground=False, lock_patience=0.01) == 1
    assert "did not release" in said(reader)
    assert "iris controller: process" in capsys.readouterr().err
