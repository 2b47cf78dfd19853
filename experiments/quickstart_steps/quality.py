"""A classifier of good text, and what it and some counts say about each document: its attributes."""

import math
import os
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from experiments.quickstart_steps.extras import needs_extra
from experiments.quickstart_steps.storage import (
    Row,
    read_bytes,
    read_rows,
    sha256,
    stable_order,
    write_json,
    write_rows,
)
from rigging.errors import InvalidRequest
from rigging.filesystem import write_bytes_atomic

KINDS: Final = ("positive", "negative")
_MINIMUM_SAMPLES: Final = 10
_MODEL: Final = "model.vw"
# The logistic loss on single words and pairs of them, hashed to 18 bits; predictions are probabilities.
_OPTIONS: Final = "--loss_function logistic --link logistic --ngram 2 -b 18 --random_seed 1 --quiet --no_stdin"


@dataclass(frozen=True)
class SamplesConfig:
    """Samples of good and of bad text.

    Attributes:
        directory: Has `positive.txt` and `negative.txt`; an empty line stands between samples.
        digest: Of both files.
        output_path: Gets `samples.jsonl`.
    """

    directory: str
    digest: str
    output_path: str


@dataclass(frozen=True)
class ClassifierConfig:
    """How to learn from the samples.

    Attributes:
        samples: A file as `take_samples` writes it.
        epochs: How often each sample is shown.
        seed: Decides their order, and which are kept back to test the classifier.
        output_path: Gets `model.vw` and `stats.json`.
    """

    samples: str
    epochs: int
    seed: int
    output_path: str


@dataclass(frozen=True)
class AttributesConfig:
    """One shard of documents.

    Attributes:
        documents: A file of rows with `id` and `text`.
        classifier: The folder of the classifier's step.
        output_path: Gets `attributes.jsonl`.
    """

    documents: str
    classifier: str
    output_path: str


def read_samples(directory: str) -> list[Row]:
    """Return the samples in a directory: `label` (positive, negative) and `text`.

    Raises:
        InvalidRequest: A file is missing, or has too few samples.
    """
    samples = []
    for kind in KINDS:
        path = os.path.join(directory, f"{kind}.txt")
        if not os.path.isfile(path):
            raise InvalidRequest(f"samples of {kind} text are expected in {path!r}, which is not there")
        with open(path, encoding="utf-8") as file:
            texts = [" ".join(text.split()) for text in re.split(r"\n\s*\n", file.read()) if text.strip()]
        if len(texts) < _MINIMUM_SAMPLES:
            raise InvalidRequest(f"{path!r} has {len(texts)} samples; the classifier needs {_MINIMUM_SAMPLES} or more")
        samples += [{"label": kind, "text": text} for text in texts]
    return samples


def digest_of_samples(directory: str) -> str:
    """Return a digest of the samples; errors as of `read_samples`."""
    return sha256(repr([(row["label"], row["text"]) for row in read_samples(directory)]).encode())


def take_samples(config: SamplesConfig) -> None:
    """Write the samples of a directory into storage.

    Raises:
        InvalidRequest: They are not those that the step was planned with.
    """
    if digest_of_samples(config.directory) != config.digest:
        raise InvalidRequest(f"the samples in {config.directory!r} have changed since the run began; start it again")
    write_rows(os.path.join(config.output_path, "samples.jsonl"), read_samples(config.directory))


def example(text: str) -> str:
    """Return a text as the classifier reads it: its words alone, as many of its own signs have a meaning there."""
    return "| " + " ".join(re.findall(r"[^\W_]+", text.lower()))


def train_classifier(config: ClassifierConfig) -> None:
    """Train the classifier on four fifths of the samples, and count how many of the rest it gets right."""
    with needs_extra("the quality classifier"):
        from vowpalwabbit import Workspace

    samples = sorted(read_rows(config.samples), key=lambda row: stable_order(config.seed, row["text"]))
    tests, train = samples[::5], [row for place, row in enumerate(samples) if place % 5]
    workspace = Workspace(_OPTIONS)
    try:
        for epoch in range(config.epochs):
            for row in sorted(train, key=lambda row: stable_order(config.seed + 1 + epoch, row["text"])):
                workspace.learn(f"{1 if row['label'] == 'positive' else -1} {example(row['text'])}")
        right = sum((_predict(workspace, row["text"]) >= 0.5) == (row["label"] == "positive") for row in tests)
        with tempfile.TemporaryDirectory() as folder:
            workspace.save(os.path.join(folder, _MODEL))
            with open(os.path.join(folder, _MODEL), "rb") as file:
                write_bytes_atomic(os.path.join(config.output_path, _MODEL), file.read())
    finally:
        workspace.finish()
    stats = {"trained_on": len(train), "tested_on": len(tests), "accuracy": right / len(tests)}
    write_json(os.path.join(config.output_path, "stats.json"), stats)


def count_attributes(text: str) -> dict[str, float]:
    """Return what can be counted in a text.

    Returns:
        `words`; `mean_word_length` in characters; `letters`, the share of letters in what is no space;
        `distinct_words`, the entropy of the words divided by that of as many different ones.
    """
    words = re.findall(r"\w+", text.lower())
    dense = "".join(text.split())
    counts = Counter(words)
    entropy = -sum(n / len(words) * math.log(n / len(words)) for n in counts.values())
    return {
        "words": len(words),
        "mean_word_length": round(sum(map(len, words)) / len(words), 4) if words else 0.0,
        "letters": round(sum(map(str.isalpha, dense)) / len(dense), 4) if dense else 0.0,
        "distinct_words": round(entropy / math.log(len(words)), 4) if len(words) > 1 else 0.0,
    }


def rate_documents(config: AttributesConfig) -> None:
    """Write the attributes of each document: what can be counted, and `quality`, the classifier's probability."""
    with needs_extra("the quality classifier"):
        from vowpalwabbit import Workspace

    documents = read_rows(config.documents)
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, _MODEL)
        with open(model, "wb") as file:
            file.write(read_bytes(os.path.join(config.classifier, _MODEL)))
        workspace = Workspace(f"--initial_regressor {model} --testonly --quiet --no_stdin")
        try:
            rows = [
                {"id": document["id"], **count_attributes(document["text"])}
                | {"quality": round(_predict(workspace, document["text"]), 4)}
                for document in documents
            ]
        finally:
            workspace.finish()
    write_rows(os.path.join(config.output_path, "attributes.jsonl"), rows)


def _predict(workspace: Any, text: str) -> float:
    return float(workspace.predict(example(text)))


def attributes_by_id(folders: Sequence[str]) -> dict[str, Row]:
    """Return the attributes of all shards' documents."""
    return {row["id"]: row for folder in folders for row in read_rows(os.path.join(folder, "attributes.jsonl"))}
