"""`map_files` on local backends: whole outputs, what fails, what is resumed, what is written about it."""

import json
import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from fray.backends.local import LocalClient
from marin.run import FilesFailed, map_files
from rigging.errors import InvalidRequest


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.process)], ids=["threads", "processes"])
def client(request: pytest.FixtureRequest) -> Iterator[LocalClient]:
    with LocalClient(processes=request.param) as client:
        yield client


def read_lines(path: Path) -> list[dict[str, str | None]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_bad_pairs_and_options_start_nothing(threads: LocalClient, inputs: list[str], tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="another input's output"):
        map_files(shout, inputs, lambda _: tmp_path / "one", client=threads, manifest=str(tmp_path / "m"))
    assert sorted(os.listdir(tmp_path)) == ["in"]
    bad: list[dict[str, Any]] = [{"max_workers": 0}, {"max_retries_failure": -1}, {"batch_seconds": 0}]
    for option in bad:
        with pytest.raises(InvalidRequest, match=next(iter(option)).removesuffix("seconds")):
            map_files(shout, [], [], client=threads, **option)
    assert map_files(shout, [], [], client=threads, manifest=str(tmp_path / "m.jsonl")).total == 0
    assert (tmp_path / "m.jsonl").read_text() == "", "nothing to do is no mistake"


@pytest.mark.process
def test_a_worker_that_dies_is_told_by_its_signal_and_costs_no_other_file_anything(
    inputs: list[str], out: Callable[[str], str], tmp_path: Path
) -> None:
    def die_once(source: str, path: str) -> None:
        number = int(Path(source).stem)
        flag = tmp_path / "died"
        if number == 11 or (number == 30 and not flag.exists()):
            flag.touch()
            os.kill(os.getpid(), signal.SIGSEGV)
        shout(source, path)

    with LocalClient(processes=True) as client:
        result = map_files(
            die_once, inputs, out, client=client, max_workers=2, max_retries_failure=0, raise_on_failure=False
        )
    failed = {Path(failure.input).stem: failure.error for failure in result.failures}
    assert "011" in failed
    assert set(failed) <= {"011", "030"}
    assert "process died" in failed["011"]
    assert "SIGSEGV" in failed["011"]
    assert result.succeeded >= 58


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    (tmp_path / "in").mkdir()
    paths = [tmp_path / "in" / f"{number:03}.txt" for number in range(60)]
    for path in paths:
        path.write_text(path.stem)
    return [str(path) for path in paths]


@pytest.fixture
def out(tmp_path: Path) -> Callable[[str], str]:
    return lambda source: str(tmp_path / "out" / os.path.basename(source))


def shout(source: str, path: str) -> None:
    Path(path).write_text(Path(source).read_text() + "!")


def test_each_output_is_made_once_and_a_second_run_makes_only_what_is_missing(
    client: LocalClient, inputs: list[str], out: Callable[[str], str], tmp_path: Path
) -> None:
    manifest = tmp_path / "made" / "manifest.jsonl"
    result = map_files(shout, iter(inputs), out, client=client, max_workers=2, manifest=str(manifest))
    assert (result.total, result.succeeded, result.existed, result.failed) == (60, 60, 0, 0)
    for source in inputs:
        assert Path(out(source)).read_text() == Path(source).stem + "!"
    assert sorted(os.listdir(tmp_path / "out")) == sorted(map(os.path.basename, inputs)), "nothing besides"
    assert os.listdir(manifest.parent) == ["manifest.jsonl"]
    written = read_lines(manifest)
    assert {line["input"]: line["output"] for line in written} == {source: out(source) for source in inputs}
    assert {(line["status"], line["error"]) for line in written} == {("succeeded", None)}

    os.unlink(out(inputs[7]))
    before = os.stat(out(inputs[8])).st_mtime_ns
    result = map_files(shout, inputs, map(out, inputs), client=client, max_workers=2, manifest=str(manifest))
    assert (result.succeeded, result.existed) == (1, 59)
    assert os.stat(out(inputs[8])).st_mtime_ns == before
    assert Counter(line["status"] for line in read_lines(manifest)) == {"existed": 59, "succeeded": 1}


def test_failures_are_tried_again_and_then_named_with_their_inputs(
    threads: LocalClient, inputs: list[str], out: Callable[[str], str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tries: Counter[str] = Counter()

    def fail_some(source: str, path: str) -> bool:
        number = int(Path(source).stem)
        tries[source] += 1
        Path(path).write_text("half")
        if number == 3:
            raise ValueError("three is\nnot allowed")
        if number == 4:
            raise SystemExit(5)
        if number == 6:
            os.unlink(path)
        return number != 5 and (number != 7 or tries[source] > 1)

    manifest = tmp_path / "manifest.jsonl"
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(FilesFailed, match=r"4 of 60 files failed: '.*in/00") as caught,
    ):
        map_files(fail_some, inputs, out, client=threads, max_workers=1, max_retries_failure=1, manifest=str(manifest))
    errors = {Path(failure.input).stem: failure.error for failure in caught.value.result.failures}
    assert errors["003"] == "ValueError: three is\nnot allowed"
    assert "SystemExit: 5" in errors["004"]
    assert "returned False" in errors["005"]
    assert "wrote no file" in errors["006"]
    assert len(errors) == 4
    assert "and 1 more; all are in " in str(caught.value)
    assert "not allowed" in caplog.text, "where it was raised is logged"
    assert {tries[source] for source in inputs[3:8]} == {2}
    assert not any(os.path.exists(out(inputs[number])) for number in (3, 4, 5, 6))
    assert Path(out(inputs[7])).exists()
    told = [line for line in read_lines(manifest) if line["status"] == "failed"]
    assert {Path(str(line["input"])).stem: line["error"] for line in told} == errors
    result = map_files(shout, inputs, out, client=threads, raise_on_failure=False)
    assert (result.succeeded, result.existed, result.failed) == (4, 56, 0)


def test_outputs_on_a_store(threads: LocalClient, inputs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    store = fsspec.filesystem("memory")
    puts: list[str] = []
    pipe = type(store).pipe_file

    def noted(self: object, path: str, value: bytes, **kwargs: object) -> object:
        puts.append(path)
        return pipe(self, path, value, **kwargs)

    monkeypatch.setattr(type(store), "pipe_file", noted)
    place = f"memory://map-files-{os.getpid()}"
    outputs = [f"{place}/out/{os.path.basename(source)}" for source in inputs]
    manifest = f"{place}/manifest.jsonl"
    result = map_files(shout, inputs, outputs, client=threads, manifest=manifest, max_workers=3)
    assert result.succeeded == 60
    assert sorted(puts) == sorted(url.removeprefix("memory:/") for url in [*outputs, f"{manifest}.partial", manifest])
    assert not store.exists(f"{manifest}.partial")
    assert store.cat_file(outputs[4]) == b"004!"
    assert len(store.cat_file(manifest).splitlines()) == 60
    assert map_files(shout, inputs, outputs, client=threads).existed == 60


def test_only_as_many_inputs_are_taken_as_can_be_worked_on(threads: LocalClient, tmp_path: Path) -> None:
    taken = 0
    done = 0
    ahead: list[int] = []
    lock = threading.Lock()

    def endless() -> Iterator[str]:
        nonlocal taken
        for taken in range(1, 201):
            yield str(taken)

    def slow(source: str, path: str) -> None:
        nonlocal done
        with lock:
            ahead.append(taken - done)
        threading.Event().wait(0.002)
        Path(path).touch()
        with lock:
            done += 1

    result = map_files(slow, endless(), lambda n: tmp_path / n, client=threads, max_workers=2, batch_seconds=0.01)
    assert result.succeeded == 200
    assert max(ahead) < 60


def test_what_the_inputs_raise_is_raised_and_what_was_done_is_told(
    threads: LocalClient, inputs: list[str], out: Callable[[str], str], tmp_path: Path
) -> None:
    manifest = tmp_path / "manifest.jsonl"

    def broken() -> Iterator[str]:
        yield from inputs[:40]
        raise KeyboardInterrupt("the listing broke off")

    with pytest.raises(KeyboardInterrupt, match="broke off"):
        map_files(shout, broken(), out, client=threads, max_workers=1, manifest=str(manifest))
    assert not manifest.exists()
    assert (tmp_path / "manifest.jsonl.partial").exists()
