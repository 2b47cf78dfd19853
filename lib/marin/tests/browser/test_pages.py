"""The experiment pages: what they show of runs, steps and files."""

import json
import re
from pathlib import Path

import pytest

from rigging.web.app import create_app
from rigging.web.context import WebSettings
from rigging.web.pages import offered_page_sets
from support.marin.recorded_runs import RecordedStorage, ended, started, step_ended

from .conftest import Pages

TINY = "checkpoints/tiny-aaaaaa"


def test_a_new_run_and_a_new_state_are_seen_at_once(empty: Pages) -> None:
    assert "No runs are recorded" in empty.get("runs")
    step = empty.storage.step("a-111111", status=None)
    name = empty.storage.run("one-111111", [step], [started()])
    assert "unfinished" in empty.get("runs")
    log = empty.root / "experiments" / f"{name}.events.jsonl"
    with log.open("a") as file:
        file.write(json.dumps(step_ended(step)) + "\n" + json.dumps(ended(ends={"succeeded": 1})) + "\n")
    assert "s-succeeded" in empty.get("runs")
    assert "s-succeeded" in empty.get("run", run=name)


def test_damaged_files_are_named_and_the_rest_is_shown(empty: Pages) -> None:
    empty.storage.run("good-111111", [], [started(0), ended()])
    bad = empty.storage.run("bad-222222", [], [started(0), ended()])
    (empty.root / "experiments" / "bad-222222.json").write_text("{")
    page = empty.get("runs")
    assert "damaged" in page
    assert "good-111111" in page
    assert "damaged" in empty.get("run", run=bad)
    empty.storage.run("odd-333333", [], [started(0), ended()])
    (empty.root / "experiments" / "odd-333333.json").write_text('{"steps": 3}')
    assert "it has no list of steps" in empty.get("run", run="odd-333333")
    assert empty.status("compare", before="good-111111", after="bad-222222") == 400


def test_a_run_has_its_graph_with_like_steps_as_one_node(samples: Pages) -> None:
    page = samples.get("run", run="pretrain-0a1b2c")
    assert "tokenized/web/shard_* (12 steps)" in page
    assert "/work/train.py" in page
    assert page.count('class="node ') == 5
    assert "16 of 16 steps done" in page
    each = samples.get("run", run="pretrain-0a1b2c", group="none")
    assert each.count('class="node ') == 16
    folders = samples.get("run", run="pretrain-0a1b2c", group="folder")
    assert "tokenized/web/* (12 steps)" in folders
    run = "pretrain-3d4e5f"
    assert "1–4 of 4" in samples.get("run", run=run, q="tokenized/web/shard_*", status="cached")
    assert "1–12 of 12" in samples.get("run", run=run, q="tokenized/web/shard_*")
    assert "No step matches" in samples.get("run", run=run, q="[a-z]*")


def test_a_run_tells_what_failed_and_the_end_of_its_log(empty: Pages) -> None:
    first, other = empty.storage.step("train-111111", status="FAILED"), empty.storage.step("eval-222222")
    (empty.root / "train-111111/.log").write_text("".join(f"line {number}\n" for number in range(1, 6001)))
    late = {**step_ended(other, "failed"), "time": 1.8e9}
    run = empty.storage.run("x-111111", [other, first], [started(2), late, step_ended(first, "failed", error="No.")])
    page = empty.get("run", run=run)
    card = page[page.index('class="failure"') :].partition("</section>")[0]
    for shown in (
        "train failed",
        "No.",
        "line 5981\n",
        "line 6000<",
        "log?path=train-111111#L6000",
        "1 other failed step<",
    ):
        assert shown in card, shown
    assert "line 5980" not in card
    (empty.root / "train-111111/.log").unlink()
    page = empty.get("run", run=run)
    assert ("Open the log" in page, "train-111111&amp;run=" in page, "Open the step</a>" in page) == (False, True, True)
    job = empty.storage.run("z-111111", [other], [started(1, job="/ada/z"), ended()])
    assert 'href="/job?name=%2Fada%2Fz">/ada/z</a>' in empty.get("run", run=job)
    assert 'class="failure"' not in empty.get("run", run=empty.storage.run("y-111111", [other], [started(1), ended()]))


def test_a_run_shows_its_steps_over_time_with_the_critical_path(empty: Pages) -> None:
    data, side = (empty.storage.step(f"{name}-111111") for name in ("data", "side"))
    train = empty.storage.step("train-111111", dependencies=[data["output_path"], side["output_path"]])
    events = []
    for step, begin, end in ((data, 0, 60), (side, 0, 30), (train, 60, 100)):
        events.append({"event": "step_started", "time": 1e9 + begin, "name": step["name"], "path": step["output_path"]})
        events.append({**step_ended(step, seconds=end - begin), "time": 1e9 + end})
    run = empty.storage.run("x-111111", [data, side, train], [started(3), *events, ended()])
    page = empty.get("run", run=run, tab="timeline")
    assert re.findall(r'critical" x="([\d.]+)%" y="4" width="([\d.]+)%"', page) == [
        ("0.000", "60.000"),
        ("60.000", "40.000"),
    ]
    assert "1 min 40 s in all; the critical path, in full colour, ran 1 min 40 s" in page
    assert "No step of this run" in empty.get("run", run=empty.storage.run("y-111111", [data]), tab="timeline")


def test_a_step_opens_beside_the_graph(samples: Pages) -> None:
    page = samples.get("run", run="pretrain-0a1b2c")
    assert f'data-panel="/experiments/panel?path={TINY.replace("/", "%2F")}&amp;run=pretrain-0a1b2c' in page
    part = samples.get("panel", path=TINY, run="pretrain-0a1b2c")
    assert [text for text in ("step 299: loss", "learning_rate", "58.2 s", "notes.txt") if text not in part] == []
    assert samples.status("panel", path="none-111111", run="pretrain-0a1b2c") == 404
    config = samples.get("run", run="pretrain-0a1b2c", tab="config")
    assert [text for text in ("learning_rate", "/work/train.py", "c0ffee") if text not in config] == []
    assert samples.status("run", run="pretrain-0a1b2c", tab="nothing") == 400


def test_a_step_shows_config_version_code_attempts_log_and_files(samples: Pages) -> None:
    page = samples.get("step", path=TINY, run="pretrain-0a1b2c")
    for shown in (
        *("learning_rate", "source f03e630a9e1c266f", "the worker was taken away", "768 MiB", "58.2 s"),
        *("step 299: loss", "wandb_tags", "samples.parquet", f"{samples.root}/mixture/all-aaaaaa"),
    ):
        assert shown in page, shown
    failed = samples.get("step", path="eval/toxicity-badbad", run="evaluate-777777")
    assert "Traceback (most recent call last)" in failed
    assert 'href="/job?name=%2Fgrace%2Feval-toxicity"' in failed


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("notes.txt", ["Tiny model, 4 layers."]),
        ("samples.jsonl", ["Document 3 &lt;b&gt;of many&lt;/b&gt;", "Next"]),
        ("samples.jsonl.gz", ["Document 99"]),
        ("samples.jsonl.zst", ["Document 99"]),
        ("samples.parquet", ["250", "id : int64", "row group 1 of 3", "Document 49"]),
        ("weights.npy", ["64 × 128", "float64", "-0.999756", "The first 24 of 64 rows"]),
        ("weights.bin", ["00000000  00 01 02", "Not text"]),
        ("curve.svg", ["<img", "show=1"]),
        ("report.html", ["<iframe", "sandbox"]),
    ],
)
def test_files_are_previewed_by_their_kind(samples: Pages, name: str, shown: list[str]) -> None:
    page = samples.get("files", path=f"{TINY}/{name}")
    assert [text for text in shown if text not in page] == []


def test_damaged_files_are_said_to_be_so(empty: Pages) -> None:
    numpy = pytest.importorskip("numpy")
    numpy.save(empty.root / "bad.npy", numpy.array([{"a": 1}], dtype=object), allow_pickle=True)
    for name, content, words in (
        ("a.gz", b"no gzip", "damaged"),
        ("a.zst", b"no zstd", "damaged"),
        ("a.xz", b"no xz", "damaged"),
        ("a.parquet", b"PAR1 no table PAR1", "cannot be shown as a table"),
        ("a.npy", b"\x93NUMPY\x01\x00v\x00no header", "damaged"),
        ("a.npy", b"", "damaged"),
        ("bad.npy", (empty.root / "bad.npy").read_bytes(), "never loaded"),
        ("a.jsonl", b'{"a": 1}\n{"b"', "1 of these lines are not valid JSON"),
        ("empty.txt", b"", "The file is empty"),
    ):
        (empty.root / name).write_bytes(content)
        assert words in empty.get("files", path=name), name


def test_a_step_with_a_result_is_not_followed_although_its_run_says_it_runs(samples: Pages) -> None:
    assert "data-events" not in samples.get("step", path="checkpoints/tiny-bbbbbb", run="pretrain-3d4e5f")


def test_the_error_of_an_earlier_attempt_is_no_failure_of_a_step_that_succeeded(samples: Pages) -> None:
    place = Path(samples.root, "checkpoints/tiny-bbbbbb")
    (place / ".error").write_text("Traceback\nValueError: seven\n(7 frames of the executor omitted; -v shows them)")
    page = samples.get("step", path="checkpoints/tiny-bbbbbb")
    assert ("Error of an earlier attempt" in page, 'class="failure"' in page) == (True, False)
    (place / ".executor_status").write_text("FAILED")
    assert "<h2>ValueError: seven</h2>" in samples.get("step", path="checkpoints/tiny-bbbbbb")


def test_a_step_that_wrote_nothing_yet_is_shown_from_its_run(samples: Pages) -> None:
    path = Path(samples.root, "eval/report-c0c0c0")
    for file in list(path.iterdir()):
        file.unlink()
    path.rmdir()
    page = samples.get("step", path="eval/report-c0c0c0", run="evaluate-777777")
    assert "input failed" in page
    assert "module.function" in page
    assert samples.status("step", path="eval/report-c0c0c0") == 404


def test_further_parts_of_a_file_join_without_a_gap(samples: Pages) -> None:
    seen: list[int] = []
    start: str | None = "0"
    while start is not None:
        page = samples.get("files", path=f"{TINY}/samples.jsonl.zst", start=start)
        seen += map(int, re.findall(r"&#34;id&#34;: (\d+)", page))
        found = re.search(r'start=(\d+)">Next', page)
        start = found[1] if found else None
    assert seen == list(range(250))
    assert "row group 3 of 3" in samples.get("files", path=f"{TINY}/samples.parquet", start=99)


def test_a_compressed_file_that_holds_very_much_costs_little(empty: Pages) -> None:
    import tracemalloc

    import zstandard

    writer = zstandard.ZstdCompressor().compressobj()
    with (empty.root / "huge.txt.zst").open("wb") as file:
        block = b"0" * (1 << 24)
        for _ in range(16):
            file.write(writer.compress(block))
        file.write(writer.flush())
    tracemalloc.start()
    page = empty.get("files", path="huge.txt.zst")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "Next" in page
    assert peak < 32 << 20


def test_the_tail_of_a_huge_log_is_shown_and_earlier_lines_on_demand(empty: Pages) -> None:
    path = empty.root / "big-111111"
    path.mkdir()
    with (path / ".log").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(1 << 30)
        for number in range(5000):
            file.write(f"line {number:08}\n".encode())
    page = empty.get("log", path="big-111111")
    assert "line 00004999" in page
    assert len(page) < 200_000
    found = re.search(r"end=(\d+)", page)
    earlier = empty.get("log", path="big-111111", end=found[1])
    first = re.search(r"line (\d+)", page)
    assert f"line {int(first[1]) - 1:08}" in earlier


def test_lines_of_a_log_have_numbers_wherever_one_looks(empty: Pages) -> None:
    path = empty.root / "many-111111"
    path.mkdir()
    (path / ".log").write_text("".join(f"line {number:07}\n" for number in range(1, 300_001)) + "5 %\r")
    page = empty.get("log", path="many-111111")
    assert re.findall(r'data-partial><a class="n"></a>.*?class="text">([^<]*)<', page) == ["5 %\u240d"]
    for number in (1, 150_000, 299_900):
        lines = json.loads(empty.get("log/lines", path="many-111111", **{"from": number}))
        assert lines[0] == {"kind": "out", "n": number, "text": f"line {number:07}"}
        assert len(lines) == min(1000, 300_001 - number + 1)
    assert json.loads(empty.get("log/lines", path="many-111111", **{"from": 400_000})) == []
    assert empty.status("log/lines", path="none") == 404
    found = empty.get("log", path="many-111111", find="99998")
    numbers = [*range(99_998, 300_000, 100_000)]
    assert [int(number) for number in re.findall(r'class="n" data-n="(\d+)" href="[^"]+#L\1"', found)] == numbers
    assert found.count("<mark>99998</mark>") == 3
    assert "The last 1\u202f000 lines" in empty.get("log", path="many-111111", find="1")
    assert re.findall(r'data-n="(\d+)"', empty.get("log", path="many-111111", find="5 %")) == ["300001"]
    assert "1 line with this text" in empty.get("log", path="many-111111", find="line 0000017\nline")
    assert "0 lines with this text" in empty.get("log", path="many-111111", find="<b>")


def test_a_download_is_the_file_and_never_a_page(samples: Pages) -> None:
    answer = samples.client.get("/experiments/raw", params={"path": f"{TINY}/report.html"})
    assert answer.content == (samples.root / TINY / "report.html").read_bytes()
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")


def test_the_url_of_an_experiment_leads_to_its_run(samples: Pages) -> None:
    info = samples.root / "experiments" / "evaluate-777777.json"
    answer = samples.client.get("/experiment", params={"path": str(info)})
    assert "evaluate-777777-2023" in answer.text
    assert answer.url.path == "/experiments/run"
    assert samples.client.get("/experiment", params={"path": "/elsewhere/a-111111.json"}).status_code == 400


def test_other_applications_show_the_pages_by_an_entry_point(tmp_path: Path) -> None:
    RecordedStorage(tmp_path).run("mine-111111", [], [started(0), ended()])
    sets = offered_page_sets({"prefix": str(tmp_path), "jobs_url": "/job?name="}, names=["marin"])
    from starlette.testclient import TestClient

    with TestClient(create_app(WebSettings("cluster", login=False), sets), "http://localhost") as client:
        assert "mine-111111" in client.get("/experiments").text


def test_many_runs_and_files_come_in_pages(empty: Pages) -> None:
    for number in range(120):
        empty.storage.run(f"many-{number:06x}", [], [started(0), ended()])
        (empty.root / f"part-{number:03}").write_text("x")
    page = empty.get("runs", page=3)
    assert "101–120 of 120" in page
    assert len(re.findall(r'<td class="name">', page)) == 20
    assert "1–50 of 120" in empty.get("runs", page="x")
    assert "1–100 of 121" in empty.get("files")
    assert "101–121 of 121" in empty.get("files", page=2)
    assert "1–1 of 1" in empty.get("files", q="part-077")


def test_metrics_of_a_step_are_thinned_without_losing_a_spike(empty: Pages) -> None:
    empty.storage.step("train-0a1b2c")
    place = empty.root / "train-0a1b2c"
    rows = ({"step": step, "loss": 900.0 if step == 4321 else 1.0} for step in range(8000))
    (place / ".executor_metrics").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / ".artifact").write_text("0.5")
    with (place / ".executor_metrics").open("r+") as file:
        lines = file.read()
        file.seek(0)
        file.write(
            '{"link": "wandb", "url": "https://wandb.ai/x"}\n{"link": "x", "url": "javascript:alert(1)"}\n' + lines
        )
    page = empty.get("step", path="train-0a1b2c")
    assert re.search(r'href="https://wandb.ai/x"[^>]*>Open in W&amp;B<', page)
    assert "javascript" not in page
    (place / "more.jsonl").symlink_to("/etc/passwd")
    found = json.loads(empty.get("metrics", path="train-0a1b2c"))["metrics"]
    steps, values = found.pop("loss")
    assert found == {"returned": [[0], [0.5]]}
    assert (len(steps) <= 2000, max(values), steps[-1]) == (True, 900.0, 7999)
    assert steps == sorted(steps)
    assert empty.status("metrics", path="none") == 404
