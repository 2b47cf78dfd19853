"""Train byte-pair tokenizers of three sizes on the text of a license, and compare their compression.

uv run --extra quickstart-tokens python -m experiments.examples.tokenizer
"""

import os
from dataclasses import dataclass
from pathlib import Path

from experiments.quickstart_steps.storage import read_rows, write_rows
from experiments.quickstart_steps.tokens import TokenizerConfig, load_tokenizer, train_tokenizer
from marin.execution import ExecutorStep, InputName, executor_main, output_path_of, this_output_path, versioned
from marin.execution.remote import remote
from rigging.filesystem import open_url

SIZES = (300, 600, 1200)
TOKENS = ["quickstart-tokens"]


@dataclass(frozen=True)
class TextConfig:
    file: str
    output_path: str


def collect(config: TextConfig) -> None:
    """Write the paragraphs of a text file as documents."""
    paragraphs = Path(config.file).read_text(encoding="utf-8").split("\n\n")
    rows = [{"id": str(number), "text": text} for number, text in enumerate(paragraphs)]
    write_rows(os.path.join(config.output_path, "documents.jsonl"), rows)


@dataclass(frozen=True)
class CompareConfig:
    documents: InputName
    tokenizers: dict[str, InputName]
    output_path: str


def compare(config: CompareConfig) -> None:
    """Print and write the bytes per token of each tokenizer."""
    texts = [row["text"] for row in read_rows(str(config.documents))]
    size = sum(len(text.encode()) for text in texts)
    lines = [f"{'vocabulary':>10}  bytes per token"]
    for vocabulary, folder in config.tokenizers.items():
        tokenizer = load_tokenizer(str(folder))
        tokens = sum(len(tokenizer.encode(text).ids) for text in texts)
        lines.append(f"{vocabulary:>10}  {size / tokens:.1f}")
    print("\n".join(lines), flush=True)
    with open_url(os.path.join(config.output_path, "table.txt"), "w") as file:
        file.write("\n".join(lines) + "\n")


def make_step() -> ExecutorStep[CompareConfig]:
    """Return the step of the comparison, which depends on the text and the tokenizers."""
    text = ExecutorStep(name="examples/text", fn=collect, config=TextConfig(versioned("LICENSE"), this_output_path()))
    documents = output_path_of(text, "documents.jsonl")
    tokenizers = {}
    for size in SIZES:
        step = ExecutorStep(
            name=f"examples/tokenizer-{size}",
            fn=remote(train_tokenizer, pip_dependency_groups=TOKENS),
            config=TokenizerConfig(documents, versioned(size), 1_000_000, this_output_path()),
        )
        tokenizers[str(size)] = output_path_of(step)
    return ExecutorStep(
        name="examples/compression",
        fn=remote(compare, pip_dependency_groups=TOKENS),
        config=CompareConfig(documents, tokenizers, this_output_path()),
    )


if __name__ == "__main__":
    executor_main(steps=[make_step()], description="Tokenizers of three sizes")
