import hashlib
from collections.abc import Sequence

import pytest

from iris.controller.access.credentials import Credentials
from iris.domain.access import JoinToken, UserToken, WorkerCredential
from iris.domain.errors import StorageUnavailable
from iris.domain.ids import WorkerId
from iris.rpc.auth import (
    Principal,
    PrincipalKind,
    Unauthenticated,
    credential_token,
    is_kept,
    join_bearer,
    user_of_token,
)
from iris.tls.pins import parse_join_token
from rigging.errors import Conflict, Denied, InvalidRequest, NotFound

from .conftest import House

W1, W2 = WorkerId("w1"), WorkerId("w2")
ONE, TWO = "1" * 64, "2" * 64
SECRET = "secret of w1"


def test_tokens_are_shown_once_and_kept_as_their_digests(house: House) -> None:
    made, text = house.credentials.create(1000, 2, "rack 4", "admin root")
    users, users_text = house.credentials.users.create("ann", "laptop", "admin root")
    secret = parse_join_token(text).secret
    assert house.credentials.verify(join_bearer(made.token_id, secret)) == Principal(PrincipalKind.JOIN, made.token_id)
    assert is_kept(users_text)
    assert user_of_token(users_text) == "ann", "clients of earlier releases know from it who they are"
    assert house.credentials.verify(users_text) == Principal(PrincipalKind.USER, "ann", token_id=users.token_id)
    after = house.again()
    assert (after.credentials.tokens(), after.credentials.users.tokens()) == ([made], [users])
    assert after.credentials.verify(users_text).name == "ann"
    known = (made.note, made.created_by, made.created_at_ms, made.expires_at_ms)
    assert known == ("rack 4", "admin root", 1_000_000, 1_001_000)
    after.store.close()
    stored = b"".join(path.read_bytes() for path in house.state_dir.iterdir())
    assert not [part for part in (secret, users_text.rpartition(".")[2]) if part.encode() in stored]


@pytest.mark.parametrize("shown", ["n:abcd:wrong", "n::", "c:w1:wrong", "c::", "n:", "c:"])
def test_what_was_not_made_here_is_nobody(house: House, shown: str) -> None:
    house.credentials.join(house.token(), W1, ONE)
    with pytest.raises(Unauthenticated, match="was not made by this cluster"):
        house.credentials.verify(shown)


def test_a_token_is_good_for_so_many_workers_until_it_expires(house: House) -> None:
    token = house.token(uses=2)
    house.credentials.join(token, W1, ONE)
    house.now += 999
    house.credentials.join(token, W2, TWO)
    with pytest.raises(Denied, match=f"the join token {token} is no longer valid: it was used 2 times"):
        house.credentials.join(token, WorkerId("w3"), "3" * 64)
    assert house.credentials.joined_with(token) == [W1, W2]
    late = house.token(lifetime_ms=1000)
    house.now += 4000
    with pytest.raises(Denied, match="is no longer valid: it expired 3 s ago"):
        house.credentials.join(late, WorkerId("w3"), "3" * 64)


def test_a_revoked_token_lets_nobody_in_and_nobody_out(house: House) -> None:
    token = house.token(uses=2)
    house.credentials.join(token, W1, ONE)
    house.credentials.revoke_token(token, "admin ann")
    house = house.again()
    revoked = house.credentials.revoke_token(token, "admin bob")
    assert (revoked.revoked_by, revoked.revoked_at_ms) == ("admin ann", 1_000_000)
    with pytest.raises(Denied, match="is no longer valid: it was revoked by admin ann"):
        house.credentials.join(token, W2, TWO)
    assert house.credentials.has_joined(W1)
    with pytest.raises(NotFound, match="no join token 'abcd'"):
        house.credentials.revoke_token("abcd", "admin ann")


def test_a_repeated_request_joins_once(house: House) -> None:
    token = house.token(uses=1)
    house.credentials.join(token, W1, ONE)
    house = house.again()
    house.now += 5000  # meanwhile the token has expired, too
    house.credentials.join(token, W1, ONE)
    assert [found.uses for found in house.credentials.tokens()] == [1]


def test_a_name_is_one_hosts(house: House) -> None:
    token = house.token(uses=9)
    house.credentials.join(token, W1, ONE)
    with pytest.raises(Conflict, match=r"a worker 'w1' has joined already.*`iris worker revoke w1` first"):
        house.credentials.join(token, W1, TWO)
    house.credentials.revoke_worker(W1, "admin root")
    with pytest.raises(Denied, match="this credential was already used"):
        house.credentials.join(token, W1, ONE)
    house.credentials.join(token, W1, TWO)
    assert house.again().credentials.has_joined(W1)


def test_a_credential_is_good_for_its_own_name_until_it_is_revoked(house: House) -> None:
    house.credentials.join(house.token(), W1, hashlib.sha256(SECRET.encode()).hexdigest())
    house = house.again()
    assert house.credentials.verify(credential_token("w1", SECRET)) == Principal(PrincipalKind.WORKER, "w1")
    with pytest.raises(Unauthenticated, match="the credential shown for worker w2 was not made by this cluster"):
        house.credentials.verify(credential_token("w2", SECRET))
    house.credentials.revoke_worker(W1, "admin root")
    house = house.again()
    with pytest.raises(Unauthenticated, match="the credential of worker w1 was revoked by admin root; to let the host"):
        house.credentials.verify(credential_token("w1", SECRET))
    with pytest.raises(NotFound, match="no worker 'w9' has joined"):
        house.credentials.revoke_worker(WorkerId("w9"), "admin root")


def test_a_slices_token_is_for_each_of_its_hosts_once(house: House) -> None:
    text = house.credentials.create_for_slice("v5e-3", hosts=2, lifetime_ms=1000)
    token = parse_join_token(text).token_id
    other = parse_join_token(house.credentials.create_for_slice("v5e-4", 2, 5000)).token_id
    first, second = WorkerId("v5e-3-w0"), WorkerId("v5e-3-w1")
    house.credentials.join(token, first, ONE)
    house = house.again()
    for stranger in (W1, WorkerId("v5e-3-w2"), WorkerId("v5e-4-w0"), WorkerId("v5e-3-w01")):
        with pytest.raises(Denied, match=f"{token} is for the hosts of slice v5e-3, not for '{stranger}'"):
            house.credentials.join(token, stranger, TWO)
    with pytest.raises(Denied, match="is for the hosts of slice v5e-4"):
        house.credentials.join(other, second, TWO)
    with pytest.raises(Conflict, match="has joined already"):
        house.credentials.join(token, first, TWO)
    house.credentials.revoke_worker(first, "admin root")
    with pytest.raises(Denied, match="has joined before, and hosts of a slice join once"):
        house.credentials.join(token, first, TWO)
    house.now += 1000
    with pytest.raises(Denied, match="it expired"):
        house.credentials.join(token, second, TWO)
    # What is over does not add up.
    house.credentials.create_for_slice("v5e-5", 1, 1000)
    house.credentials.forget_worker(first)
    house = house.again()
    assert [found.slice for found in house.credentials.tokens()] == ["v5e-4", "v5e-5"]
    assert not house.credentials.is_known(first)


@pytest.mark.parametrize(
    ("lifetime_ms", "uses", "note", "words"),
    [
        (0, 1, "", "it must last 0.001 s to 365 days"),
        (366 * 86_400_000, 1, "", "it must last 0.001 s to 365 days"),
        (1000, 0, "", "it must be 1 to 100,000"),
        (1000, 100_001, "", "it must be 1 to 100,000"),
        (1000, 1, "a\nb", "one printable line of at most 200"),
        (1000, 1, "a" * 201, "one printable line of at most 200"),
    ],
)
def test_numbers_and_notes_have_limits(house: House, lifetime_ms: int, uses: int, note: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        house.credentials.create(lifetime_ms, uses, note, "admin root")
    assert house.credentials.tokens() == []


@pytest.mark.parametrize("digest", ["", "1" * 63, "1" * 65, "g" * 64, "A" * 64])
def test_a_digest_is_a_digest(house: House, digest: str) -> None:
    with pytest.raises(InvalidRequest, match="64 hex digits"):
        house.credentials.join(house.token(), W1, digest)


class FullDisk:
    def save_access(self, tokens: Sequence[JoinToken], credentials: Sequence[WorkerCredential]) -> None:
        raise StorageUnavailable("iris.db: database or disk is full")

    def forget_access(self, tokens: Sequence[str], credentials: Sequence[str]) -> None:
        raise StorageUnavailable("iris.db: database or disk is full")

    def save_user_tokens(self, tokens: Sequence[UserToken]) -> None:
        raise StorageUnavailable("iris.db: database or disk is full")

    def load_user_tokens(self) -> list[UserToken]:
        return [UserToken("ab12", "ann", ONE, "", "admin root", 0)]

    def load_access(self) -> tuple[list[JoinToken], list[WorkerCredential]]:
        token = JoinToken("abcd", ONE, "", "admin root", 0, 10, 1)
        return [token], [WorkerCredential(TWO, W2, "abcd", 0)]


def test_what_cannot_be_written_has_not_happened() -> None:
    credentials = Credentials(FullDisk(), lambda: 1)
    credentials.restore()
    for act in (
        lambda: credentials.create(1000, 1, "", "admin root"),
        lambda: credentials.join("abcd", W1, ONE),
        lambda: credentials.revoke_token("abcd", "admin root"),
        lambda: credentials.users.create("ann", "", "admin root"),
        lambda: credentials.users.revoke("ab12", "admin root"),
        lambda: credentials.revoke_worker(W2, "admin root"),
    ):
        with pytest.raises(StorageUnavailable):
            act()
    assert [(token.uses, token.revoked_at_ms) for token in credentials.tokens()] == [(0, 0)]
    assert not credentials.has_joined(W1)
    assert credentials.has_joined(W2)


def test_a_credential_counts_with_the_key_of_its_first_session_only(house: House) -> None:
    assert not house.credentials.check_key(W1, b"k1"), "an embedded worker has not joined"
    house.credentials.join(house.token(), W1, ONE)
    assert not house.credentials.check_key(W1, b""), "a former release has no key"
    assert house.credentials.check_key(W1, b"k1")
    house.credentials.bind_key(W1, b"k1")
    after = house.again().credentials
    assert after.check_key(W1, b"k1")
    for key, words in ((b"k2", "'w1' shows another key than the one"), (b"", "'w1' shows no key, not the one")):
        with pytest.raises(Denied, match=words):
            after.check_key(W1, key)
