"""A classifier of text quality, and the attributes of each document: the classifier's score and some counts."""

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
        directory: The directory with `positive.txt` and `negative.txt`. Empty lines separate samples.
        digest: Digest of both files.
        output_path: Receives `samples.jsonl`.
    """

    directory: str
    digest: str
    output_path: str


@dataclass(frozen=True)
class ClassifierConfig:
    """The settings of the classifier's training.

    Attributes:
        samples: The output file of `take_samples`.
        epochs: Number of passes over the samples.
        seed: Random seed of the samples' order and of the test split.
        output_path: Receives `model.vw` and `stats.json`.
    """

    samples: str
    epochs: int
    seed: int
    output_path: str


@dataclass(frozen=True)
class AttributesConfig:
    """The input of one shard of documents.

    Attributes:
        documents: A file of rows with `id` and `text`.
        classifier: The folder of the classifier step.
        output_path: Receives `attributes.jsonl`.
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
            raise InvalidRequest(f"samples of {kind} text are expected in {path!r}, which does not exist")
        with open(path, encoding="utf-8") as file:
            texts = [" ".join(text.split()) for text in re.split(r"\n\s*\n", file.read()) if text.strip()]
        if len(texts) < _MINIMUM_SAMPLES:
            raise InvalidRequest(f"{path!r} has {len(texts)} samples; the classifier needs {_MINIMUM_SAMPLES} or more")
        samples += [{"label": kind, "text": text} for text in texts]
    return samples


def digest_of_samples(directory: str) -> str:
    """Return a digest of the samples. Raise like `read_samples`."""
    return sha256(repr([(row["label"], row["text"]) for row in read_samples(directory)]).encode())


def take_samples(config: SamplesConfig) -> None:
    """Write the samples of a directory into storage.

    Raises:
        InvalidRequest: The samples have changed since the step was planned.
    """
    if digest_of_samples(config.directory) != config.digest:
        raise InvalidRequest(
            f"the samples in {config.directory!r} have changed since the run began; start the run again"
        )
    write_rows(os.path.join(config.output_path, "samples.jsonl"), read_samples(config.directory))


def example(text: str) -> str:
    """Return the words of a text as the classifier's input, without characters that are special in its format."""
    return "| " + " ".join(re.findall(r"[^\W_]+", text.lower()))


def train_classifier(config: ClassifierConfig) -> None:
    """Train the classifier on four fifths of the samples, and test it on the rest."""
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
    """Return counts about a text.

    Returns:
        `words`; `mean_word_length` in characters; `letters`, the share of letters among non-space characters;
        `distinct_words`, the entropy of the words divided by the entropy of equally many different words.
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
    """Write the attributes of each document: counts, and `quality`, the classifier's probability."""
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
