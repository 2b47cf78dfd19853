"""Who may join a cluster: tokens for new workers, and the credential that each worker gets. No secret is kept."""

from dataclasses import dataclass
from typing import Final

from iris.domain.ids import WorkerId
from rigging.errors import InvalidRequest
from rigging.text.printable import is_printable_line

_LONGEST_NOTE: Final = 200


def check_note(note: str) -> None:
    """Check what a token is said to be for. Raises InvalidRequest."""
    if note and (not is_printable_line(note) or len(note) > _LONGEST_NOTE):
        raise InvalidRequest(f"the note must be one printable line of at most {_LONGEST_NOTE} characters")


@dataclass(frozen=True, slots=True)
class JoinToken:
    """A token by which workers may join; times in Unix ms.

    Args:
        token_id: By which people name it.
        secret_sha256: Of its secret, in hex.
        note: What it is for, in its maker's words.
        uses: Workers that joined with it, of at most `max_uses`.
        revoked_at_ms: 0: it was not revoked.
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

    def refusal(self, now_ms: int) -> str:
        """Return why nobody may join with it at `now_ms`; empty: one more worker may."""
        if self.revoked_at_ms:
            return f"it was revoked by {self.revoked_by}"
        if now_ms >= self.expires_at_ms:
            return f"it expired {(now_ms - self.expires_at_ms) // 1000} s ago"
        if self.uses >= self.max_uses:
            return f"it was used {self.uses} times, as often as it may be"
        return ""


@dataclass(frozen=True, slots=True)
class UserToken:
    """A token by which a user is known; times in Unix ms.

    Args:
        token_id: By which people name it.
        secret_sha256: Of its secret, in hex; empty: it stands for tokens that were signed, not kept.
        note: What it is for, in its maker's words.
        revoked_at_ms: 0: it is good.
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
    """The credential of one worker; at most one of a name is not revoked. Times in Unix ms.

    Args:
        secret_sha256: Of the credential, in hex; names it, too.
        token_id: The join token by which it came.
        revoked_at_ms: 0: it is good.
        public_key: In hex, of the key that its worker proves in each session; empty: it has not connected with one yet.
    """

    secret_sha256: str
    worker_id: WorkerId
    token_id: str
    created_at_ms: int
    revoked_by: str = ""
    revoked_at_ms: int = 0
    public_key: str = ""
