"""Creates, verifies, lists and revokes the tokens of users.

Secrets are random, so only their SHA-256 is stored and compared. Each change is committed, with its author and time,
before the answer.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from iris.domain.access import UserToken, check_note
from iris.rpc.auth import Principal, PrincipalKind, Unauthenticated, parts_of_user_token, user_token
from rigging.errors import NotFound

logger = logging.getLogger(__name__)

_SIGNED: Final = "signed-"
"""Prefix of the id for all of a user's tokens from earlier releases, which the cluster's secret signed."""


class UserTokenStore(Protocol):
    """Stores tokens. A write is durable when it returns."""

    def save_user_tokens(self, tokens: Sequence[UserToken]) -> None: ...

    def load_user_tokens(self) -> list[UserToken]: ...


class UserTokens:
    """All tokens of a cluster's users. Use it only in the engine's loop, which writes the store.

    Args:
        store: The store.
        clock_ms: Returns Unix ms.
    """

    def __init__(self, store: UserTokenStore, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._clock_ms = clock_ms
        self._tokens: dict[str, UserToken] = {}
        self._listeners: list[Callable[[str, Unauthenticated], None]] = []

    def listen(self, listener: Callable[[str, Unauthenticated], None]) -> None:
        """Register a function to call with the id of each revoked token and the message for its holder."""
        self._listeners.append(listener)

    def restore(self) -> None:
        """Load the tokens from the store."""
        self._tokens = {token.token_id: token for token in self._store.load_user_tokens()}

    def verify(self, text: str) -> Principal:
        """Return the user of a token. Raise Unauthenticated for an invalid token."""
        name, token_id, secret = parts_of_user_token(text)
        found = self._tokens.get(token_id)
        digest = _digest(secret)
        if found is None or found.user != name or not secrets.compare_digest(found.secret_sha256, digest):
            raise Unauthenticated(f"the token of user {name} was not made by this cluster")
        principal = Principal(PrincipalKind.USER, name, token_id=token_id)
        self.check(principal)
        return principal

    def check(self, principal: Principal) -> None:
        """Raise Unauthenticated if a user's token is revoked or unknown. Other kinds of tokens are ignored."""
        found = self._tokens.get(id_of(principal)) if principal.kind is PrincipalKind.USER else None
        if found is None and principal.token_id:
            raise Unauthenticated(
                f"the token {principal.token_id} of user {principal.name} was not made by this cluster"
            )
        if found is not None and found.revoked_at_ms:
            raise _refusal(found)

    def create(self, user: str, note: str, maker: str) -> tuple[UserToken, str]:
        """Create a token. Return it and its text, which is not stored.

        Args:
            user: The token's user; a valid name.
            note: The token's purpose.
            maker: The token's creator.

        Raises:
            InvalidRequest: The note is out of range.
        """
        check_note(note)
        token_id, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
        if token_id in self._tokens:
            return self.create(user, note, maker)
        made = UserToken(token_id, user, _digest(secret), note, maker, self._clock_ms())
        self._save(made)
        logger.info("%s made the token %s of user %s", maker, token_id, user)
        return made, user_token(user, token_id, secret)

    def tokens(self, user: str = "") -> list[UserToken]:
        """Return the tokens of a user (empty: of all users), oldest first."""
        return [token for token in self._tokens.values() if user in ("", token.user)]

    def revoke(self, token_id: str, by: str) -> UserToken:
        """Revoke a token, also for open calls and streams. Idempotent.

        Raise NotFound.
        """
        token = self._tokens.get(token_id)
        if token is None and token_id.startswith(_SIGNED) and token_id != _SIGNED:
            token = UserToken(token_id, token_id.removeprefix(_SIGNED), "", "made by an earlier release", "", 0)
        if token is None:
            raise NotFound(f"no token {token_id!r} of a user; `iris user token list` shows what there is")
        if not token.revoked_at_ms:
            token = replace(token, revoked_by=by, revoked_at_ms=self._clock_ms())
            self._save(token)
            logger.info("%s revoked the token %s of user %s", by, token_id, token.user)
            for listener in self._listeners:
                listener(token_id, _refusal(token))
        return token

    def _save(self, token: UserToken) -> None:
        self._store.save_user_tokens([token])
        self._tokens[token.token_id] = token


def id_of(principal: Principal) -> str:
    """Return the id of the token that a user presents."""
    return principal.token_id or f"{_SIGNED}{principal.name}"


def _refusal(token: UserToken) -> Unauthenticated:
    return Unauthenticated(
        f"the token {token.token_id} of user {token.user} was revoked by {token.revoked_by}; an admin makes a new one "
        f"with `iris user token create {token.user}`"
    )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
