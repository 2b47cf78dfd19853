"""What is written down has no secrets; looking closely only where one may be changes nothing."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.execution.record.redacted import redacted
from rigging.redaction import REDACTED, redact_string

SECRETS = [
    "hf_abcDEF123456", "ghp_abcdef123456", "github_pat_abcdef123456", "glpat-abcdef123456", "sk-abcdefgh1234",
    "AIzaSyAbcdef123456", "ya29.abcdefgh", "xoxb-12345678", "AKIAABCDEFGHIJKLMNOP", "ASIAABCDEFGHIJKLMNOP",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.abc", "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
    "Bearer abcdefgh1", "Authorization: Basic abcdefgh1", "https://user:password@host/x", "HF_TOKEN=abc",
    'api_key: "abcdefgh1"', "--password sesame", "password=sesame&x=1", '{"secret": "sesame"}', "passphrase: x1y2z3w4",
]  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["{}", "see {} there", "gs://bucket/tokenized/x {}"])
def test_every_shape_is_found(secret: str, around: str) -> None:
    text = around.format(secret)
    assert redacted(text) == redact_string(text) != text
    assert redacted({"a": [1, {"b": text}]}) == {"a": [1, {"b": redact_string(text)}]}


EXTRA = ["gs://b/tokenized/x", "max_tokens", "key", "=", ":", " ", "token", "'", '"', "task-1"]
words = st.sampled_from([*SECRETS, *EXTRA])


@given(st.lists(words, max_size=6).map("".join) | st.text(max_size=40))
def test_nothing_is_passed_by(text: str) -> None:
    assert redacted(text) == redact_string(text)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"api_key": 5}, {"api_key": REDACTED}), ({"password": {"deep": 1}}, {"password": REDACTED}),
        ([{"api_key": "x"}, "y"], [{"api_key": REDACTED}, "y"]),
        ({"a": [{"b": {"secret": "x"}}]}, {"a": [{"b": {"secret": REDACTED}}]}),
        ({"k": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"}, {"k": REDACTED}),
    ],
)  # fmt: skip
def test_secrets_are_replaced_by_their_name_and_by_their_shape(value: Any, shown: Any) -> None:
    before, others = copy.deepcopy(value), [1]
    assert redacted({"v": value, "others": others}) == {"v": shown, "others": others}
    assert redacted({"v": value, "others": others})["others"] is others
    assert value == before


@pytest.mark.parametrize(
    "value",
    [
        {"token": None, "secret": True, "password": False}, {"n_tokens": 5, "max_tokens": 7, "k": ["x"]}, {5: "x"}, 3,
        {"a": [1, {"b": "c"}]}, ["a", ["b"]], {}, [], "text", {"lr": 0.1, "path": "gs://b/tokenized/x", "xs": [1, 2]},
    ],
)  # fmt: skip
def test_what_holds_no_secret_is_shared(value: Any) -> None:
    assert redacted(value) is value
