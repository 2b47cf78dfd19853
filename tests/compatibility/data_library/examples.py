"""What users of the library write: pipelines, and the plain loops that they are to agree with."""

import json
from collections import Counter
from pathlib import Path

from data_library import Dataset, Executor, increment

WORDS = ("quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "every", "cat", "two", "old", "by")


def write_texts(folder, count):
    """Write `count` files of text and of documents each; half of all words are "the", and documents repeat."""
    folder = Path(folder)
    folder.mkdir()
    for number in range(count):
        words = [WORDS[(number * 7 + place * place) % len(WORDS)] for place in range(20)]
        (folder / f"text-{number:03d}.txt").write_text("".join(f"the {word} the {word}\n" for word in words))
        documents = [{"id": f"{number}/{place}", "text": f"{(number + place) % 37}"} for place in range(5)]
        (folder / f"docs-{number:03d}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in documents))
    return folder


def words_of(line):
    increment("lines")
    return line.split()


def count_words(source, output, look=lambda line: line):
    """Files with each word's count; `look` sees each line."""
    return (
        Dataset.from_files(f"{source}/text-*.txt")
        .load_lines()
        .map(look)
        .flat_map(words_of)
        .filter(lambda word: word != "by")
        .map(lambda word: (word, 1))
        .group_by(
            key=lambda pair: pair[0],
            reducer=lambda word, pairs: {"word": word, "count": sum(count for _, count in pairs)},
            num_output_shards=5,
        )
        .write_jsonl(f"{output}/counts-{{shard:05d}}-of-{{total:05d}}.jsonl")
    )


def counted_plainly(source):
    counts = Counter()
    for path in Path(source).glob("text-*.txt"):
        counts.update(word for word in path.read_text().split() if word != "by")
    return counts


def counts_in(folder):
    """What `count_words` has written."""
    lines = [line for path in sorted(Path(folder).glob("counts-*.jsonl")) for line in path.read_text().splitlines()]
    records = [json.loads(line) for line in lines]
    assert len({record["word"] for record in records}) == len(records), "each word is in one shard"
    return {record["word"]: record["count"] for record in records}


def documents_left(source, shards=4):
    """Exact deduplication, and how many documents are left of each file: two shuffles."""
    unique = Dataset.from_files(f"{source}/docs-*.jsonl").load_jsonl().deduplicate(lambda each: each["text"], shards)
    return unique.map(lambda each: each["id"].partition("/")[0]).group_by(
        lambda file: file, lambda file, files: (file, len(list(files))), shards
    )


def left_plainly(source):
    first = {}
    for path in sorted(Path(source).glob("docs-*.jsonl")):
        for line in path.read_text().splitlines():
            document = json.loads(line)
            first.setdefault(document["text"], document["id"])
    return Counter(id.partition("/")[0] for id in first.values())


def main(source, output, **options):
    """The whole program, as a job or a step runs it."""
    outcome = Executor(**options).execute(count_words(source, output))
    print(f"wrote {len(outcome.records)} files of {outcome.counters['lines']} lines")
