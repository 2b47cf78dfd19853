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


def test_an_absolute_name_stands_for_itself_whatever_the_job() -> None:
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


def test_addresses_have_1_to_512_characters() -> None:
    validate_endpoint(endpoint(address="x"))
    validate_endpoint(endpoint(address="x" * 512))
    for address in ("", "x" * 513):
        with pytest.raises(InvalidRequest, match="endpoint /ann/train/counter: the address must have 1 to 512"):
            validate_endpoint(endpoint(address=address))


def test_metadata_is_limited_by_the_bytes_of_keys_and_values() -> None:
    validate_endpoint(endpoint(k="x" * 8191))
    validate_endpoint(endpoint(k="é" * 4095, j=""))
    with pytest.raises(InvalidRequest, match="8193 bytes of metadata; at most 8192 are kept"):
        validate_endpoint(endpoint(k="x" * 8192))
    with pytest.raises(InvalidRequest, match="8194 bytes of metadata"):
        validate_endpoint(endpoint(ké="é" * 4095, j=""))


def test_an_endpoint_is_refused_by_its_name_first() -> None:
    with pytest.raises(InvalidRequest, match="the form is"):
        validate_endpoint(endpoint("counter", address=""))
