"""The experiment pages: the list of runs, their values, and comparisons."""

import html
import json
import os
import re
from pathlib import Path

from support.marin.recorded_runs import ended, started, step_ended

from .conftest import Pages, pages_of_root


def _trained(pages: Pages, number: int) -> str:
    """Record a run with a training step with curves, and a step that depends on it. Return its name."""
    config = {"optimizer": {"lr": number / 10}, "layers": 4}
    train = pages.storage.step(f"train-{number:06x}", config=config)
    after = pages.storage.step(
        f"eval-{number:06x}", dependencies=[train["output_path"]], config={"of": train["output_path"]}
    )
    rows = ({"step": step, "loss": number + 1 / (step + 1)} for step in range(50))
    (pages.root / f"train-{number:06x}/.executor_metrics").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (pages.root / f"eval-{number:06x}/.artifact").write_text(json.dumps({"n": 200, "score": 10 - number}))
    ends = [step_ended(train, seconds=60.0 * number), step_ended(after)]
    head = started(2, description=f"Number {number}")
    return pages.storage.run(
        f"x-{number:06x}", [train, after], [head, *ends, ended(ends={"succeeded": 2})], hour=number
    )


def test_runs_are_listed_with_chosen_columns_in_any_order_and_with_tags(empty: Pages) -> None:
    names = [_trained(empty, number) for number in (1, 2, 3)]
    usual = empty.get("runs")
    assert re.findall(r'data-label="(.+?)">([\d.]*)<', usual)[:3] == [
        ("optimizer.lr", "0.3"),
        ("loss", "3.02"),
        ("score", "7"),
    ]
    assert "columns=chosen&amp;col=optimizer.lr&amp;col=loss&amp;col=score&amp;col=n&amp;sort=took" in usual
    chosen = empty.client.get("/experiments/runs?columns=chosen&col=optimizer.lr&sort=optimizer.lr&order=up").text
    assert re.findall(r'data-label="optimizer.lr">([\d.]+)<', chosen) == ["0.1", "0.2", "0.3"]
    assert 'aria-sort="ascending"' in chosen
    assert "col=optimizer.lr&amp;sort=optimizer.lr&amp;order=down" in chosen
    by_score = empty.get("runs", sort="score", order="down")
    assert re.findall(r">Number (\d)<", by_score) == ["1", "2", "3"]
    assert "data-label" not in empty.get("runs", columns="chosen")
    (empty.root / f"experiments/{names[1]}.notes.json").write_text('{"tags": ["best"], "note": "Half the layers."}')
    tagged = empty.get("runs", tag="best")
    assert re.findall(r">Number (\d)<", tagged) == ["2"]
    assert "Half the layers." in tagged
    assert "Half the layers." in empty.get("run", run=names[1])
    assert re.findall(r">Number (\d)<", empty.get("runs", q="half best")) == ["2"]


def test_a_run_shows_no_values_that_a_later_run_recorded(empty: Pages) -> None:
    step, other = empty.storage.step("train-111111"), empty.storage.step("eval-111111")
    for each, score in ((step, 1.5), (other, 7)):
        Path(each["output_path"], ".artifact").write_text(json.dumps({f"of_{each['name']}": score}))
    begun = {"event": "step_started", "time": 1.7e9, "name": "train", "path": step["output_path"]}
    failure = step_ended(step, "failed")
    runs = {
        "failed": [failure, step_ended(other, "dep_failed"), ended(ends={"failed": 1, "dep_failed": 1})],
        "stopped": [ended("KeyboardInterrupt")],
        "lost": [step_ended(step, "lost"), ended(ends={"lost": 1})],
        "succeeded": [step_ended(step), step_ended(other, "cached"), ended(ends={"succeeded": 1, "cached": 1})],
    }
    names = {
        word: empty.storage.run("x-111111", [step, other], [started(2), begun, *events], hour=hour)
        for hour, (word, events) in enumerate(runs.items())
    }

    for name in names.values():
        os.utime(empty.root / f"experiments/{name}.events.jsonl", (1.7e9, 1.7e9))
    page = empty.client.get("/experiments/runs?columns=chosen&col=of_train&col=of_eval").text
    rows = re.findall(r'<tr id="run-.*?s-(\w+).*?of_train">([\d.]*)<.*?of_eval">([\d.]*)<', page, re.DOTALL)
    assert rows == [("succeeded", "1.5", "7"), ("failed", "", ""), ("stopped", "", ""), ("failed", "", "")]
    compared = empty.client.get("/experiments/compare", params={"run": [names["failed"], names["succeeded"]]}).text
    assert re.findall(r'"number">([\d.–]+)</td>', compared.partition("Results")[2])[:4] == ["–", "1.5", "–", "7"]
    assert "No step of this run has metrics" in empty.get("run/results", run=names["stopped"])
    # Nobody has written the output since: what the failed attempt recorded is its own.
    os.utime(Path(step["output_path"], ".executor_status"), (1.7e9, 1.7e9))
    again = pages_of_root(empty.root)
    assert "of_train" in again.get("run/results", run=names["failed"])
    assert "of_eval" not in again.get("run/results", run=names["failed"])


def test_runs_are_compared_by_what_differs_at_its_root(empty: Pages) -> None:
    names = [_trained(empty, number) for number in (1, 2, 3)]
    (empty.root / f"experiments/{names[1]}.notes.json").write_text('{"tags": ["best"]}')
    page = empty.client.get("/experiments/compare", params={"run": names}).text
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert "What differs train affects 1 step below eval optimizer.lr 0.1 0.2 0.3 Curves" in words
    results = "Results loss 1.02 2.02 3.02 n 200 200 200 score 9 8 7 Durations train 1 min 0 s 2 min 0 s 3 min 0 s eval"
    assert results in words
    series = json.loads(html.unescape(re.search(r'data-series="([^"]+)"', page)[1]))
    assert series == {"loss": [[f"train-{number:06x}", f"Number {number}"] for number in (1, 2, 3)]}
    assert empty.status("compare", run="nothing") == 404
    which = empty.get("compare")
    assert re.findall(r'<option value="([^"]+)">([^<]+)<', which) == [(names[n], f"Number {n + 1}") for n in (2, 1, 0)]
    assert which.count('list="runs-known" required>') == 2, "without autocomplete=off, with which Firefox offers none"


def test_two_runs_are_compared_as_the_command_line_does(samples: Pages) -> None:
    page = samples.get("compare", before="pretrain-0a1b2c", after="pretrain-3d4e5f")
    assert "0 added, 0 removed, 16 changed, 0 equal" in re.sub(r"\s+", " ", page)
    assert "learning_rate" in page
    assert "<del>0.001</del>" in page
    assert "<ins>0.003</ins>" in page
    assert samples.status("compare", before="pretrain-0a1b2c", after="nothing") == 404
    assert "Compare runs" in samples.get("compare")


def test_the_list_has_the_runs_newest_first_and_finds_them_by_words_and_state(samples: Pages) -> None:
    page = samples.get("runs")
    assert page.index("pretrain-3d4e5f") < page.index("evaluate-777777") < page.index("pretrain-0a1b2c")
    assert "16 succeeded" in page
    for query, shown, hidden in (
        ({"q": "evaluate"}, "evaluate-777777", "pretrain-"),
        ({"q": "GRACE cell-2"}, "evaluate-777777", "pretrain-"),
        ({"state": "failed"}, "evaluate-777777", "pretrain-"),
        ({"state": "succeeded"}, "pretrain-0a1b2c", "evaluate"),
        ({"q": "nothing like that"}, "No run matches", "pretrain-"),
    ):
        part = samples.client.get("/experiments/runs", params=query, headers={"hx-request": "true"}).text
        assert shown in part
        assert hidden not in part
        assert "<html" not in part  # only the part of the page that changes
