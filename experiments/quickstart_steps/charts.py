"""The plots of the report, as Vega-Lite specifications and as pictures."""

from collections.abc import Sequence
from typing import Any, Final

from experiments.quickstart_steps.extras import needs_extra

Chart = dict[str, Any]

_SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v5.json"
_WIDTH, _HEIGHT = 420, 240
_SMOOTHING: Final = 10


def funnel_chart(stages: Sequence[tuple[str, int]]) -> Chart:
    """Return a bar chart of the documents that remain after each stage."""
    values = [{"stage": name, "count": count, "order": place} for place, (name, count) in enumerate(stages)]
    names = [name for name, _ in stages]
    y = {"field": "stage", "type": "nominal", "sort": names, "title": None}
    x = {"field": "count", "type": "quantitative", "title": "pages and documents"}
    bar = {"mark": "bar", "encoding": {"x": x, "y": y}}
    label = {
        "mark": {"type": "text", "align": "left", "dx": 4},
        "encoding": {"x": x, "y": y, "text": {"field": "count", "type": "quantitative"}},
    }
    return _chart("Documents after each stage", values) | {"layer": [bar, label]}


def quality_chart(qualities: Sequence[tuple[float, bool]]) -> Chart:
    """Return a histogram of the classifier's scores, for kept and removed documents."""
    values = [{"quality": quality, "document": "kept" if kept else "removed"} for quality, kept in qualities]
    encoding = {
        "x": {"field": "quality", "type": "quantitative", "bin": {"step": 0.1, "extent": [0, 1]}, "title": "quality"},
        "y": {"aggregate": "count", "type": "quantitative", "title": "documents"},
        "color": {"field": "document", "type": "nominal", "scale": {"domain": ["kept", "removed"]}},
    }
    return _chart("Quality by the classifier", values) | {"mark": "bar", "encoding": encoding}


def loss_chart(losses: Sequence[float], heldout: float, unigram: float) -> Chart:
    """Return a chart of the training loss, its moving mean, and lines for the held-out loss."""
    values: list[dict[str, Any]] = []
    for step in range(1, len(losses) + 1):
        recent = losses[max(0, step - _SMOOTHING) : step]
        values.append({"step": step, "loss": sum(recent) / len(recent), "line": f"training, mean of {_SMOOTHING}"})
    for name, level in (("held out, at the end", heldout), ("held out, unigram model", unigram)):
        values += [{"step": step, "loss": level, "line": name} for step in (1, len(losses))]
    encoding = {
        "x": {"field": "step", "type": "quantitative", "title": "training step"},
        "y": {"field": "loss", "type": "quantitative", "title": "nats a token", "scale": {"zero": False}},
        "color": {"field": "line", "type": "nominal", "title": None, "legend": {"orient": "top-right"}},
    }
    return _chart("Loss", values) | {"mark": "line", "encoding": encoding}


def to_png(chart: Chart) -> bytes:
    """Return the picture of a chart."""
    with needs_extra("the report"):
        import vl_convert

    png: bytes = vl_convert.vegalite_to_png(chart, scale=1.5)
    return png


def _chart(title: str, values: Sequence[dict[str, Any]]) -> Chart:
    return {
        "$schema": _SCHEMA,
        "title": title,
        "width": _WIDTH,
        "height": _HEIGHT,
        "background": "white",
        "data": {"values": list(values)},
    }
