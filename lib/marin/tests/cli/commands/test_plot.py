"""`marin plot`: curves of a metric beside the values that differ."""

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from support.marin.recorded_runs import Done, RecordedStorage

HUGE = 1.7e308


@pytest.fixture(autouse=True)
def curves(storage: RecordedStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "28")
    monkeypatch.setenv("LINES", "10")
    for number, losses in enumerate([[100.0, 10.0, 1.0], [100.0, 0.0, -1.0], [-HUGE, HUGE]]):
        name = f"train-{number:06x}"
        storage.step(name, config={"lr": f"<{number}>"})
        rows = [
            json.dumps({"step": step, ("far" if number == 2 else "loss"): loss}) for step, loss in enumerate(losses)
        ]
        (storage.root / name / ".executor_metrics").write_text("\n".join(rows))


def test_letters_in_a_terminal(marin: Callable[..., Done]) -> None:
    assert marin("plot", "train-*", "--metric", "loss", "--log").out.splitlines() == [
        "100 |b",
        "    |",
        " 10 |           a",
        "    |",
        "  1 |                      a",
        "    +-----------------------",
        "     0                     2",
        "a  train, lr=<0>",
        "b  train, lr=<1>",
    ]
    done = marin("plot", "train-000002", "--metric", "far")
    assert (done.code, done.out.splitlines()[0]) == (0, " 1.7e+308 |                   a")


def test_a_picture(marin: Callable[..., Done], tmp_path: Path) -> None:
    assert marin("plot", "train-*", "--metric", "loss", "--svg", str(tmp_path / "x.svg")).code == 0
    picture = ElementTree.parse(tmp_path / "x.svg").getroot()
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert (texts[0], texts[-2:]) == ("loss", ["train, lr=<0>", "train, lr=<1>"])
    first, _ = [path for path in picture.iter("{http://www.w3.org/2000/svg}path") if len(path)]
    assert first.get("d") == "M90.0,40.0 490.0,396.4 890.0,432.1 890.0,432.1"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train-*", "--metric", "speed"], "no metric 'speed'; there are far, loss"),
        (["train-000002", "--metric", "loss"], "no metric 'loss'; there are far"),
        (["train-000001", "--metric", "loss", "--log", "--svg", "-"], ""),
    ],
)
def test_what_cannot_be_drawn_is_told(marin: Callable[..., Done], words: list[str], told: str) -> None:
    done = marin("plot", *words)
    assert (done.code, told in done.err) == (3 if told else 0, True), done.err
