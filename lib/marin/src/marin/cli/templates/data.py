"""Clean documents: one step writes them, the next cleans its shards in parallel, one job per shard.

python -m experiments.first                   # in this process
iris job run -- python -m experiments.first   # as a job, on a cluster that starts by itself
"""

import json
from dataclasses import dataclass

import fray
from fray import ResourceConfig
from marin.execution import ExecutorStep, InputName, executor_main, output_path_of, this_output_path, versioned
from rigging.filesystem import open_url

SHARDS = 4


@dataclass(frozen=True)
class DocumentsConfig:
    documents: int
    output_path: str


def write_documents(config: DocumentsConfig) -> None:
    """Write the documents. Every third one is too short."""
    for shard in range(SHARDS):
        with open_url(f"{config.output_path}/part-{shard}.jsonl", "w") as file:
            for number in range(shard, config.documents, SHARDS):
                text = "short" if number % 3 == 0 else f"Document {number} says enough to be kept."
                file.write(json.dumps({"id": number, "text": text}) + "\n")


@dataclass(frozen=True)
class CleanConfig:
    documents: InputName | str
    shortest: int
    output_path: str


def clean(config: CleanConfig) -> None:
    """Keep the documents that are long enough."""

    def clean_shard(shard: int) -> int:
        kept = 0
        name = f"part-{shard}.jsonl"
        with (
            open_url(f"{config.documents}/{name}", "r") as source,
            open_url(f"{config.output_path}/{name}", "w") as target,
        ):
            for line in source:
                if len(json.loads(line)["text"]) >= config.shortest:
                    target.write(line)
                    kept += 1
        return kept

    kept = list(fray.map(clean_shard, range(SHARDS), resources=ResourceConfig.with_cpu(cpu=0.5, ram="300m")))
    print(f"{sum(kept)} documents kept")
    with open_url(f"{config.output_path}/kept.json", "w") as file:
        json.dump(kept, file)


# The experiment. Another shortest length is another output; the documents are not written again.
documents = ExecutorStep(
    name="data/documents",
    fn=write_documents,
    config=DocumentsConfig(documents=versioned(300), output_path=this_output_path()),
)
cleaned = ExecutorStep(
    name="data/cleaned",
    fn=clean,
    config=CleanConfig(documents=output_path_of(documents), shortest=versioned(10), output_path=this_output_path()),
)
steps = [cleaned]


if __name__ == "__main__":
    executor_main(steps=steps, description="Clean documents.")
