import os
from pathlib import Path

import pytest

from marin.run.mapping.pairs import file_tasks
from rigging.errors import InvalidRequest


def test_local_outputs_become_absolute_and_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tasks = file_tasks(["a", Path("b"), "gs://x/c"], ["o/a", f"file://{tmp_path}/o//b", "gs://y/c"])
    assert [tuple(task) for task in tasks] == [
        (0, "a", os.path.join(tmp_path, "o/a")),
        (1, "b", os.path.join(tmp_path, "o/b")),
        (2, "gs://x/c", "gs://y/c"),
    ]


@pytest.mark.parametrize(
    ("inputs", "outputs", "reason"),
    [
        (["a", "b"], ["/o/x", "/o/./x"], r"'/o/./x' of input 'b' .number 1. is another input's output"),
        (["a", "b"], ["/o/x", "/proc/self/root/o/x"], r"of input 'b'.*another"),
        (["a", "b"], ["gs://o/x", "gcs://o/x"], r"of input 'b'.*another"),
        (["a", "b"], lambda _: "/o/x", r"of input 'b'.*another"),
        (["a", "b"], ["/o/x"], r"1 outputs; input 'b' \(number 1\) has none"),
        (["a"], ["/o/x", "/o/y"], r"1 inputs; output '/o/y' \(number 1\) has none"),
        (["/i/a"], ["file:///i/a"], "'/i/a' is its own output"),
        (["gcs://i/a"], ["gs://i/a"], "'gcs://i/a' is its own output"),
        (["a"], ["gs://bucket/folder/"], "names no file"),
        (["a"], [""], "output '' of input 'a' is not a path"),
        ([3], ["/o/x"], "input 3 is not a path"),
        ("abc", ["/o/x"], "inputs must be paths, not 'abc'"),
        (["a"], 7, "outputs must be paths, not 7"),
    ],
)
def test_what_cannot_be_right_is_refused_by_name(inputs: object, outputs: object, reason: str) -> None:
    # Before the first is taken: nothing was started.
    with pytest.raises(InvalidRequest, match=reason):
        file_tasks(inputs, outputs)  # type: ignore[arg-type]


def test_no_output_is_in_the_memory_of_a_process_that_ends() -> None:
    for inputs in (["a"], iter(["a"])):
        with pytest.raises(InvalidRequest, match="'memory://o/x' of input 'a' would be in the memory of its worker's"):
            next(file_tasks(inputs, ["memory://o/x"], processes=True))
    assert next(file_tasks(["memory://i/a"], ["/o/x"], processes=True)).output == "/o/x"
    assert next(file_tasks(["a"], ["memory://o/x"])).output == "memory://o/x"


def test_inputs_that_come_one_by_one_are_checked_as_they_come() -> None:
    tasks = file_tasks((name for name in "aba"), lambda name: f"/o/{name}")
    assert [next(tasks).input, next(tasks).input] == ["a", "b"]
    with pytest.raises(InvalidRequest, match="number 2"):
        next(tasks)


@pytest.mark.parametrize(
    ("source", "output", "manifest", "reason"),
    [
        ("/i/a", "/o/a", "/i/a", "input '/i/a' is where the manifest is written"),
        ("/i/a", "/o/a", Path("/o/./a"), "output '/o/a' is where the manifest"),
        ("/i/a.partial", "/o/a", "/i/a", "input '/i/a.partial' is where"),
        ("gs://i/a", "/o/a", "gcs://i/a", "input 'gs://i/a' is where"),
    ],
)
def test_the_manifest_takes_no_file_s_place(source: str, output: str, manifest: str | Path, reason: str) -> None:
    # It would be written over the input, or over the output, at the end of a run that says all is well.
    with pytest.raises(InvalidRequest, match=reason):
        file_tasks([source], [output], manifest)
    with pytest.raises(InvalidRequest, match=reason):
        next(file_tasks(iter([source]), lambda _: output, manifest))


def test_a_manifest_behind_a_link_takes_no_file_s_place_either(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(InvalidRequest, match="is where the manifest is written"):
        file_tasks([tmp_path / "real" / "a"], ["/o/a"], tmp_path / "link" / "a")
