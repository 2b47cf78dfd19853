"""Creates, verifies and revokes join tokens for new workers, and the workers' credentials.

Secrets are random, so only their SHA-256 is stored and compared. Each change is committed, with its author and time,
before the answer.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from iris.autoscale.model import worker_id_of
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
    """Stores tokens and credentials. A write is durable when it returns."""

    def save_access(self, tokens: Sequence[JoinToken], credentials: Sequence[WorkerCredential]) -> None: ...

    def forget_access(self, tokens: Sequence[str], credentials: Sequence[str]) -> None: ...

    def load_access(self) -> tuple[list[JoinToken], list[WorkerCredential]]: ...


class Credentials:
    """All join tokens and credentials of a cluster. Use it only in the engine's loop, which writes the store.

    Args:
        store: The store.
        clock_ms: Returns Unix ms; the only clock for expiry.
        ca_sha256: The digest of the controller's CA, for the text of tokens; empty without TLS.
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
        """Load the tokens and credentials from the store."""
        self.users.restore()
        tokens, credentials = self._store.load_access()
        self._tokens = {token.token_id: token for token in tokens}
        for credential in credentials:
            self._remember(credential)

    # ---- who calls ----

    def verify(self, token: str) -> Principal:
        """Return the owner of a token that is stored as a digest ("c:<worker>:<secret>", "n:<id>:<secret>", a user's).

        Raise Unauthenticated for an invalid token.
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

    def create(
        self, lifetime_ms: int, max_uses: int, note: str, maker: str, slice_name: str = ""
    ) -> tuple[JoinToken, str]:
        """Create a join token. Return it and its text, which is not stored.

        Args:
            lifetime_ms: Lifetime in milliseconds.
            max_uses: Number of workers that may join with the token.
            note: The token's purpose.
            maker: The token's creator.
            slice_name: The slice whose hosts may each join once; empty for workers of any name.

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
        secret, end = _digest(text.secret), now + lifetime_ms
        made = JoinToken(text.token_id, secret, note, maker, now, end, max_uses, slice=slice_name)
        if made.token_id in self._tokens:
            return self.create(lifetime_ms, max_uses, note, maker, slice_name)
        self._save(made)
        logger.info("%s made the join token %s for %d workers", maker, made.token_id, max_uses)
        return made, text.text

    def create_for_slice(self, name: str, hosts: int, lifetime_ms: int) -> str:
        """Create a join token for the hosts of a slice, and forget the expired ones of slices. Return its text.

        Args:
            name: The slice's name.
            hosts: The number of its hosts.
            lifetime_ms: Lifetime in milliseconds.
        """
        now = self._clock_ms()
        expired = [token.token_id for token in self._tokens.values() if token.slice and now >= token.expires_at_ms]
        if expired:
            self._store.forget_access(expired, [])
            for token_id in expired:
                del self._tokens[token_id]
        return self.create(lifetime_ms, hosts, f"slice {name}", "the autoscaler", name)[1]

    def tokens(self) -> list[JoinToken]:
        """Return all join tokens, oldest first."""
        return list(self._tokens.values())

    def joined_with(self, token_id: str) -> list[WorkerId]:
        """Return the workers that joined with a token, in order."""
        return [found.worker_id for found in self._credentials.values() if found.token_id == token_id]

    def revoke_token(self, token_id: str, by: str) -> JoinToken:
        """Revoke a join token. Workers that already joined stay. Idempotent.

        Raise NotFound.
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
        """Accept a worker's credential for one use of a join token. Idempotent.

        Args:
            token_id: An authenticated join token.
            worker_id: The worker's name.
            secret_sha256: The hex digest of the credential that the worker created.

        Raises:
            Denied: The token is revoked, used up, expired, or another slice's.
            Conflict: Another host has joined under that name.
            InvalidRequest: The digest is invalid.
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
            raise Denied("this credential was already used: create a new one")
        if token.slice and worker_id not in {worker_id_of(token.slice, number) for number in range(token.max_uses)}:
            raise Denied(f"the join token {token_id} is for the hosts of slice {token.slice}, not for {worker_id!r}")
        if token.slice and known is not None:
            raise Denied(f"worker {worker_id!r} has joined before, and hosts of a slice join once: delete the slice")
        refusal = token.refusal(self._clock_ms())
        if refusal:
            raise Denied(f"the join token {token_id} is no longer valid: {refusal}; create a new one on the controller")
        spent = replace(token, uses=token.uses + 1)
        credential = WorkerCredential(secret_sha256, worker_id, token_id, self._clock_ms())
        self._store.save_access([spent], [credential])
        self._tokens[token_id] = spent
        self._remember(credential)
        logger.info("worker %s joined with the join token %s (use %d of %d)", worker_id, token_id, *_use(spent))

    def has_joined(self, worker_id: WorkerId) -> bool:
        """Return whether a worker with this name has a valid credential."""
        return self.is_known(worker_id) and not self._of_worker[worker_id].revoked_at_ms

    def check_key(self, worker_id: WorkerId, public_key: bytes) -> bool:
        """Return whether a worker must prove its key: a joined worker must prove the key of its first session.

        Args:
            worker_id: The worker that opens a session.
            public_key: Its claimed key; empty for none, as in earlier releases.

        Raises:
            Denied: The key differs from the one bound to the credential.
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
        """Bind a worker's credential to its proved key."""
        known = self._of_worker[worker_id]
        if known.public_key != public_key.hex():
            bound = replace(known, public_key=public_key.hex())
            self._store.save_access([], [bound])
            self._remember(bound)
            logger.info("the credential of worker %s is bound to its key", worker_id)

    def is_known(self, worker_id: WorkerId) -> bool:
        """Return whether a worker with this name has joined, even if its credential was revoked later."""
        return worker_id in self._of_worker

    def revoke_worker(self, worker_id: WorkerId, by: str) -> None:
        """Revoke a worker's credential and free its name. Idempotent.

        Raise NotFound if no worker with this name has joined.
        """
        known = self._of_worker.get(worker_id)
        if known is None:
            raise NotFound(f"no worker {worker_id!r} has joined; `iris cluster worker list` shows what there is")
        if not known.revoked_at_ms:
            revoked = replace(known, revoked_by=by, revoked_at_ms=self._clock_ms())
            self._store.save_access([], [revoked])
            self._remember(revoked)
            logger.info("%s revoked the credential of worker %s", by, worker_id)

    def forget_worker(self, worker_id: WorkerId) -> None:
        """Forget the credential of a worker that is gone for good, so that stored ones do not add up."""
        known = self._of_worker.get(worker_id)
        if known is not None:
            self._store.forget_access([], [known.secret_sha256])
            del self._of_worker[worker_id], self._credentials[known.secret_sha256]

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
