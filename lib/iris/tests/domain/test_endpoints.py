"""Names of endpoints: where they are looked for, and what is refused before anything is stored."""

import pytest

from iris.domain.endpoints import (
    RegisteredEndpoint,
    endpoint_id,
    full_names,
    name_of,
    namespace_of,
    validate_endpoint,
    validate_full_name,
)
from iris.domain.ids import AttemptId, JobId
from rigging.errors import InvalidRequest

ATTEMPT = AttemptId("/ann/train/0:0")


def endpoint(name: str = "/ann/train/counter", address: str = "h:1", **metadata: str) -> RegisteredEndpoint:
    return RegisteredEndpoint(name, ATTEMPT, address, metadata)


def test_a_name_is_looked_for_in_the_job_and_then_in_each_of_its_ancestors() -> None:
    assert full_names(JobId("/ann/train/eval"), "counter") == ("/ann/train/eval/counter", "/ann/train/counter")
    assert full_names(JobId("/ann/train"), "counter") == ("/ann/train/counter",)
    # An absolute name stands for itself.
    assert full_names(JobId("/ann/train"), "/bob/serve/llm") == ("/bob/serve/llm",)


@pytest.mark.parametrize("name", ["", "a b", "a/b", ".", "..", "ä", "x" * 129, "a\n", "/ann", "/ann/counter", "//x/y"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        full_names(JobId("/ann/train"), name)


def test_a_refused_full_name_is_told_with_the_form() -> None:
    with pytest.raises(InvalidRequest, match=r"endpoint name '/ann/train/a b': the form is /user/job.*'a b' cannot"):
        validate_full_name("/ann/train/a b")
    with pytest.raises(InvalidRequest, match="endpoint name 'counter': the form is"):
        validate_full_name("counter")
    validate_full_name("/ann/train/" + "x" * 128)


def test_an_id_holds_name_and_attempt_and_gives_the_name_back() -> None:
    made = endpoint()
    assert made.endpoint_id == endpoint_id("/ann/train/counter", ATTEMPT) == "/ann/train/counter /ann/train/0:0"
    assert name_of(made.endpoint_id) == "/ann/train/counter"
    assert namespace_of(made.name) == "/ann/train"


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (endpoint(address="x"), ""),
        (endpoint(address="x" * 512), ""),
        (endpoint(address=""), "endpoint /ann/train/counter: the address must have 1 to 512"),
        (endpoint(address="x" * 513), "endpoint /ann/train/counter: the address must have 1 to 512"),
        # Metadata is limited by the bytes of keys and values.
        (endpoint(k="x" * 8191), ""),
        (endpoint(k="é" * 4095, j=""), ""),
        (endpoint(k="x" * 8192), "8193 bytes of metadata; at most 8192 are kept"),
        (endpoint(ké="é" * 4095, j=""), "8194 bytes of metadata"),
        (endpoint("counter", address=""), "the form is"),
    ],
    ids=range(9),
)
def test_what_no_endpoint_can_be(made: RegisteredEndpoint, reason: str) -> None:
    if not reason:
        validate_endpoint(made)
        return
    with pytest.raises(InvalidRequest, match=reason):
        validate_endpoint(made)
