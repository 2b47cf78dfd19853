"""The states of many local outputs."""

import contextlib
import hashlib
import os
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import pytest

from marin.execution import Executor, ExecutorStep
from marin.execution.explain import explain_steps
from marin.execution.record.output_state import NO_OUTPUT, OutputState, md5_of, read_output_states
from rigging.errors import NotFound, Unavailable
from support.marin.buckets import bucket_root


def put(output: Path, status: str, info: bytes | None = None) -> None:
    output.mkdir(parents=True)
    (output / ".executor_status").write_text(status)
    if info is not None:
        (output / ".executor_info").write_bytes(info)


@pytest.mark.parametrize("others", [0, 100])  # few enough to list the directory, and too many
def test_they_are_the_same_whether_their_directory_is_listed_or_not(tmp_path: Path, others: int) -> None:
    for number in range(others):
        (tmp_path / f"other-{number}").touch()
    put(tmp_path / "a-1", "SUCCESS", b"{}")
    put(tmp_path / "b-2", "RUNNING")
    (tmp_path / "c-3").mkdir()
    (tmp_path / "d-4.SUCCESS").touch()
    (tmp_path / "e-5").mkdir()
    (tmp_path / "e-5" / "SUCCESS").touch()
    names = ["a-1", "b-2", "c-3", "d-4", "e-5", "f-6", "deep/g-7"]
    states = read_output_states([f"{tmp_path}/{name}" for name in names])
    assert {path.removeprefix(f"{tmp_path}/"): state for path, state in states.items()} == {
        "a-1": OutputState("SUCCESS", md5_of(b"{}")),
        "b-2": OutputState("RUNNING", None),
        "c-3": NO_OUTPUT,
        "d-4": OutputState("SUCCESS", None),
        "e-5": OutputState("SUCCESS", None),
        "f-6": NO_OUTPUT,
        "deep/g-7": NO_OUTPUT,
    }


def test_paths_are_returned_as_they_were_given(tmp_path: Path) -> None:
    put(tmp_path / "a-1", "SUCCESS")
    root = str(tmp_path)
    paths = [f"{root}/a-1/", f"file://{root}/a-1", f"{root}/b-2/", f"{root}/a-1/x/..", f"{root}/a-1/."]
    (tmp_path / "a-1" / "x").mkdir()
    states = read_output_states(paths)
    assert [states[path].status for path in paths] == ["SUCCESS", "SUCCESS", None, "SUCCESS", "SUCCESS"]


def test_outputs_directly_below_the_root_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr("os.scandir", lambda folder: listed.append(folder) or scandir(folder))
    assert read_output_states(["/no-such-output-0a1b2c"]) == {"/no-such-output-0a1b2c": NO_OUTPUT}
    assert listed == ["/"]


@pytest.mark.parametrize("name", ["A-1", "\N{LATIN SMALL LETTER E WITH ACUTE}-1"])
def test_names_that_are_listed_otherwise_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As where case does not count, or letters with accents are listed in parts."""
    put(tmp_path / name, "SUCCESS")
    shown = unicodedata.normalize("NFD", name).lower()
    monkeypatch.setattr("os.scandir", lambda _: contextlib.nullcontext([SimpleNamespace(name=shown)]))
    path = f"{tmp_path}/{name}"
    assert read_output_states([path])[path].status == "SUCCESS"


def test_a_directory_that_may_not_be_listed_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a-1", "SUCCESS")

    def refuse(_: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.scandir", refuse)  # as its owner, and as root, one may always
    path = str(tmp_path / "a-1")
    assert read_output_states([path])[path].status == "SUCCESS"


@pytest.mark.parametrize("size", [0, 1, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 3 << 14])
def test_what_was_written_down_is_compared_whole_whatever_its_size(tmp_path: Path, size: int) -> None:
    info = os.urandom(size)
    put(tmp_path / "a-1", "SUCCESS", info)
    path = str(tmp_path / "a-1")
    assert read_output_states([path])[path] == OutputState("SUCCESS", hashlib.md5(info).hexdigest())


@pytest.mark.parametrize("protocol", ["gs", "s3"])
def test_a_bucket_that_cannot_be_used_is_named_with_what_to_do(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with bucket_root(protocol, "there"), pytest.raises(NotFound, match=f"no bucket {protocol}://none; make it, or set"):
        read_output_states([f"{protocol}://none/deep/a-0a1b2c"])
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    with pytest.raises(Unavailable, match=r"s3://none cannot be read: .*credentials.* It needs AWS_ACCESS_KEY_ID and"):
        read_output_states(["s3://none/a-0a1b2c"])
    with pytest.raises(Unavailable, match="It needs AWS_ACCESS_KEY_ID and"):
        explain_steps(Executor("s3://none", "s3://none/runs"), [ExecutorStep(name="a", fn=print, config=None)])
