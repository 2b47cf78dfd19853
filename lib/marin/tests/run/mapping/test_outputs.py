"""Outputs get their names whole, on any filesystem, and never over what another has made."""

import errno
import os
from pathlib import Path

import fsspec
import pytest

from marin.run.mapping import manifest as manifest_module
from marin.run.mapping.manifest import Manifest
from marin.run.mapping.outputs import OutputWriter, remove_abandoned
from marin.run.mapping.state import FileStatus, FileTask, FinishedFile
from rigging.errors import Conflict, JobFailed


def make(writer: OutputWriter, output: str, text: str) -> None:
    with writer.writing(output) as place:
        Path(place).write_text(text)


def test_an_output_that_has_come_up_meanwhile_stays(tmp_path: Path) -> None:
    output = tmp_path / "deep" / "x.txt"
    with OutputWriter() as writer:
        assert not writer.exists(str(output))
        with writer.writing(str(output)) as place:
            assert os.path.basename(place) == "x.txt", "its extension may matter"
            Path(place).write_text("late")
            output.write_text("first")
        assert writer.exists(str(output))
    assert output.read_text() == "first"
    assert os.listdir(output.parent) == ["x.txt"]


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_nothing_appears_without_a_file_or_with_an_error(tmp_path: Path, kind: str) -> None:
    output = f"{tmp_path}/x" if kind == "local" else f"memory://{tmp_path.name}/x"

    def fail(writer: OutputWriter) -> None:
        with writer.writing(output) as place:
            Path(place).write_text("half")
            raise ZeroDivisionError

    with OutputWriter() as writer:
        with pytest.raises(JobFailed, match="wrote no file"), writer.writing(output):
            pass
        with pytest.raises(ZeroDivisionError):
            fail(writer)
        assert not writer.exists(output)
        make(writer, output, "whole")
        assert writer.exists(output)
    assert not list(tmp_path.glob(".*")), "its folders go with the writer"


def test_folders_of_killed_writers_are_removed_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    abandoned, others = tmp_path / ".marin-tmp-map-0123456789ab", tmp_path / ".marin-tmp-other"
    for folder in (abandoned, others):
        folder.mkdir()
        (folder / "half").write_text("ha")
    with OutputWriter() as writer, writer.writing(str(tmp_path / "x")) as place:
        remove_abandoned(str(tmp_path))
        Path(place).write_text("whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [others.name, "x"]
    remove_abandoned(str(tmp_path / "not there"))


def finished(number: int) -> tuple[FinishedFile, ...]:
    return (FinishedFile(FileTask(number, f"in{number}", f"out{number}"), FileStatus.SUCCEEDED, "", ""),)


def content(url: str) -> str | None:
    fs, path = fsspec.core.url_to_fs(url)
    return fs.cat_file(path).decode() if fs.exists(path) else None


def test_a_manifest_elsewhere_is_sent_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"memory://{tmp_path.name}/m.jsonl"
    manifest = Manifest(url)
    assert content(f"{url}.partial") == "", "that it can be written is known before the work"
    manifest.add(finished(1))
    assert content(f"{url}.partial") == "", "not after every file"
    monkeypatch.setattr(manifest_module.time, "monotonic", lambda: 1e12)
    manifest.add(finished(2))
    assert (content(f"{url}.partial") or "").count("\n") == 2
    manifest.add(finished(3))
    assert (content(f"{url}.partial") or "").count("\n") == 2
    manifest.close()
    assert (content(url) or "").count("\n") == 3
    assert content(f"{url}.partial") is None


def test_a_manifest_replaced_while_it_was_opened_is_anothers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lockf, partial = manifest_module.fcntl.lockf, tmp_path / "m.jsonl.partial"

    def late(stream: object, operation: int) -> None:
        os.replace(partial, tmp_path / "m.jsonl")
        partial.touch()
        lockf(stream, operation)  # type: ignore[arg-type]

    monkeypatch.setattr(manifest_module.fcntl, "lockf", late)
    with pytest.raises(Conflict, match="is being written by another run"):
        Manifest(str(tmp_path / "m.jsonl"))


@pytest.mark.parametrize("able", [True, False])
def test_without_links_and_locks_names_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, able: bool) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "not here")

    if not able:
        monkeypatch.setattr(os, "link", refuse)
        monkeypatch.setattr(manifest_module.fcntl, "lockf", refuse)
    (tmp_path / "m.jsonl.partial").write_text("of an earlier run\n")
    (tmp_path / "x").symlink_to("gone")
    manifest = Manifest(str(tmp_path / "m.jsonl"))
    manifest.add(finished(1))
    manifest.close()
    assert (tmp_path / "m.jsonl").read_text().count("\n") == 1
    with OutputWriter() as writer:
        assert not writer.exists(str(tmp_path / "x")), "a link that leads nowhere is no output"
        make(writer, str(tmp_path / "x"), "1")
    assert ((tmp_path / "x").read_text(), (tmp_path / "x").is_symlink()) == ("1", False)
    assert sorted(os.listdir(tmp_path)) == ["m.jsonl", "x"]


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_an_unfinished_manifest_is_left_under_its_own_name(tmp_path: Path, kind: str) -> None:
    url = f"{tmp_path}/m.jsonl" if kind == "local" else f"memory://{tmp_path.name}/m.jsonl"
    manifest = Manifest(url)
    manifest.add(finished(1))
    for _ in range(2):
        manifest.abandon()
    assert '"in1"' in (content(f"{url}.partial") or "")
    assert content(url) is None
