"""Descriptions of tokens for operators, without secrets, and their conversion from the wire."""

from dataclasses import dataclass

from iris.client.types import Record
from iris.rpc.generated import access_pb2 as access


@dataclass(frozen=True, slots=True)
class JoinTokenStatus(Record):
    """A token with which workers join. Times are Unix ms; `revoked_at_ms` 0 means not revoked."""

    token_id: str
    note: str
    created_by: str
    created_at_ms: int
    expires_at_ms: int
    max_uses: int
    uses: int
    revoked_by: str
    revoked_at_ms: int
    workers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UserTokenStatus(Record):
    """A token of a user, like `JoinTokenStatus`."""

    token_id: str
    user: str
    note: str
    created_by: str
    created_at_ms: int
    revoked_by: str = ""
    revoked_at_ms: int = 0


def join_token(message: access.JoinToken) -> JoinTokenStatus:
    """Return a join token from the wire."""
    return JoinTokenStatus(
        token_id=message.token_id,
        note=message.note,
        created_by=message.created_by,
        created_at_ms=message.created_at_ms,
        expires_at_ms=message.expires_at_ms,
        max_uses=message.max_uses,
        uses=message.uses,
        revoked_by=message.revoked_by,
        revoked_at_ms=message.revoked_at_ms,
        workers=tuple(message.workers),
    )


def user_token(message: access.UserToken) -> UserTokenStatus:
    """Return a user's token from the wire."""
    return UserTokenStatus(
        token_id=message.token_id,
        user=message.user,
        note=message.note,
        created_by=message.created_by,
        created_at_ms=message.created_at_ms,
        revoked_by=message.revoked_by,
        revoked_at_ms=message.revoked_at_ms,
    )
