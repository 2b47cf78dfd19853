"""The report of a run: a page with its figures and plots."""

import base64
import html
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.quickstart_steps.charts import Chart, funnel_chart, loss_chart, quality_chart, to_png
from experiments.quickstart_steps.quality import attributes_by_id
from experiments.quickstart_steps.storage import Row, read_json, read_rows, write_json
from experiments.quickstart_steps.tokens import MANIFEST
from rigging.filesystem import atomic_write, write_bytes_atomic

_SHOWN_REJECTED = 20


@dataclass(frozen=True)
class ReportConfig:
    """The folders of the other steps.

    Attributes:
        method: Method of HTML to text.
        pages: Folder of the pages.
        texts: Folders of the shards of text.
        unique: Folder of the removal of duplicates.
        classifier: Folder of the classifier.
        attributes: Folders of the shards of attributes.
        filtered: Folder of the filter.
        tokens: Folder of the packed tokens.
        model: Folder of the training.
        evaluation: Folder of the evaluation.
        output_path: Receives `report.html`, `summary.json` and `plots/*.png`.
    """

    method: str
    pages: str
    texts: Sequence[str]
    unique: str
    classifier: str
    attributes: Sequence[str]
    filtered: str
    tokens: str
    model: str
    evaluation: str
    output_path: str


def collect_summary(config: ReportConfig) -> dict[str, Any]:
    """Return the figures of the run, read from its steps."""
    texts = [_stats(folder) for folder in config.texts]
    manifest = read_json(os.path.join(config.tokens, MANIFEST))
    training = _stats(config.model)
    return {
        "pages": _stats(config.pages),
        "text": {
            "method": config.method,
            "documents": sum(shard["documents"] for shard in texts),
            "rejected": sum(shard["rejected"] for shard in texts),
        },
        "unique": _stats(config.unique),
        "classifier": _stats(config.classifier),
        "filtered": _stats(config.filtered),
        "tokens": {
            "vocabulary": manifest["vocabulary"],
            "train_tokens": manifest["train"]["tokens"],
            "train_sequences": manifest["train"]["sequences"],
            "heldout_tokens": manifest["heldout"]["tokens"],
            "shards": {file["name"]: file["sha256"] for file in manifest["train"]["files"]},
        },
        "training": {
            "parameters": training["parameters"],
            "steps": training["steps"],
            "tokens_seen": training["steps"] * training["tokens_per_step"],
            "first_loss": training["losses"][0],
            "last_loss": training["losses"][-1],
        },
        "evaluation": _stats(config.evaluation),
    }


def make_charts(config: ReportConfig, summary: dict[str, Any]) -> dict[str, Chart]:
    """Return the plots of the run by name."""
    attributes = attributes_by_id(config.attributes)
    removed = {row["id"] for row in read_rows(os.path.join(config.filtered, "removed.jsonl"))}
    unique, filtered = summary["unique"], summary["filtered"]
    stages = [
        ("pages", summary["pages"]["pages"]),
        ("with text", summary["text"]["documents"]),
        ("not exact duplicates", unique["documents"] - unique["exact_duplicates"]),
        ("not near-duplicates", unique["kept"]),
        ("within bounds", filtered["train"] + filtered["heldout"]),
        ("to train on", filtered["train"]),
    ]
    evaluation = summary["evaluation"]
    losses = _stats(config.model)["losses"]
    return {
        "documents": funnel_chart(stages),
        "quality": quality_chart([(row["quality"], name not in removed) for name, row in sorted(attributes.items())]),
        "loss": loss_chart(losses, evaluation["heldout_loss"], evaluation["unigram"]["loss"]),
    }


def write_report(config: ReportConfig) -> None:
    """Write the report. The page embeds its plots, so that it can be shared as one file."""
    summary = collect_summary(config)
    pictures = {name: to_png(chart) for name, chart in make_charts(config, summary).items()}
    for name, png in pictures.items():
        write_bytes_atomic(os.path.join(config.output_path, "plots", f"{name}.png"), png)
    write_json(os.path.join(config.output_path, "summary.json"), summary)
    rejected = [row for folder in config.texts for row in read_rows(os.path.join(folder, "rejected.jsonl"))]
    with atomic_write(os.path.join(config.output_path, "report.html"), "w") as file:
        file.write(render(summary, pictures, sorted(rejected, key=lambda row: str(row["id"]))))


def render(summary: dict[str, Any], pictures: dict[str, bytes], rejected: Sequence[Row]) -> str:
    """Return the page.

    Args:
        summary: The result of `collect_summary`.
        pictures: PNG files by name.
        rejected: Pages that could not be read, with `id` and `reason`.
    """
    parts = ["<h1>From pages to a language model</h1>", _table(headline(summary))]
    for name, png in pictures.items():
        data = base64.b64encode(png).decode()
        parts.append(f'<p><img alt="{html.escape(name)}" src="data:image/png;base64,{data}"></p>')
    parts.append("<h2>Held-out text</h2>" + _comparison(summary["evaluation"]))
    sample = html.escape(re.sub(r"\s*\n\s*", "\n", summary["evaluation"]["sample"]).strip())
    parts.append(f"<h2>What the model writes</h2><blockquote>{sample}</blockquote>")
    if rejected:
        shown = [(row["id"], row["reason"]) for row in rejected[:_SHOWN_REJECTED]]
        more = f"<p>and {len(rejected) - _SHOWN_REJECTED} more</p>" if len(rejected) > _SHOWN_REJECTED else ""
        parts.append(f"<h2>Pages that could not be read</h2>{_table(shown)}{more}")
    parts.append("<h2>Shards of tokens</h2>" + _table(list(summary["tokens"]["shards"].items())))
    return _PAGE.format(body="\n".join(parts))


def headline(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the names and values of the main figures, as text."""
    text, unique, filtered = summary["text"], summary["unique"], summary["filtered"]
    tokens, training, evaluation = summary["tokens"], summary["training"], summary["evaluation"]
    classifier = summary["classifier"]
    return [
        ("pages", f"{summary['pages']['pages']:,} ({summary['pages']['bytes']:,} bytes)"),
        ("with text", f"{text['documents']:,} by {text['method']}; {text['rejected']:,} could not be read"),
        (
            "unique",
            f"{unique['kept']:,}; {unique['exact_duplicates']:,} exact and {unique['near_duplicates']:,} "
            "near-duplicates removed",
        ),
        (
            "classifier",
            f"{classifier['accuracy']:.1%} of {classifier['tested_on']:,} unseen samples classified correctly",
        ),
        (
            "kept",
            f"{filtered['train']:,} to train on, {filtered['heldout']:,} held out; {filtered['removed']:,} are out of "
            "bounds",
        ),
        ("tokens", f"{tokens['train_tokens']:,} to train on, of {tokens['vocabulary']:,} different ones"),
        (
            "training",
            f"{training['parameters']:,} parameters, {training['steps']:,} steps, {training['tokens_seen']:,} tokens "
            "seen",
        ),
        (
            "held-out loss",
            f"{evaluation['heldout_loss']:.3f} nats a token, {evaluation['bits_per_byte']:.3f} bits a byte",
        ),
    ]


def _stats(folder: str) -> dict[str, Any]:
    stats: dict[str, Any] = read_json(os.path.join(folder, "stats.json"))
    return stats


def _comparison(evaluation: dict[str, Any]) -> str:
    rows = [("model", "nats a token, bits a byte")]
    rows.append(("this one", f"{evaluation['heldout_loss']:.3f}, {evaluation['bits_per_byte']:.3f}"))
    for name in ("unigram", "uniform"):
        rows.append((name, f"{evaluation[name]['loss']:.3f}, {evaluation[name]['bits_per_byte']:.3f}"))
    return _table(rows)


def _table(rows: Sequence[tuple[str, str]]) -> str:
    cells = (f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{''.join(cells)}</table>"


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>From pages to a language model</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; overflow-wrap: anywhere; }}
th, td {{ text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0; border-bottom: 1px solid #ddd; }}
img {{ max-width: 100%; }}
blockquote {{ white-space: pre-wrap; border-left: 3px solid #ccc; margin: 0; padding-left: 1rem; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""
