"""The document of an attestation: what is wrong with one is named by its field."""

import functools
import json
from typing import Any

import pytest

from marin.attested.attestation import Attestation, AttestedFile, AttestedStep, key_of, parse, path_of
from marin.attested.rerun import sampled
from rigging.errors import InvalidRequest

STEP = AttestedStep("docs/a-000001", "docs/a", {"fn_name": "f"}, None, (AttestedFile("x.json", 3, "0" * 64),))
WHOLE = Attestation("r", {"r": {"command": "x.py"}}, "/p", (STEP,))


def test_a_document_is_read_as_it_was_written() -> None:
    assert parse(WHOLE.to_json(), "a.json") == WHOLE
    assert [key_of("/p/docs/a", "/p/"), key_of("/q/a/", "/p")] == ["docs/a", "/q/a"]
    assert [path_of("docs/a", "gs://b/"), path_of("/q/a", "gs://b")] == ["gs://b/docs/a", "/q/a"]


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ([], 3, "the document is '3', not an object"),
        (["marin_attestation"], None, "marin_attestation is missing"),
        (["marin_attestation"], 2, "marin_attestation is 2; this release reads 1"),
        (["prefix"], 3, "prefix is '3', not a text"),
        (["runs", "r"], 7, "runs.r is '7', not an object"),
        (["steps", 0, "run"], 7, "steps[0].run is '7', not a text"),
        (["steps"], [7], "steps[0] is '7', not an object"),
        (["steps"], [STEP.to_json(), STEP.to_json()], "steps: two of them have the same path"),
        (["steps", 0, "path"], "../a", "steps[0].path is '../a', not a plain relative path"),
        (["steps", 0, "made_by"], None, "steps[0].made_by is missing"),
        (["steps", 0, "files", 0, "bytes"], True, "steps[0].files[0].bytes is 'True', not a whole number"),
        (["steps", 0, "files", 0, "name"], "/etc/x", "steps[0].files[0].name is '/etc/x', not a plain"),
        (["steps", 0, "files", 0, "sha256"], "AB", "steps[0].files[0].sha256 is 'AB', not 64 hex digits"),
    ],
)
def test_a_wrong_field_is_named(place: list[Any], value: Any, said: str) -> None:
    document: Any = json.loads(json.dumps(WHOLE.to_json()))
    *way, last = place or [None]
    parent = functools.reduce(lambda found, key: found[key], way, document)
    if not place:
        document = value
    elif value is None:
        del parent[last]
    else:
        parent[last] = value
    with pytest.raises(InvalidRequest) as caught:
        parse(document, "a.json")
    assert str(caught.value).startswith(f"a.json: {said}")


def test_a_sample_is_repeated_by_its_seed_and_keeps_the_order() -> None:
    keys = [str(number) for number in range(100)]
    chosen = sampled(keys, 5, 7)
    assert (len(chosen), chosen, sampled(keys, None, 7)) == (5, sorted(chosen, key=int), keys)
    assert chosen == sampled(keys, 5, 7) != sampled(keys, 5, 8)
