"""Count words: one step writes a text, the next counts its words in a separate job.

python -m experiments.first                   # in this process
iris job run -- python -m experiments.first   # as a job, on a cluster that starts by itself
"""

from dataclasses import dataclass

from fray import ResourceConfig
from marin.execution import ExecutorStep, InputName, executor_main, output_path_of, this_output_path, versioned
from marin.execution.remote import remote
from rigging.filesystem import open_url


@dataclass(frozen=True)
class TextConfig:
    text: str
    output_path: str


def write_text(config: TextConfig) -> None:
    """Write the text."""
    with open_url(f"{config.output_path}/text.txt", "w") as file:
        file.write(config.text)


@dataclass(frozen=True)
class CountConfig:
    text: InputName | str
    output_path: str


def count_words(config: CountConfig) -> None:
    """Write the number of words in the text."""
    with open_url(str(config.text), "r") as file:
        words = len(file.read().split())
    print(f"{words} words")
    with open_url(f"{config.output_path}/count.txt", "w") as file:
        file.write(str(words))


# The experiment. What is `versioned` decides the output path: another text is another output.
text = ExecutorStep(
    name="first/text",
    fn=write_text,
    config=TextConfig(text=versioned("to be or not to be"), output_path=this_output_path()),
)
count = ExecutorStep(
    name="first/count",
    fn=remote(count_words, resources=ResourceConfig.with_cpu(cpu=1, ram="500m")),
    config=CountConfig(text=output_path_of(text, "text.txt"), output_path=this_output_path()),
)
steps = [count]


if __name__ == "__main__":
    executor_main(steps=steps, description="Count words.")
