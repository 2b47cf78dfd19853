"""The text of tokens: what they say, and that nothing of a secret is repeated."""

import pytest

from iris.rpc.controller_address import ControllerAddress
from iris.tls.pins import JoinTokenText, PinnedToken, parse_join_token, parse_token
from rigging.errors import InvalidRequest

CA = "ab" * 32
SECRET = "s" * 43


def test_tokens_are_read_as_they_were_written_and_secrets_are_in_no_repr() -> None:
    pinned = PinnedToken("u:ann.b:0123", CA)
    assert pinned.text == f"iris-v1.{CA}.u:ann.b:0123"
    assert parse_token(f" {pinned.text}\n") == pinned
    assert parse_token("u:ann:0123\n") == PinnedToken("u:ann:0123")
    assert PinnedToken("u:ann:0123").text == "u:ann:0123"
    for ca in (CA, ""):
        token = JoinTokenText("1a2b3c4d", SECRET, ca)
        assert parse_join_token(token.text + "\n") == token
    assert JoinTokenText("1a2b3c4d", SECRET).text.endswith(".insecure")
    for shown in (PinnedToken(SECRET, CA), JoinTokenText("1a2b", SECRET, CA), ControllerAddress.of("h:1", SECRET)):
        assert SECRET not in repr(shown)
    assert ControllerAddress.of("h:1", f"iris-v1.{CA}.t", ca_sha256="cd" * 32).ca_sha256 == CA
    assert ControllerAddress.of("h:1", "t", ca_sha256="cd" * 32).ca_sha256 == "cd" * 32


def test_what_is_no_join_token_is_refused_without_being_repeated() -> None:
    start = f"iris-join-v1.1a2b.{SECRET}"
    for text in ("", "u:ann:0123", start, f"{start}.abcd", f"iris-join-v2.1a2b.{SECRET}.{CA}"):
        with pytest.raises(InvalidRequest, match="this is not a join token: expected iris-join-v1") as told:
            parse_join_token(text)
        assert SECRET not in str(told.value)
