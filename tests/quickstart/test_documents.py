"""Documents: what is there already, what is good, and what is kept."""

from pathlib import Path

import pytest

from experiments.quickstart import BOUNDS, DATA
from experiments.quickstart_steps.duplicates import UniqueConfig, jaccard, remove_duplicates, shingles, split_duplicates
from experiments.quickstart_steps.filtering import FilterConfig, filter_documents, out_of_bounds
from experiments.quickstart_steps.quality import (
    ClassifierConfig,
    SamplesConfig,
    count_attributes,
    digest_of_samples,
    read_samples,
    take_samples,
    train_classifier,
)
from experiments.quickstart_steps.storage import Row, read_json, read_rows, write_rows
from rigging.errors import InvalidRequest

TEXT = " ".join(f"word{n}" for n in range(100))


def document(name: str, text: str) -> Row:
    return {"id": name, "text": text}


def test_exact_and_near_duplicates_name_the_document_that_is_kept() -> None:
    near = TEXT.replace("word50 ", "")
    half = " ".join(TEXT.split()[:50] + [f"other{n}" for n in range(50)])
    documents = [document("a", TEXT), document("b", TEXT.replace(" ", "\n")), document("c", near), document("d", half)]
    kept, duplicates = split_duplicates(documents, 0.6, 3)
    assert [row["id"] for row in kept] == ["a", "d"]
    told = [(row["id"], row["duplicate_of"], row["kind"]) for row in duplicates]
    assert told == [("b", "a", "exact"), ("c", "a", "near")]
    assert duplicates[1]["similarity"] == round(jaccard(shingles(TEXT, 3), shingles(near, 3)), 4) > 0.9
    assert [len(split_duplicates([documents[0], documents[2]], least, 3)[0]) for least in (0.99, 0.9)] == [2, 1]
    assert shingles("The cat, the CAT sat", 2) == {"the cat", "cat the", "cat sat"}
    assert (shingles("one", 3), shingles("", 3)) == ({"one"}, {""})
    assert (jaccard(frozenset("ab"), frozenset("bc")), jaccard(frozenset(), frozenset())) == (1 / 3, 1)


def test_attributes_are_counted_and_bounds_inclusive_and_of_known_ones() -> None:
    found = count_attributes("Aa bb aa 11")
    assert found == {"words": 4, "mean_word_length": 2.0, "letters": 0.75, "distinct_words": 0.75}
    assert set(count_attributes("").values()) == {0}
    assert count_attributes("x x x x")["distinct_words"] == 0
    assert set(BOUNDS) == {*count_attributes("x"), "quality"}
    assert out_of_bounds({"words": 5, "quality": 0.4}, {"words": (5, 5), "quality": (0.5, 1)}) == ["quality"]
    with pytest.raises(InvalidRequest, match="there is no attribute 'length'; there are words"):
        out_of_bounds({"id": "a", "words": 5}, {"length": (0, 1)})


def test_no_document_at_all_is_an_error_that_says_where_to_look(tmp_path: Path) -> None:
    write_rows(str(tmp_path / "documents.jsonl"), [])
    with pytest.raises(InvalidRequest, match=r"no page has any text; see rejected\.jsonl"):
        remove_duplicates(UniqueConfig([str(tmp_path)], 0.6, 3, 1, str(tmp_path)))
    with pytest.raises(InvalidRequest, match="similarity 0 is not above 0"):
        remove_duplicates(UniqueConfig([str(tmp_path)], 0, 3, 1, str(tmp_path)))


def train(tmp_path: Path, name: str = "classifier") -> Path:
    samples = str(DATA / "samples")
    take_samples(SamplesConfig(samples, digest_of_samples(samples), str(tmp_path / "samples")))
    output = tmp_path / name
    train_classifier(ClassifierConfig(str(tmp_path / "samples" / "samples.jsonl"), 10, 0, str(output)))
    return output


def test_missing_and_few_samples_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"samples of positive text are expected in .*positive\.txt"):
        read_samples(str(tmp_path))
    (tmp_path / "positive.txt").write_text("one\n\ntwo\n")
    with pytest.raises(InvalidRequest, match=r"positive\.txt' has 2 samples; the classifier needs 10 or more"):
        read_samples(str(tmp_path))


def filtered(tmp_path: Path, qualities: list[float], heldout: float = 0.25) -> Path:
    names = [f"d{n}" for n in range(len(qualities))]
    write_rows(str(tmp_path / "documents.jsonl"), [document(name, "é" * 10) for name in names])
    rows = [{"id": name, "quality": quality} for name, quality in zip(names, qualities, strict=True)]
    write_rows(str(tmp_path / "attributes.jsonl"), rows)
    bounds = {"quality": (0.5, 1.0)}
    output = tmp_path / "filtered"
    documents = [str(tmp_path / "documents.jsonl")]
    filter_documents(FilterConfig(documents, [str(tmp_path)], bounds, heldout, 0, str(output)))
    return output


def test_documents_within_bounds_are_split_and_the_others_kept_aside(tmp_path: Path) -> None:
    output = filtered(tmp_path, [0.9] * 8 + [0.1, 0.2])
    train_ids, heldout_ids = ({row["id"] for row in read_rows(f"{output}/{n}.jsonl")} for n in ("train", "heldout"))
    assert (len(train_ids), len(heldout_ids)) == (6, 2)
    assert not train_ids & heldout_ids
    removed = [(row["id"], row["out_of_bounds"]) for row in read_rows(str(output / "removed.jsonl"))]
    assert removed == [("d8", ["quality"]), ("d9", ["quality"])]
    stats = read_json(str(output / "stats.json"))
    assert (stats["train_bytes"], stats["heldout_bytes"]) == (120, 40)
    assert stats["out_of_bounds"] == {"quality": 2}
    output = filtered(tmp_path, [0.9, 0.9], heldout=0.9)
    assert len(read_rows(str(output / "train.jsonl"))) == len(read_rows(str(output / "heldout.jsonl"))) == 1
    with pytest.raises(InvalidRequest, match=r"leaves 1 of 3 documents.*out of bounds by attribute: quality: 2"):
        filtered(tmp_path, [0.9, 0.1, 0.1])
    with pytest.raises(InvalidRequest, match="heldout 1 is not above 0 and below 1"):
        filtered(tmp_path, [0.9, 0.9], heldout=1)
