"""`marin table`: steps' metrics beside the values that differ."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rigging.filesystem import write_bytes_atomic
from support.marin.buckets import bucket_root
from support.marin.recorded_runs import STARTED, Done, RecordedStorage, ended, started, step_ended


@pytest.fixture
def run(storage: RecordedStorage) -> str:
    steps = []
    for number, (lr, loss) in enumerate([(0.1, 3.0), (0.2, 1.0), (0.4, None)]):
        name = f"train-{number:06x}"
        path = str(storage.root / name)
        step = storage.step(name, config={"model": {"lr": lr, "layers": 2}, "out": f"{path}/x"})
        metrics = [{"step": 0, "loss": 9.0}, {"step": 1, "loss": loss}] if loss else [{"step": 0, "other": 1}]
        Path(path, ".executor_metrics").write_text("".join(json.dumps(row) + "\n" for row in metrics) + '{"step": 2, ')
        steps.append(step)
    Path(storage.root, "train-000001", ".artifact").write_text('{"accuracy": 0.5, "note": "x"}')
    steps.append(storage.step("data-000009"))
    return storage.run("x-0a1b2c", steps, [started(4), *map(step_ended, steps), ended()])


def cells(done: Done) -> list[list[str]]:
    assert done.code == 0, done.err
    return [line.split() for line in done.out.splitlines()]


def test_the_values_that_differ_and_the_last_metrics_sorted(run: str, marin: Callable[..., Done]) -> None:
    assert cells(marin("table", "x-0a1b2c", "--sort", "loss")) == [
        ["STEP", "MODEL.LR", "ACCURACY", "LOSS", "OTHER"],
        ["train", "0.2", "0.5", "1"],
        ["train", "0.1", "3"],
        ["train", "0.4", "1"],
    ]
    table = marin("table", "train-*", "--metric", "loss", "--sort", "model.lr", "--descending", "--csv")
    assert table.out == "step,model.lr,loss\ntrain,0.4,\ntrain,0.2,1\ntrain,0.1,3\n"
    [first, *_] = marin("table", "train-000001", "--json").json
    assert (first["step"], first["metrics"]) == ("train", {"loss": 1.0, "accuracy": 0.5})


def test_a_run_does_not_show_what_a_later_run_recorded(storage: RecordedStorage, marin: Callable[..., Done]) -> None:
    steps = [storage.step(f"train-00000{number}") for number in range(3)]
    for number, step in enumerate(steps):
        Path(step["output_path"], ".artifact").write_text(str(number))
    failed = {"status": "failed", "error": "ValueError: x", "began": STARTED}
    events = [step_ended(steps[0]), step_ended(steps[1], **failed)]  # the third never began
    run = storage.run("x-0a1b2c", steps, [started(3), *events, ended("1 of 3 steps failed")])
    assert [row["metrics"] for row in marin("table", run, "--json").json] == [{"returned": 0.0}]
    assert len(marin("table", "train-*", "--json").json) == 3


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("log.jsonl", '{"step": 5, "loss": 2, "done": null}\n{"step": 6, "loss": 1}\n', {"loss": 1.0}),
        ("log.csv", "step,loss\n5,2\n6,\n", {"loss": 2.0}),
        ("docs.jsonl", '{"text": "x", "n": 1}\n', {}),
        ("docs.csv", "text,n\nx,1\n", {}),
        ("torn.csv", "step,loss\n5\n", {}),
        ("latin.csv", b"loss\n1\xff\n", {}),
        (".artifact", "0.25", {"returned": 0.25}),
        (".artifact", f'{{"digits": 1{"0" * 400}, "nan": NaN, "loss": 1}}', {"loss": 1.0}),
    ],
)
def test_files_of_numbers_count_and_datasets_do_not(
    storage: RecordedStorage, marin: Callable[..., Done], name: str, content: str | bytes, found: dict[str, float]
) -> None:
    storage.step("train-000001")
    place = storage.root / "train-000001" / name
    place.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = marin("table", "train", "--json")
    assert [row["metrics"] for row in done.json] == ([found] if found else [])
    assert ("has metrics" in done.err) is not bool(found)


def test_outputs_in_another_region_are_not_read(marin: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    with bucket_root("gs", "marin-table-tests") as bucket:  # in us-central1
        for name in (".executor_metrics", ".executor_status"):
            write_bytes_atomic(f"{bucket}/train-000001/{name}", b'{"loss": 1}')
        for region, count in {"us-central1": 1, "us-east1": 0}.items():
            monkeypatch.setenv("MARIN_PREFIX", f"gs://marin-{region}")
            done = marin("table", f"{bucket}/train-000001", "--json")
            assert (len(done.json), "in another region" in done.err) == (count, not count), done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["x-0a1b2c", "--sort", "speed"], "no metric 'speed'; there are accuracy, loss, other"),
        (["*/x"], "only the last part of a pattern"),
        (["x-0a1b2c", "--csv", "--json"], "choose one"),
    ],
)
def test_what_is_not_there_is_told(run: str, marin: Callable[..., Done], words: list[str], told: str) -> None:
    done = marin("table", *words)
    assert (done.code, told in done.err) == (3, True), done.err
