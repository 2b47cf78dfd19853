"""Tokens and workers' credentials. They contain no secrets, only digests."""

from dataclasses import dataclass
from typing import Final

from iris.domain.ids import WorkerId
from rigging.errors import InvalidRequest
from rigging.text.printable import is_printable_line

_LONGEST_NOTE: Final = 200


def check_note(note: str) -> None:
    """Validate a token's note. Raise InvalidRequest."""
    if note and (not is_printable_line(note) or len(note) > _LONGEST_NOTE):
        raise InvalidRequest(f"the note must be one printable line of at most {_LONGEST_NOTE} characters")


@dataclass(frozen=True, slots=True)
class JoinToken:
    """A token with which workers join. Times are Unix ms.

    Args:
        token_id: Its readable id.
        secret_sha256: The SHA-256 of its secret, in hex.
        note: Its purpose, as given by its creator.
        uses: Number of workers that joined with it, at most `max_uses`.
        revoked_at_ms: 0 means not revoked.
        slice: The slice whose hosts, `max_uses` of them, may each join once; empty for workers of any name.
    """

    token_id: str
    secret_sha256: str
    note: str
    created_by: str
    created_at_ms: int
    expires_at_ms: int
    max_uses: int
    uses: int = 0
    revoked_by: str = ""
    revoked_at_ms: int = 0
    slice: str = ""

    def refusal(self, now_ms: int) -> str:
        """Return why no worker may join with the token at `now_ms`; empty if a worker may."""
        if self.revoked_at_ms:
            return f"it was revoked by {self.revoked_by}"
        if now_ms >= self.expires_at_ms:
            return f"it expired {(now_ms - self.expires_at_ms) // 1000} s ago"
        if self.uses >= self.max_uses:
            return f"it was used {self.uses} times, as often as it may be"
        return ""


@dataclass(frozen=True, slots=True)
class UserToken:
    """A token that identifies a user. Times are Unix ms.

    Args:
        token_id: Its readable id.
        secret_sha256: The SHA-256 of its secret, in hex; empty for the signed tokens of earlier releases.
        note: Its purpose, as given by its creator.
        revoked_at_ms: 0 means not revoked.
    """

    token_id: str
    user: str
    secret_sha256: str
    note: str
    created_by: str
    created_at_ms: int
    revoked_by: str = ""
    revoked_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class WorkerCredential:
    """The credential of one worker. At most one per name is valid. Times are Unix ms.

    Args:
        secret_sha256: The SHA-256 of the credential, in hex, which also identifies it.
        token_id: The join token with which it was created.
        revoked_at_ms: 0 means not revoked.
        public_key: The public key (hex) that authenticates its worker in each session; empty until the worker has
            connected with a key.
    """

    secret_sha256: str
    worker_id: WorkerId
    token_id: str
    created_at_ms: int
    revoked_by: str = ""
    revoked_at_ms: int = 0
    public_key: str = ""
