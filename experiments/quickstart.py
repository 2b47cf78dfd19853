"""From pages of HTML to a small language model and a report.

uv run --extra quickstart python -m experiments.quickstart              # in this process
uv run iris job run -- python -m experiments.quickstart                 # on an Iris cluster
FRAY_CLIENT=ray uv run --extra quickstart python -m experiments.quickstart   # on Ray
python -m experiments.quickstart --pages DIR                            # your own pages

A second run finds all outputs and does nothing. A killed run resumes from the finished outputs. See
docs/tutorials/quickstart.md.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from experiments.quickstart_steps.duplicates import UniqueConfig, remove_duplicates
from experiments.quickstart_steps.evaluation import EvaluateConfig, evaluate_model
from experiments.quickstart_steps.filtering import FilterConfig, filter_documents
from experiments.quickstart_steps.pages import PagesConfig, digest_of_pages, shard_name, take_pages
from experiments.quickstart_steps.quality import (
    AttributesConfig,
    ClassifierConfig,
    SamplesConfig,
    digest_of_samples,
    rate_documents,
    take_samples,
    train_classifier,
)
from experiments.quickstart_steps.report import ReportConfig, headline, write_report
from experiments.quickstart_steps.storage import read_json
from experiments.quickstart_steps.text import METHODS, TextConfig, extract_text
from experiments.quickstart_steps.tokens import PackConfig, TokenizerConfig, pack_documents, train_tokenizer
from experiments.quickstart_steps.training import TrainConfig, train_model
from fray import ResourceConfig
from marin.execution import ExecutorStep, executor_main, output_path_of, this_output_path, versioned
from marin.execution.remote import remote
from rigging.errors import InvalidRequest
from rigging.filesystem import read_bytes_or_none

DATA: Final = Path(__file__).parents[1] / "tests" / "quickstart-data"
SMALL: Final = ResourceConfig.with_cpu(cpu=0.5, ram="1g", disk="1g")
TRAINING: Final = ResourceConfig.with_cpu(cpu=1, ram="3g", disk="1g")
# A document is kept when each of its attributes is within these.
BOUNDS: Final = {
    "words": (50, 200_000),
    "mean_word_length": (3, 8),
    "letters": (0.7, 1.0),
    "distinct_words": (0.5, 1.0),
    "quality": (0.5, 1.0),
}


@dataclass(frozen=True)
class Options:
    """The command-line options. All but `checkpoint_every` are versioned.

    Attributes:
        pages: Directory with the pages.
        samples: Directory with `positive.txt` and `negative.txt`.
        method: Method of HTML to text.
        shards: Number of jobs that share the pages.
        vocabulary: Number of different tokens.
        steps: Number of training steps.
        checkpoint_every: Training steps between checkpoints.
    """

    pages: str = str(DATA / "pages")
    samples: str = str(DATA / "samples")
    method: str = "selectolax"
    shards: int = 4
    vocabulary: int = 1000
    steps: int = 150
    checkpoint_every: int = 25


@dataclass(frozen=True)
class Documents:
    """The steps from pages to filtered documents."""

    pages: ExecutorStep[PagesConfig]
    texts: list[ExecutorStep[TextConfig]]
    unique: ExecutorStep[UniqueConfig]
    classifier: ExecutorStep[ClassifierConfig]
    attributes: list[ExecutorStep[AttributesConfig]]
    filtered: ExecutorStep[FilterConfig]


def make_documents(options: Options) -> Documents:
    """Plan the steps up to the filter."""
    pages = ExecutorStep(
        name="quickstart/pages",
        fn=take_pages,
        config=PagesConfig(
            options.pages, versioned(digest_of_pages(options.pages)), versioned(options.shards), this_output_path()
        ),
    )
    texts = [
        ExecutorStep(
            name=f"quickstart/text/{shard}",
            fn=remote(extract_text, resources=SMALL, pip_dependency_groups=["quickstart-text"]),
            config=TextConfig(
                output_path_of(pages, shard_name(shard, options.shards)), versioned(options.method), this_output_path()
            ),
        )
        for shard in range(options.shards)
    ]
    unique = ExecutorStep(
        name="quickstart/unique",
        fn=remote(remove_duplicates, resources=SMALL, pip_dependency_groups=["quickstart-text"]),
        config=UniqueConfig(
            folders=[output_path_of(step) for step in texts],
            similarity=versioned(0.6),
            shingle=versioned(3),
            shards=versioned(options.shards),
            output_path=this_output_path(),
        ),
    )
    classifier = make_classifier(options)
    files = [f"documents-{shard:05}.jsonl" for shard in range(options.shards)]
    attributes = [
        ExecutorStep(
            name=f"quickstart/attributes/{shard}",
            fn=remote(rate_documents, resources=SMALL, pip_dependency_groups=["quickstart-quality"]),
            config=AttributesConfig(output_path_of(unique, file), output_path_of(classifier), this_output_path()),
        )
        for shard, file in enumerate(files)
    ]
    filtered = ExecutorStep(
        name="quickstart/filtered",
        fn=filter_documents,
        config=FilterConfig(
            documents=[output_path_of(unique, file) for file in files],
            attributes=[output_path_of(step) for step in attributes],
            bounds=versioned(BOUNDS),
            heldout=versioned(0.1),
            seed=versioned(0),
            output_path=this_output_path(),
        ),
    )
    return Documents(pages, texts, unique, classifier, attributes, filtered)


def make_classifier(options: Options) -> ExecutorStep[ClassifierConfig]:
    """Plan the classifier of text quality."""
    samples = ExecutorStep(
        name="quickstart/samples",
        fn=take_samples,
        config=SamplesConfig(options.samples, versioned(digest_of_samples(options.samples)), this_output_path()),
    )
    return ExecutorStep(
        name="quickstart/classifier",
        fn=remote(train_classifier, resources=SMALL, pip_dependency_groups=["quickstart-quality"]),
        config=ClassifierConfig(
            samples=output_path_of(samples, "samples.jsonl"),
            epochs=versioned(10),
            seed=versioned(0),
            output_path=this_output_path(),
        ),
    )


def make_report(options: Options) -> ExecutorStep[ReportConfig]:
    """Plan all steps, and return the last one, which depends on the others."""
    documents = make_documents(options)
    tokenizer = ExecutorStep(
        name="quickstart/tokenizer",
        fn=remote(train_tokenizer, resources=SMALL, pip_dependency_groups=["quickstart-tokens"]),
        config=TokenizerConfig(
            documents=output_path_of(documents.filtered, "train.jsonl"),
            vocabulary=versioned(options.vocabulary),
            max_bytes=versioned(5_000_000),
            output_path=this_output_path(),
        ),
    )
    tokens = ExecutorStep(
        name="quickstart/tokens",
        fn=remote(pack_documents, resources=SMALL, pip_dependency_groups=["quickstart-tokens"]),
        config=PackConfig(
            documents=output_path_of(documents.filtered),
            tokenizer=output_path_of(tokenizer),
            sequence_length=versioned(64),
            shards=versioned(2),
            seed=versioned(0),
            output_path=this_output_path(),
        ),
    )
    model = ExecutorStep(
        name="quickstart/model",
        fn=remote(train_model, resources=TRAINING, pip_dependency_groups=["quickstart-model"]),
        config=TrainConfig(
            tokens=output_path_of(tokens),
            steps=versioned(options.steps),
            batch=versioned(16),
            learning_rate=versioned(3e-3),
            layers=versioned(2),
            width=versioned(128),
            heads=versioned(4),
            seed=versioned(0),
            checkpoint_every=options.checkpoint_every,
            output_path=this_output_path(),
        ),
    )
    evaluation = ExecutorStep(
        name="quickstart/evaluation",
        fn=remote(evaluate_model, resources=TRAINING, pip_dependency_groups=["quickstart-model"]),
        config=EvaluateConfig(
            model=output_path_of(model),
            tokens=output_path_of(tokens),
            tokenizer=output_path_of(tokenizer),
            sample_tokens=versioned(80),
            output_path=this_output_path(),
        ),
    )
    return ExecutorStep(
        name="quickstart/report",
        fn=remote(write_report, resources=SMALL, pip_dependency_groups=["quickstart-report"]),
        config=ReportConfig(
            method=options.method,
            pages=output_path_of(documents.pages),
            texts=[output_path_of(step) for step in documents.texts],
            unique=output_path_of(documents.unique),
            classifier=output_path_of(documents.classifier),
            attributes=[output_path_of(step) for step in documents.attributes],
            filtered=output_path_of(documents.filtered),
            tokens=output_path_of(tokens),
            model=output_path_of(model),
            evaluation=output_path_of(evaluation),
            output_path=this_output_path(),
        ),
    )


def read_options(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """Return the quickstart's own options, and the remaining arguments for the executor."""
    default = Options()
    parser = argparse.ArgumentParser(
        prog="quickstart",
        description="From pages of HTML to a small language model and a report.",
        epilog="All options of experiments work, too, such as --prefix URL, --dry_run and --explain.",
        allow_abbrev=False,
    )
    parser.add_argument("--pages", default=default.pages, metavar="DIR", help="HTML files, at any depth")
    parser.add_argument(
        "--samples", default=default.samples, metavar="DIR", help="positive.txt and negative.txt, for the classifier"
    )
    parser.add_argument("--method", default=default.method, choices=METHODS, help="method of HTML to text")
    for name in ("shards", "vocabulary", "steps", "checkpoint_every"):
        value = getattr(default, name)
        parser.add_argument(f"--{name}", default=value, type=_positive, metavar="N", help=f"default: {value}")
    known, rest = parser.parse_known_args(arguments)
    return Options(**vars(known)), rest


def main() -> None:
    """Run all steps, and print the figures and the path of the report."""
    options, sys.argv[1:] = read_options(sys.argv[1:])
    try:
        report = make_report(options)
    except InvalidRequest as error:
        sys.exit(f"quickstart: error: {error}")
    output_paths = executor_main(steps=[report], description="Quickstart: from pages to a language model")
    summary = os.path.join(output_paths[report], "summary.json")
    if read_bytes_or_none(summary) is not None:
        for name, words in headline(read_json(summary)):
            print(f"{name}: {words}")
        print(f"report: {os.path.join(output_paths[report], 'report.html')}")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


if __name__ == "__main__":
    main()
