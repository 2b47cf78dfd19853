"""The text of tokens: what they say, and that nothing of a secret is repeated."""

import pytest

from iris.rpc.controller_address import ControllerAddress
from iris.tls.pins import JoinTokenText, PinnedToken, parse_join_token, parse_token
from rigging.errors import InvalidRequest

CA = "ab" * 32
SECRET = "s" * 43


def test_a_pinned_token_is_read_as_it_was_written() -> None:
    pinned = PinnedToken("u:ann.b:0123", CA)
    assert pinned.text == f"iris-v1.{CA}.u:ann.b:0123"
    assert parse_token(f" {pinned.text}\n") == pinned
    assert parse_token("u:ann:0123\n") == PinnedToken("u:ann:0123")
    assert PinnedToken("u:ann:0123").text == "u:ann:0123"


def test_a_join_token_is_read_as_it_was_written() -> None:
    for ca in (CA, ""):
        token = JoinTokenText("1a2b3c4d", SECRET, ca)
        assert parse_join_token(token.text + "\n") == token
    assert JoinTokenText("1a2b3c4d", SECRET).text.endswith(".insecure")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "u:ann:0123",
        f"iris-join-v1.1a2b.{SECRET}",
        f"iris-join-v1.1a2b.{SECRET}.abcd",
        f"iris-join-v2.1a2b.{SECRET}.{CA}",
    ],
)
def test_what_is_no_join_token_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(InvalidRequest, match="this is no join token: expected iris-join-v1") as told:
        parse_join_token(text)
    assert SECRET not in str(told.value)


def test_secrets_are_in_no_repr() -> None:
    for shown in (PinnedToken(SECRET, CA), JoinTokenText("1a2b", SECRET, CA), ControllerAddress.of("h:1", SECRET)):
        assert SECRET not in repr(shown)


def test_an_address_takes_the_pin_of_its_token_before_another() -> None:
    assert ControllerAddress.of("h:1", f"iris-v1.{CA}.t", ca_sha256="cd" * 32).ca_sha256 == CA
    assert ControllerAddress.of("h:1", "t", ca_sha256="cd" * 32).ca_sha256 == "cd" * 32
