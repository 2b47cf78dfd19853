"""Proofs of the key: of one role, one connection and one key only."""

from dataclasses import replace

import pytest

from iris.actor.transport.handshake import NONCE_BYTES, Handshake, is_pass, new_nonce, pass_of, same

KEY, OTHER = b"k" * 32, b"o" * 32
SHAKE = Handshake(b"c" * NONCE_BYTES, b"s" * NONCE_BYTES, "instance", "session")


def test_both_ends_make_the_same_proofs_and_the_two_roles_differ() -> None:
    again = replace(SHAKE)
    assert SHAKE.server_proof(KEY) == again.server_proof(KEY)
    assert SHAKE.client_proof(KEY) == again.client_proof(KEY)
    assert SHAKE.server_proof(KEY) != SHAKE.client_proof(KEY), "a proof that is sent back proves nothing"


@pytest.mark.parametrize(
    "other",
    [
        replace(SHAKE, client_nonce=b"d" * NONCE_BYTES),
        replace(SHAKE, server_nonce=b"d" * NONCE_BYTES),
        replace(SHAKE, instance="another"),
        replace(SHAKE, session="another"),
        replace(SHAKE, instance="instances", session="ession"),
        replace(SHAKE, client_nonce=SHAKE.server_nonce, server_nonce=SHAKE.client_nonce),
    ],
)
def test_a_proof_is_of_one_connection(other: Handshake) -> None:
    assert SHAKE.server_proof(KEY) != other.server_proof(KEY)
    assert SHAKE.client_proof(KEY) != other.client_proof(KEY)


def test_a_proof_is_of_one_key() -> None:
    assert SHAKE.server_proof(KEY) != SHAKE.server_proof(OTHER)
    assert same(SHAKE.client_proof(KEY), replace(SHAKE).client_proof(KEY))
    assert not same(SHAKE.client_proof(KEY), SHAKE.client_proof(OTHER))
    assert not same(b"", SHAKE.client_proof(KEY))


def test_nonces_have_their_full_length_and_are_new() -> None:
    assert len(new_nonce()) == NONCE_BYTES == 32
    assert new_nonce() != new_nonce()
    assert SHAKE.is_fresh
    for short in (b"", b"c" * (NONCE_BYTES - 1), b"c" * (NONCE_BYTES + 1)):
        assert not replace(SHAKE, client_nonce=short).is_fresh
        assert not replace(SHAKE, server_nonce=short).is_fresh


def test_a_pass_is_another_each_time_and_of_one_key() -> None:
    shown = pass_of(KEY)
    assert is_pass(shown, KEY)
    assert not is_pass(shown, OTHER)
    assert shown != pass_of(KEY)
    nonce, _, proof = shown.partition(":")
    for text in ("", ":", nonce, f"{nonce}:", f":{proof}", f"{nonce}:{proof}0", f"{nonce[:-1]}:{proof}", "é:é"):
        assert not is_pass(text, KEY), text
