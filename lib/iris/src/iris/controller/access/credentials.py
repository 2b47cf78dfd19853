"""The tokens by which new workers join, and the credentials that those then hold: made, shown, spent and revoked.

Secrets are random, so their SHA-256 is all that is kept and compared. What is decided here is committed before it is
answered, with who did it and when.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from iris.controller.access.user_tokens import UserTokens, UserTokenStore
from iris.domain.access import JoinToken, WorkerCredential, check_note
from iris.domain.ids import WorkerId
from iris.rpc.auth import Principal, PrincipalKind, Unauthenticated
from iris.tls.pins import JoinTokenText
from rigging.errors import Conflict, Denied, InvalidRequest, NotFound

logger = logging.getLogger(__name__)

MAX_LIFETIME_MS: Final = 365 * 86_400_000
MAX_USES: Final = 100_000
_DIGEST_LENGTH: Final = 64


class AccessStore(UserTokenStore, Protocol):
    """Keeps tokens and credentials; a write has survived a loss of power when it returns."""

    def save_access(self, tokens: Sequence[JoinToken], credentials: Sequence[WorkerCredential]) -> None: ...

    def load_access(self) -> tuple[list[JoinToken], list[WorkerCredential]]: ...


class Credentials:
    """All join tokens and credentials of a cluster. Used in the engine's loop, where the store is written.

    Args:
        store: Where they are kept.
        clock_ms: Unix ms; the only clock that counts for expiry.
        ca_sha256: Digest of the controller's authority, for the text of tokens; empty: it serves without TLS.
    """

    def __init__(self, store: AccessStore, clock_ms: Callable[[], int], ca_sha256: str = "") -> None:
        self.users = UserTokens(store, clock_ms)
        self._store = store
        self._clock_ms = clock_ms
        self._ca_sha256 = ca_sha256
        self._tokens: dict[str, JoinToken] = {}
        self._credentials: dict[str, WorkerCredential] = {}
        self._of_worker: dict[WorkerId, WorkerCredential] = {}

    def restore(self) -> None:
        """Take up what the controller before this one has committed."""
        self.users.restore()
        tokens, credentials = self._store.load_access()
        self._tokens = {token.token_id: token for token in tokens}
        for credential in credentials:
            self._remember(credential)

    # ---- who calls ----

    def verify(self, token: str) -> Principal:
        """Return who shows a token of which a digest is kept ("c:<worker>:<secret>", "n:<id>:<secret>", a user's).

        Raises Unauthenticated on anything that is not good now.
        """
        kind, _, rest = token.partition(":")
        if kind == PrincipalKind.USER.value:
            return self.users.verify(token)
        name, _, secret = rest.rpartition(":")
        digest = _digest(secret)
        if kind == PrincipalKind.JOIN.value:
            found = self._tokens.get(name)
            if found is None or not secrets.compare_digest(found.secret_sha256, digest):
                raise Unauthenticated(f"the join token {name} was not made by this cluster")
            return Principal(PrincipalKind.JOIN, name)
        credential = self._credentials.get(digest)
        if credential is None or credential.worker_id != name:
            raise Unauthenticated(f"the credential shown for worker {name} was not made by this cluster")
        if credential.revoked_at_ms:
            raise Unauthenticated(
                f"the credential of worker {name} was revoked by {credential.revoked_by}; to let the host join again, "
                "remove credential.json from its work directory and give it a new join token"
            )
        return Principal(PrincipalKind.WORKER, name)

    # ---- join tokens ----

    def create(self, lifetime_ms: int, max_uses: int, note: str, maker: str) -> tuple[JoinToken, str]:
        """Make a join token; returns it, and its text, which is not kept.

        Args:
            lifetime_ms: Until it expires.
            max_uses: Workers that may join with it.
            note: What it is for.
            maker: Who asks.

        Raises:
            InvalidRequest: A number or the note is out of range.
        """
        if not 0 < lifetime_ms <= MAX_LIFETIME_MS:
            raise InvalidRequest(f"a join token of {lifetime_ms / 1000:g} s: it must last 0.001 s to 365 days")
        if not 0 < max_uses <= MAX_USES:
            raise InvalidRequest(f"a join token for {max_uses} uses: it must be 1 to {MAX_USES:,}")
        check_note(note)
        text = JoinTokenText(secrets.token_hex(4), secrets.token_urlsafe(32), self._ca_sha256)
        now = self._clock_ms()
        made = JoinToken(text.token_id, _digest(text.secret), note, maker, now, now + lifetime_ms, max_uses)
        if made.token_id in self._tokens:
            return self.create(lifetime_ms, max_uses, note, maker)
        self._save(made)
        logger.info("%s made the join token %s for %d workers", maker, made.token_id, max_uses)
        return made, text.text

    def tokens(self) -> list[JoinToken]:
        """Return all join tokens, the oldest first."""
        return list(self._tokens.values())

    def joined_with(self, token_id: str) -> list[WorkerId]:
        """Return the workers that joined with a token, in that order."""
        return [found.worker_id for found in self._credentials.values() if found.token_id == token_id]

    def revoke_token(self, token_id: str, by: str) -> JoinToken:
        """Let nobody join with a token any more; workers that have joined stay. Repeating it changes nothing.

        Raises NotFound.
        """
        token = self._tokens.get(token_id)
        if token is None:
            raise NotFound(f"no join token {token_id!r}; `iris cluster token list` shows what there is")
        if not token.revoked_at_ms:
            token = replace(token, revoked_by=by, revoked_at_ms=self._clock_ms())
            self._save(token)
            logger.info("%s revoked the join token %s", by, token_id)
        return token

    # ---- workers ----

    def join(self, token_id: str, worker_id: WorkerId, secret_sha256: str) -> None:
        """Give a worker its credential, for one use of a join token. The same once more changes nothing.

        Args:
            token_id: A verified join token.
            worker_id: Name of the worker.
            secret_sha256: Digest (hex) of the credential that the worker has made.

        Raises:
            Denied: The token is revoked, used up or expired.
            Conflict: Another host has joined under that name.
            InvalidRequest: The digest is none.
        """
        if len(secret_sha256) != _DIGEST_LENGTH or not set(secret_sha256) <= set("0123456789abcdef"):
            raise InvalidRequest("the credential's SHA-256 must be 64 hex digits")
        known, token = self._of_worker.get(worker_id), self._tokens[token_id]
        if known is not None and not known.revoked_at_ms:
            if known.secret_sha256 == secret_sha256:
                return  # the answer to its first request was lost
            raise Conflict(
                f"a worker {worker_id!r} has joined already, and its host holds the credential of that name: take "
                f"another --name, or, if that host is gone for good, `iris worker revoke {worker_id}` first"
            )
        if secret_sha256 in self._credentials:
            raise Denied("this credential was used before: make a new one")
        refusal = token.refusal(self._clock_ms())
        if refusal:
            raise Denied(f"the join token {token_id} is no longer good: {refusal}; make a new one on the controller")
        spent = replace(token, uses=token.uses + 1)
        credential = WorkerCredential(secret_sha256, worker_id, token_id, self._clock_ms())
        self._store.save_access([spent], [credential])
        self._tokens[token_id] = spent
        self._remember(credential)
        logger.info("worker %s joined with the join token %s (use %d of %d)", worker_id, token_id, *_use(spent))

    def has_joined(self, worker_id: WorkerId) -> bool:
        """True if a worker of that name holds a credential that is good."""
        return self.is_known(worker_id) and not self._of_worker[worker_id].revoked_at_ms

    def check_key(self, worker_id: WorkerId, public_key: bytes) -> bool:
        """Return whether a worker has to prove this key: one that joined does, and it is the one of its first session.

        Args:
            worker_id: Who opens a session.
            public_key: What it says its key is; empty: it has none, as releases before this.

        Raises:
            Denied: It is another than the one that is bound to the credential.
        """
        if not self.has_joined(worker_id):
            return False  # embedded: its token is signed, and is in no file
        bound = self._of_worker[worker_id].public_key
        if bound and bound != public_key.hex():
            raise Denied(
                f"worker {worker_id!r} shows {'another key than' if public_key else 'no key, not'} the one that its "
                "credential is bound to: it uses a copy of credential.json without worker-key. If the key is lost, "
                f"`iris worker revoke {worker_id}`, remove credential.json, and give it a new join token"
            )
        return bool(public_key)

    def bind_key(self, worker_id: WorkerId, public_key: bytes) -> None:
        """Let a worker's credential count only with this key, which it has proved, from now on."""
        known = self._of_worker[worker_id]
        if known.public_key != public_key.hex():
            bound = replace(known, public_key=public_key.hex())
            self._store.save_access([], [bound])
            self._remember(bound)
            logger.info("the credential of worker %s is bound to its key", worker_id)

    def is_known(self, worker_id: WorkerId) -> bool:
        """True if a worker of that name has joined, be it that its credential was revoked since."""
        return worker_id in self._of_worker

    def revoke_worker(self, worker_id: WorkerId, by: str) -> None:
        """Refuse a worker from now on; the name is free for another. Repeating it changes nothing.

        Raises NotFound when no worker of that name has joined.
        """
        known = self._of_worker.get(worker_id)
        if known is None:
            raise NotFound(f"no worker {worker_id!r} has joined; `iris cluster worker list` shows what there is")
        if not known.revoked_at_ms:
            revoked = replace(known, revoked_by=by, revoked_at_ms=self._clock_ms())
            self._store.save_access([], [revoked])
            self._remember(revoked)
            logger.info("%s revoked the credential of worker %s", by, worker_id)

    def _save(self, token: JoinToken) -> None:
        self._store.save_access([token], [])
        self._tokens[token.token_id] = token

    def _remember(self, credential: WorkerCredential) -> None:
        self._credentials[credential.secret_sha256] = credential
        self._of_worker[credential.worker_id] = credential


def _use(token: JoinToken) -> tuple[int, int]:
    return token.uses, token.max_uses


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
