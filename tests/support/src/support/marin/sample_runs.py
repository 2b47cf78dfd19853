"""A storage root with runs of all kinds, for tests and screenshots of pages."""

import gzip
import json
import time
from pathlib import Path
from typing import Any

from support.marin.recorded_runs import STARTED, RecordedStorage, ended, started, step_ended

Step = dict[str, Any]


def sample_root(root: Path, *, shards: int = 40) -> RecordedStorage:
    """Write runs of a data pipeline (one ended, one running, one failed) and their steps' files."""
    storage = RecordedStorage(root)
    first = _pipeline(storage, shards, rate=0.001)
    ends = [step_ended(step, attempts=_attempts()) for step in first]
    storage.run(
        "pretrain-0a1b2c",
        first,
        [started(len(first), host="cell-1", user="ada"), *ends, ended(ends={"succeeded": len(first)})],
    )
    second = _pipeline(storage, shards, rate=0.003, digits="b")
    events = [started(len(second), host="cell-1", user="ada")]
    for number, step in enumerate(second):
        if number < shards // 2:
            events.append(step_ended(step, status="cached" if number < 5 else "succeeded"))
        elif number < shards // 2 + 3:
            events.append({"event": "step_started", "time": STARTED, "name": step["name"], "path": step["output_path"]})
        else:
            events.append({"event": "step_queued", "time": STARTED, "name": step["name"], "path": step["output_path"]})
    storage.run("pretrain-3d4e5f", second, events, hour=3)
    bad = storage.step("eval/toxicity-badbad", status="FAILED")
    error = "ValueError: 3 documents have no text"
    Path(bad["output_path"], ".error").write_text(f"Traceback (most recent call last):\n  ...\n{error}\n")
    after = storage.step("eval/report-c0c0c0", status=None, dependencies=[bad["output_path"]])
    storage.run(
        "evaluate-777777",
        [bad, after],
        [
            started(2, host="cell-2", user="grace"),
            step_ended(bad, "failed", error=error, log="job /grace/eval-toxicity"),
            step_ended(after, "dep_failed", error="StepFailed: dependency eval/toxicity failed"),
            ended(ends={"failed": 1, "dep_failed": 1}),
        ],
        hour=2,
    )
    _files(Path(first[-2]["output_path"]))
    return storage


def _pipeline(storage: RecordedStorage, shards: int, rate: float, digits: str = "a") -> list[Step]:
    raw = storage.step(f"raw/web-{digits * 6}")
    made = [raw]
    tokens = []
    for number in range(shards):
        step = storage.step(
            f"tokenized/web/shard_{number:04}-{digits * 2}{number:04x}",
            dependencies=[raw["output_path"]],
            config={"shard": number, "tokenizer": "bpe-32k", "input": raw["output_path"]},
        )
        Path(step["output_path"], ".log").write_text(f"shard {number}: 1024 documents\n")
        tokens.append(step)
    mixture = storage.step(f"mixture/all-{digits * 6}", dependencies=[step["output_path"] for step in tokens])
    train = storage.step(
        f"checkpoints/tiny-{digits * 6}",
        dependencies=[mixture["output_path"]],
        config={"learning_rate": rate, "layers": 4, "mixture": mixture["output_path"]},
        version={"name": "checkpoints/tiny", "config": {"learning_rate": rate, "layers": 4}, "dependencies": ["all"]},
        source={"experiments.pretrain.train": "source f03e630a9e1c266f"},
        unversioned={"wandb_tags": ["tiny"]},
    )
    lines = "".join(f"step {number}: loss {4 / (1 + number / 40):.4f}\n" for number in range(300))
    Path(train["output_path"], ".log").write_text(lines)
    check = storage.step(f"eval/perplexity-{digits * 6}", dependencies=[train["output_path"]])
    return [*made, *tokens, mixture, train, check]


def _attempts() -> list[dict[str, Any]]:
    gone = {"outcome": "preempted", "seconds": 12.5, "queued_seconds": 1.0, "cpu_seconds": None, "peak_bytes": None}
    done = {"outcome": "succeeded", "seconds": 61.5, "queued_seconds": 0.5, "cpu_seconds": 58.2, "peak_bytes": 3 << 28}
    return [{**gone, "error": "the worker was taken away"}, {**done, "error": None}]


def _files(path: Path) -> None:
    """Write a file of each kind that pages can show, as far as the libraries are installed."""
    (path / "report.html").write_text("<h1>Report</h1><p>Loss went down.</p><script>alert(1)</script>")
    (path / "curve.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" width="320" height="120"><path d="M10 10C60 90 120 100 310 108" '
        'fill="none" stroke="#0b5fa5" stroke-width="3"/></svg>'
    )
    records = [
        {"id": number, "text": f"Document {number} <b>of many</b>", "score": number / 7} for number in range(250)
    ]
    text = "".join(json.dumps(record) + "\n" for record in records)
    (path / "samples.jsonl").write_text(text)
    (path / "samples.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (path / "notes.txt").write_text("Tiny model, 4 layers.\n" * 40)
    (path / "weights.bin").write_bytes(bytes(range(256)) * 8)
    (path / "shards").mkdir()
    for number in range(12):
        (path / "shards" / f"part-{number:05}.txt").write_text("x" * number)
    try:
        import numpy
        import pyarrow
        import zstandard
        from pyarrow import parquet
    except ImportError:
        return
    (path / "samples.jsonl.zst").write_bytes(zstandard.compress(text.encode()))
    numpy.save(path / "weights.npy", numpy.linspace(-1, 1, 64 * 128).reshape(64, 128))
    table = pyarrow.table({name: [record[name] for record in records] for name in records[0]})
    parquet.write_table(table, path / "samples.parquet", row_group_size=100)


def running_step(storage: RecordedStorage, name: str = "train/live-111111") -> tuple[str, Step, Path]:
    """Record a running run of this process. Return its name, the running step, and the event log."""
    import os

    step = storage.step(name, status="RUNNING")
    Path(step["output_path"], ".log").write_text("begun\n")
    after = storage.step(f"{name.partition('/')[0]}/after-222222", status=None, dependencies=[step["output_path"]])
    begun = {"event": "step_started", "time": time.time(), "name": step["name"], "path": step["output_path"]}
    waits = {"event": "step_queued", "time": time.time(), "name": after["name"], "path": after["output_path"]}
    run = storage.run(
        "live-999999", [step, after], [started(2, host=os.uname().nodename, user="ada"), begun, waits], pid=os.getpid()
    )
    log = storage.root / "experiments" / f"{run}.events.jsonl"
    # Its process must have begun before it: this one did.
    now = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    renamed = log.with_name(f"live-999999-{now}.000000Z-{os.getpid()}.events.jsonl")
    log.rename(renamed)
    return renamed.name.removesuffix(".events.jsonl"), step, renamed
